"""Runs the files of tests/scenarios (README.md there) with the Python package, through Sandbox and through AsyncSandbox."""
import base64
import inspect
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parents[1] / "scenarios"
MATCHERS = {"matches", "contains", "gt", "lt", "in", "not", "all", "has", "base64", "repeat", "object"}
DATA = {"base64", "repeat", "chunks"}
ARGS_OF_DATA = ("data", "stdin", "code")
CONFIG = (HERE / "cloche.yaml").read_text(encoding="utf-8")
OWN = ("do", "on", "as", "live", "expect", "error")
UNSENDABLE = {"$NAN": float("nan"), "$INFINITY": float("inf"), "$HUGE": 1 << 63, "$BYTES": b"bytes", "$LONG": "x" * 70000}


def load():
    """[(file's name, scenario)]"""
    return [(path.stem, s) for path in sorted(HERE.glob("*.json")) for s in json.loads(path.read_text(encoding="utf-8"))]


def octets(value):
    if isinstance(value, str):
        return value.encode()
    if "base64" in value:
        return base64.b64decode(value["base64"])
    if "repeat" in value:
        return value["repeat"].encode() * value["times"]
    return b"".join(map(octets, value["chunks"]))


def data(value, name):
    """An argument that is data: str where it is one, so that both kinds are given."""
    if not isinstance(value, dict):
        return value
    if name == "stdin" and "chunks" in value:
        return (octets(c) for c in value["chunks"])
    return octets(value).decode() if name == "code" else octets(value)


def filled(value, places):
    """`value` with $TMP and $UID in its strings replaced, and those that stand for what JSON can't say."""
    if isinstance(value, str):
        if value in UNSENDABLE:
            return UNSENDABLE[value]
        for name, text in places.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, list):
        return [filled(v, places) for v in value]
    if isinstance(value, dict):
        return {filled(k, places): filled(v, places) for k, v in value.items()}
    return value


def field(value, path):
    """What a path of a result leads to; None where there is nothing."""
    for step in re.findall(r"[^.\[\]]+", path):
        if value is None:
            return None
        if step == "length" and isinstance(value, (str, bytes, list)):
            value = len(value)
        elif isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, (list, tuple)) and step.isdigit():
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = getattr(value, step)
    return value


def plain(value):
    """Objects of the package as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value


def holds(want, got):
    if not (isinstance(want, dict) and len(want) in (1, 2) and set(want) & MATCHERS):
        return plain(got) == want
    if "matches" in want:
        return isinstance(plain(got), str) and re.search(want["matches"].replace("$", r"\Z"), plain(got)) is not None
    if "contains" in want:
        return got is not None and want["contains"] in plain(got)
    if "gt" in want or "lt" in want:
        return isinstance(got, (int, float)) and (got > want["gt"] if "gt" in want else got < want["lt"])
    if "in" in want:
        return plain(got) in want["in"]
    if "not" in want:
        return not holds(want["not"], got)
    if "all" in want:
        return all(holds(w, got) for w in want["all"])
    if "has" in want:
        return got is not None and any(all(holds(w, field(item, p)) for p, w in want["has"].items()) for item in got)
    if "object" in want:
        return plain(got) == want["object"]
    return (got if isinstance(got, bytes) else (got or "").encode()) == octets(want)


def check(want, got, where):
    for path, value in want.items():
        found = field(got, path)
        shown = repr(found)
        assert holds(value, found), f"{where}: {path or 'result'}: {shown[:1500]} is not {value!r}; all: {str(got)[:3000]}"


def make(host, tmp):
    for name, what in host.items():
        path = pathlib.Path(tmp, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, dict) and "dir" in what:
            path.mkdir(exist_ok=True)
        elif isinstance(what, dict) and "link" in what:
            path.symlink_to(what["link"].replace("$TMP", tmp))
        else:
            path.write_bytes(octets(what))


async def settled(value):
    return await value if inspect.isawaitable(value) else value


class Gather:
    """Callbacks that keep what they got."""

    def __init__(self):
        self.out, self.err = bytearray(), bytearray()

    def args(self):
        return {"on_stdout": self.out.extend, "on_stderr": self.err.extend}


class Seen:
    """A result, with the live output beside its fields."""

    def __init__(self, result, gather):
        self._result, self.live_stdout, self.live_stderr = result, bytes(gather.out), bytes(gather.err)

    def __getattr__(self, name):
        return getattr(self._result, name)

    def __str__(self):
        return str(self._result)


class Run:
    """One scenario."""

    def __init__(self, cloche, scenario, face):
        self.cloche, self.face, self.scenario = cloche, face, scenario
        self.names, self.live, self.close = {}, {}, []

    async def expect_error(self, want, call, where):
        try:
            got = await settled(call())
        except self.cloche.SandboxError as why:
            assert holds(want["type"], type(why).__name__), f"{where}: {type(why).__name__}: {why}"
            check({k: v for k, v in want.items() if k != "type" and k != "message"}, why, where)
            if "message" in want:
                assert holds(want["message"], str(why)), f"{where}: {why}"
        else:
            raise AssertionError(f"{where}: no error, but {str(got)[:2000]}")

    async def open(self, options):
        sandbox = self.cloche.Sandbox(**options) if self.face == "threads" else await self.cloche.AsyncSandbox(**options).open()
        self.close.append(sandbox)
        return sandbox

    async def run(self):
        tmp = tempfile.mkdtemp(prefix="ct-scene-", dir="/tmp")
        os.chmod(tmp, 0o755)
        s = filled(self.scenario, {"$TMP": tmp, "$UID": str(os.geteuid())})
        try:
            make(s.get("host", {}), tmp)
            if "error" in s:
                await self.expect_error(s["error"], lambda: self.open(s.get("open", {})), "open")
                return
            gather = Gather()
            self.names[None] = await self.open({**s.get("open", {}), **(gather.args() if s.get("live") else {})})
            check(s.get("expect", {}), Seen(self.names[None], gather), "open")
            for n, step in enumerate(s.get("steps", [])):
                await self.step(step, f"step {n + 1} ({step['do']})")
        finally:
            for sandbox in reversed(self.close):
                await settled(sandbox.close())
            shutil.rmtree(tmp, ignore_errors=True)

    async def step(self, step, where):
        do, args = step["do"], {k: data(v, k) if k in ARGS_OF_DATA else v for k, v in step.items() if k not in OWN}
        if do == "sleep":
            time.sleep(args["seconds"])
            return
        if do == "host":
            path = pathlib.Path(args["path"])
            check(step["expect"], path.read_bytes() if path.exists() else None, where)
            return
        if do == "host_write":
            pathlib.Path(args["path"]).write_bytes(octets(step["data"]))
            return
        if isinstance(args.get("pty"), list):
            args["pty"] = tuple(args["pty"])
        gather = Gather()
        if step.get("live"):
            args.update(gather.args())
        on = step.get("on")
        method = getattr(self.names[on], do)
        if "error" in step:
            await self.expect_error(step["error"], lambda: method(**args), where)
            return
        got = await settled(method(**args))
        if "as" in step:
            self.names[step["as"]], self.live[step["as"]] = got, gather
            if do == "fork":
                self.close.append(got)
        if do in ("run", "run_code", "setup"):
            got = Seen(got, gather)
        elif do == "wait":
            got = Seen(got, self.live[on])
        check(step.get("expect", {}), got, where)
