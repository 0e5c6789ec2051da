"""What runtimes of languages lean on, and the runtimes themselves where this machine has them."""
import shutil

import pytest

PYTHON = {
    "200 threads": "import threading as t; b=t.Barrier(201); [t.Thread(target=b.wait).start() for _ in range(200)]; b.wait()",
    "multiprocessing.Lock": "import multiprocessing as m; k=m.Lock(); k.acquire(); k.release()",
    "fork": "import multiprocessing as m; print(m.get_context('fork').Pool(2).map(abs, [-1]))",
    "forkserver": "import multiprocessing as m; p=m.get_context('forkserver').Pool(2); assert p.map(abs, [-1]) == [1]",
    "spawn": "import multiprocessing as m; p=m.get_context('spawn').Pool(2); assert p.map(abs, [-1]) == [1]",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory as S; s=S(create=True,size=9); s.buf[0]=1; s.unlink()",
    "copy_file_range": "import os; open('a','wb').write(b'x'*9); assert os.copy_file_range(os.open('a',0), os.open('b',66), 9) == 9",
    "sendfile": "import os; open('a','wb').write(b'x'*9); assert os.sendfile(os.open('b',66), os.open('a',0), 0, 9) == 9",
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
# Command, what it prints, memory. Each does more than print its version: it starts threads, maps code, collects garbage.
RUNTIMES = {
    "node": (["node", "-e", "setTimeout(()=>console.log('ok'), 1)"], "1g"),
    "java": (["java", "-XshowSettings:vm", "-version"], "1g"),
    "perl": (["perl", "-MSocket", "-e", "print qq(ok\\n)"], "64m"),
    "gcc": (["sh", "-c", "echo 'int main(void){return 0;}' >x.c && gcc x.c -o x && ./x && echo ok"], "512m"),
    "git": (["sh", "-c", "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && echo ok"], "512m"),
}


@pytest.mark.parametrize("what", PYTHON)
def test_python(box, what):
    r = box("python3", "-c", PYTHON[what])
    assert (r.rc, r.o.fault, r.o["stderr"]) == (0, None, ""), r
    assert r.o["denied"] == [], r


@pytest.mark.parametrize("name", RUNTIMES)
def test_runtime(box, name):
    command, memory = RUNTIMES[name]
    found = shutil.which(command[0] if command[0] != "sh" else name, path="/usr/bin:/bin")
    if not found:  # nothing can be said of it here; the rows above hold everywhere
        return
    r = box("--memory", memory, *command)
    assert (r.rc, r.o.fault) == (0, None) and ("ok" in r.o.out or "VM" in r.o["stderr"]), r
