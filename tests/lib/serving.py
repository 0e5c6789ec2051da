"""A client of `cloche serve` that holds to nothing: it sends what a test gives it, right or wrong, and keeps what comes."""
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time

import boxlib


class Fatal(Exception):
    """The session has ended."""


class Serve:
    """One session. request(op, ...) sends and returns the id; answer(id) waits for its `done`; ask() is both."""

    def __init__(self, *args, env=None, hello=True, ack=False, program=None, reads=True):
        self.p = subprocess.Popen([str(program or boxlib.CLOCHE), "serve", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env=env or boxlib.base_env())
        boxlib.STARTED.add(self.p.pid)
        self.ids = itertools.count(1)
        self.events = {}  # id -> [(head, payload)]
        self.loose = queue.Queue()  # frames without an id
        self.changed = threading.Condition()
        self.over = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        if reads:
            self.reader.start()
        if hello:
            self.hello = self.ask("hello", protocol=1, client="tests", **({"ack": True} if ack else {}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def frame(self):
        line = self.p.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        head = json.loads(line)
        return head, self.p.stdout.read(head["bytes"]) if "bytes" in head else None

    def read(self):
        while True:
            try:
                got = self.frame()
            except ValueError:  # closed
                got = None
            with self.changed:
                if got is None:
                    self.over = True
                elif "id" in got[0] or "call" in got[0]:
                    self.events.setdefault(got[0].get("id", got[0].get("call")), []).append(got)
                else:
                    self.loose.put(got[0])
                self.changed.notify_all()
            if got is None:
                return

    def raw(self, data):
        self.p.stdin.write(data)
        self.p.stdin.flush()

    def send(self, head, payload=None):
        if payload is not None:
            head = {**head, "bytes": len(payload)}
        self.raw(json.dumps(head).encode() + b"\n" + (payload or b""))

    def request(self, op, payload=None, **fields):
        n = next(self.ids)
        self.send({"id": n, "op": op, **fields}, payload)
        return n

    def wait_event(self, n, *names, timeout=boxlib.HANG):
        """The first event of the request with one of these names."""
        until = time.monotonic() + timeout
        with self.changed:
            while True:
                for head, payload in self.events.get(n, []):
                    if head["event"] in names:
                        return head, payload
                if self.over:
                    raise Fatal(f"the session ended; of {n} there is {self.events.get(n)}")
                assert self.changed.wait(until - time.monotonic()), f"no {names} of request {n}: {self.events.get(n)}"

    def answer(self, n, timeout=boxlib.HANG):
        return self.wait_event(n, "done", timeout=timeout)[0]

    def ask(self, op, payload=None, **fields):
        return self.answer(self.request(op, payload, **fields))

    def open(self, **options):
        done = self.ask("open", options=options)
        assert "error" not in done, done
        return done["sandbox"]

    def result(self, n, timeout=boxlib.HANG):
        """The outcome, with what came before it put into it."""
        done = self.answer(n, timeout)
        assert "error" not in done, done
        return self.gather(n, done)

    def gather(self, n, done):
        o = dict(done["outcome"], stdout=b"", stderr=b"", live=b"", files=[], denied=[], notes=[])
        for head, payload in self.events[n]:
            if head["event"] == "output":
                o[head["stream"]] += payload
            elif head["event"] in ("stdout", "stderr"):
                o["live"] += payload
            elif head["event"] == "files":
                o["files"] += head["files"]
            elif head["event"] == "denied":
                o["denied"].append(head["denied"])
            elif head["event"] == "note":
                o["notes"].append(head["text"])
        return o

    def run(self, sandbox, *argv, payload=None, **fields):
        return self.result(self.request("run", payload, sandbox=sandbox, argv=list(argv), **fields))

    def code(self, sandbox, text, **fields):
        return self.result(self.request("run_code", text.encode(), sandbox=sandbox, **fields))

    def close(self, timeout=boxlib.HANG):
        """Ends it by the end of its input. The exit code."""
        try:
            self.p.stdin.close()
        except BrokenPipeError:
            pass
        rc = self.p.wait(timeout)
        if self.reader.is_alive():
            self.reader.join(timeout)
        self.p.stdout.close()
        return rc

    def kill(self, sig=signal.SIGKILL):
        os.kill(self.p.pid, sig)
        return self.p.wait(boxlib.HANG)
