"""Bytes in and out: nothing invented, nothing lost without being declared, and no growth of cloche however much flows."""
import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import time

import boxlib
import pytest

MIB = 1 << 20


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        found = re.search(r"VmHWM:\s+(\d+)", f.read())
        return int(found.group(1)) if found else 0  # it has ended


# stdin (T9, T41)

@pytest.mark.parametrize("script,want", [("echo at once", b"at once\n"), ("cat; echo end", b"end\n"), ("read x || echo eof", b"eof\n"),
                                         ("wc -c", b"0\n"), ("grep -r zzz /etc/hostname; echo done", b"done\n")])
def test_stdin_of_the_caller_held_open_is_not_waited_for(script, want):
    r, w = os.pipe()
    try:
        with boxlib.running("--timeout", "40s", "sh", "-c", script, stdin=r) as p:
            out, err = p.communicate(timeout=boxlib.HANG)
            assert (p.returncode, out) == (0, want), err
    finally:
        os.close(r)
        os.close(w)


def test_stdin_held_open_with_i_still_meets_its_deadline():
    r, w = os.pipe()
    try:
        with boxlib.running("-i", "--timeout", "500ms", "cat", stdin=r) as p:
            assert p.wait(boxlib.HANG) == 124
        with boxlib.running("-i", "echo", "at once", stdin=r) as p:
            out, _ = p.communicate(timeout=boxlib.HANG)
            assert (p.returncode, out) == (0, b"at once\n")
    finally:
        os.close(r)
        os.close(w)


def given(data, *args, json=False):
    """A box whose stdin is a pipe that holds data already, so that nothing depends on who is first."""
    r, w = os.pipe()
    with os.fdopen(r, "rb") as end:
        os.write(w, data)
        os.close(w)
        return boxlib.box(*args, json=json, stdin=end)


def test_stdin_ignored_gives_a_note(box):
    r = given(b"lost words\n", "cat")
    assert (r.rc, r.out) == (0, b"")
    assert b"cloche: note: " in r.err and b"-i" in r.err, r
    assert given(b"lost words\n", "-q", "cat").err == b""
    assert any("-i" in n for n in given(b"lost words\n", "cat", json=True).o["notes"])
    assert given(b"kept\n", "-i", "cat").err == b""
    assert given(b"", "cat").err == b""
    assert box("cat", json=False).err == b""


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff\n" * 5000, "žluťoučký kůň\n".encode() * 3], ids=["empty", "x", "binary", "text"])
def test_stdin_arrives(box, data):
    r = box("-i", "cat", stdin=data, json=False)
    assert (r.rc, r.out, r.err) == (0, data, b"")


@pytest.mark.parametrize("json_", [True, False])
def test_64_mib_of_stdin(box, json_):
    data = os.urandom(MIB) * 64
    r = box("-i", "sha256sum", stdin=data, json=json_)
    got = r.o.out if json_ else r.out.decode()
    assert got.split()[0] == hashlib.sha256(data).hexdigest()


def test_64_mib_through_the_box_and_back(box):
    data = os.urandom(MIB) * 64
    r = box("-i", "cat", stdin=data, json=False)
    assert r.rc == 0 and hashlib.sha256(r.out).digest() == hashlib.sha256(data).digest()


def test_stdin_from_a_file_and_early_exit(box, ws):
    (ws / "in").write_bytes(b"line\n" * 100000)
    with open(ws / "in", "rb") as f:
        assert box("-i", "head", "-n", "1", stdin=f, json=False).out == b"line\n"
    r = box("-i", "true", stdin=b"x" * (4 * MIB), json=False)
    assert (r.rc, r.err) == (0, b"")


# stdout and stderr (T11, T12)

def test_eight_mib_in_one_write(box):
    code = "import os; b = bytes(range(256)) * 32768; n = 0\nwhile n < len(b): n += os.write(1, b[n:])"
    r = box("python3", "-c", code, json=False)
    assert r.rc == 0 and r.out == bytes(range(256)) * 32768
    o = box("python3", "-c", code).o
    assert base64.b64decode(o["stdout_b64"]) == bytes(range(256)) * 32768
    assert not o["truncated"] and o["stdout_cut"] is None


@pytest.mark.parametrize("step", [1, 7, 4095, 65537])
def test_characters_split_by_writes(box, step):
    n = 300000 if step > 1 else 3000
    code = f"import os\nb = ('€' * {n}).encode()\nfor i in range(0, len(b), {step}): os.write(1, b[i:i + {step}])"
    o = box("python3", "-c", code).o
    assert o.out == "€" * n and "stdout_b64" not in o


def test_invalid_utf8_and_nul(box):
    o = box("printf", r"a\377b\000c\360\237\230").o
    assert base64.b64decode(o["stdout_b64"]) == b"a\xffb\0c\xf0\x9f\x98"
    assert o.out.startswith("a\ufffdb\0c\ufffd")
    o = box("printf", r"valid \303\251 \000 \001 \177 \342\200\250 \"\\").o
    assert o.out == "valid é \0 \x01 \x7f \u2028 \"\\" and "stdout_b64" not in o


def test_outcome_is_one_line_with_no_raw_control_bytes(box):
    r = box("printf", r"\033[31m\n\r\b")
    assert r.out.count(b"\n") == 1 and r.out.endswith(b"}\n") and b"\x1b" not in r.out
    assert r.o.out == "\x1b[31m\n\r\b"


@pytest.mark.parametrize("stream,redirect", [("stdout", ""), ("stderr", ">&2")])
def test_cut_keeps_head_and_tail(box, stream, redirect):
    code = f"(echo HEAD; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo TAIL) {redirect}"
    o = box("--max-output", "1m", "sh", "-c", code).o
    text, cut = o[stream], o[stream + "_cut"]
    assert o["exit_code"] == 0 and o["truncated"] is True
    assert text.startswith("HEAD\n") and text.endswith("x\nTAIL\n")
    assert len(text) <= MIB and len(text) + cut["bytes"] == 3000000 + 5 + 1 + 5
    assert set(text[5:-6]) == {"x"} and 0 < cut["at"] < len(text)
    other = "stderr" if stream == "stdout" else "stdout"
    assert o[other] == "" and o[other + "_cut"] is None
    assert o["limits"]["output"]["effective"] == MIB


def test_no_cut_at_exactly_the_cap(box):
    o = box("--max-output", "1m", "sh", "-c", f"head -c {MIB} /dev/zero | tr '\\0' x").o
    assert len(o.out) == MIB and not o["truncated"]
    o = box("--max-output", "1m", "sh", "-c", f"head -c {MIB + 1} /dev/zero | tr '\\0' x").o
    assert o["truncated"] and o["stdout_cut"]["bytes"] >= 1 and len(o.out) + o["stdout_cut"]["bytes"] == MIB + 1


def test_cut_inside_a_character(box):
    o = box("--max-output", "1001", "python3", "-c", "print('€' * 5000, end='')").o
    assert o["truncated"]
    kept = base64.b64decode(o["stdout_b64"]) if "stdout_b64" in o else o.out.encode()
    assert len(kept) <= 1001 and len(kept) + o["stdout_cut"]["bytes"] == 15000
    assert kept.startswith("€€".encode()) and kept.endswith("€€".encode())


def test_flood_does_not_grow_cloche(ws):
    """400 MB of `yes`, captured: memory stays near the cap, head and tail are there."""
    cap, flood = 4 * MIB, 400000000
    script = f"echo HEAD; yes | head -c {flood}; echo TAIL; : >done; exec sleep 600"
    with boxlib.running("--max-output", "4m", "--workspace", ws, "sh", "-c", script, json=True) as p:
        assert boxlib.wait_for((ws / "done").exists)
        peak = peak_kib(p.pid)
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=boxlib.HANG)
    r = boxlib.Result(["cloche"], p.returncode, out, err, 0).parse()
    assert r.o.fault_type == "cancelled" and r.o["truncated"] and r.o.out.startswith("HEAD\ny\n") and r.o.out.endswith("y\nTAIL\n")
    assert r.o["stdout_cut"]["bytes"] == flood + 10 - len(r.o.out)
    assert peak < 4 * cap // 1024 + 16 * 1024, peak


def test_flood_streamed_has_back_pressure():
    """A slow reader slows the program down instead of growing cloche, and gets every byte."""
    total = 24 * MIB
    with boxlib.running("sh", "-c", f"head -c {total} /dev/zero") as p:
        got = 0
        while True:
            part = os.read(p.stdout.fileno(), 65536)
            if not part:
                break
            got += len(part)
            if got % (4 * MIB) < 65536:
                time.sleep(0.1)
                assert peak_kib(p.pid) < 24 * 1024
        assert p.wait(boxlib.HANG) == 0
    assert got == total


def test_slow_reader_does_not_stop_the_deadline():
    with boxlib.running("--timeout", "1s", "yes") as p:
        assert boxlib.wait_for(lambda: p.poll() is not None, timeout=boxlib.HANG), "held up by its reader"
        assert p.returncode == 124


def test_closed_stdout_ends_quietly():
    """`cloche run -- yes | head -1`: the box sees its reader go, as it would without a box."""
    with boxlib.running("yes") as p:
        assert os.read(p.stdout.fileno(), 2) == b"y\n"
        p.stdout.close()
        p.stdout = None
        assert p.wait(boxlib.HANG) in (128 + signal.SIGPIPE, 0, 1)
        assert b"cloche: " not in boxlib.without_rung(p.stderr.read()) or p.returncode == 1


@pytest.mark.parametrize("args,rc", [(("echo", "hi"), 125), (("sh", "-c", "echo hi; exit 3"), 3), (("true",), 0), (("--json", "true"), 125)],
                         ids=["ok", "failed", "silent", "json"])
def test_output_that_can_not_be_written_is_told(args, rc):
    """A full disk behind stdout: one line, and never a code that says all is well."""
    with open("/dev/full", "wb") as full:
        r = subprocess.run([boxlib.CLOCHE, "run", *args], stdout=full, stderr=subprocess.PIPE, env=boxlib.base_env(), timeout=boxlib.HANG, check=False)
    lines = [line for line in r.stderr.splitlines() if line.startswith(b"cloche: error: ")]
    assert r.returncode == rc and len(lines) == (args != ("true",)), r


def test_background_writer_gets_no_say_after_the_end(box):
    o = box("sh", "-c", "(echo y; echo y; : >/tmp/up; exec yes) & until [ -e /tmp/up ]; do sleep 0.05; done; exit 0").o
    assert o["exit_code"] == 0 and o.out.startswith("y\ny\n")


def test_partial_output_survives_every_ending(box):
    assert box("sh", "-c", "printf 'no newline'; kill -KILL $$").o.out == "no newline"
    assert box("--timeout", "3s", "sh", "-c", "printf 'no newline'; sleep 60").o.out == "no newline"


def test_closing_its_streams_does_not_end_a_box(box):
    o = box("sh", "-c", "exec >&- 2>&- <&-; sleep 0.3; exit 5").o
    assert o["exit_code"] == 5


def test_stdio_closed_by_the_caller():
    """A caller without standard streams: no descriptor of ours may take their numbers."""
    script = f'exec "{boxlib.CLOCHE}" run -- sh -c "echo out; echo err >&2; exit 3" <&- >&- 2>&-'
    r = subprocess.run(["sh", "-c", script], timeout=boxlib.HANG, check=False, env=boxlib.base_env())
    assert r.returncode in (3, 125, 2, 1)


def test_outcome_through_a_pipe_that_does_not_block():
    """The caller's pipe may be set so by whoever shares it; its reader may be slow."""
    r, w = os.pipe()
    os.set_blocking(w, False)
    p = subprocess.Popen([boxlib.CLOCHE, "run", "-q", "--json", "head", "-c", "1000000", "/dev/zero"], stdin=subprocess.DEVNULL, stdout=w)
    os.close(w)
    time.sleep(0.5)
    with open(r, "rb") as f:
        got = f.read()
    assert p.wait(boxlib.HANG) == 0
    assert json.loads(got)["stdout"] == "\0" * 1000000


def test_output_to_the_master_of_a_terminal():
    """To open it anew would make another terminal, and the output would be gone."""
    master, slave = os.openpty()
    os.set_blocking(slave, False)
    try:
        subprocess.run([boxlib.CLOCHE, "run", "-q", "echo", "hi"], stdin=subprocess.DEVNULL, stdout=master, check=True, timeout=boxlib.HANG)
        assert os.read(slave, 100) == b"hi\n"
    finally:
        os.close(master)
        os.close(slave)
