"""Sessions against code in their boxes, boxes of one session against another, and clients that are no friends: what was tried, and held since."""
import json
import os
import signal

import boxlib
import pytest
import serving

MARK = "cloche-session-mark"


@pytest.fixture(scope="module")
def serve(leftovers):
    with serving.Serve() as s:
        yield s


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


# ---- the end of a sandbox ----

@pytest.mark.parametrize("how", ["runs", "has ended", "nobody takes its output", "its wait is given up"])
def test_close_does_not_wait_for_a_call_that_nobody_asks_for(leftovers, how):
    with serving.Serve(ack=True) as s:
        sb = s.open()
        much = how == "nobody takes its output"
        n = s.request("start", sandbox=sb, argv=["head", "-c", "1100000", "/dev/zero"] if much else ["sleep", "0" if how == "has ended" else "600"],
                      stream=much)
        assert "error" not in s.answer(n)
        if how == "has ended":
            s.wait_event(n, "ended")
        if much:
            assert boxlib.wait_for(lambda: s.ask("info")["boxes"] == 0), "its box has ended, its output is not taken"
        given_up = s.request("wait", call=n) if how == "its wait is given up" else None
        done = s.request("close", sandbox=sb)
        if given_up:
            s.request("cancel", call=given_up)
        assert "error" not in s.answer(done)
        assert s.ask("info")["calls"] == 0


# ---- what a call is told ----

def test_a_cancel_finds_its_way_through_any_number_of_orders(serve):
    """The keeper stands still, as it does while it walks a large workspace; what waits for it has no room for one more."""
    sb = serve.open()
    n = serve.request("run", sandbox=sb, argv=["sh", "-c", "sleep 600; :", MARK], pty={"rows": 5, "cols": 5})
    serve.wait_event(n, "started")
    keeper = parent(parent(boxlib.find_marked(MARK)[0]))
    os.kill(keeper, signal.SIGSTOP)
    try:
        orders = [next(serve.ids) for _ in range(2000)]
        serve.raw(b"".join(json.dumps({"id": i, "op": "resize", "call": n, "rows": 6, "cols": 6}).encode() + b"\n" for i in orders))
        said = [serve.answer(i).get("error", {}).get("type") for i in orders]
        assert said[0] is None and said[-1] == "busy", "an order that found no room is said to be told"
        cancel = serve.request("cancel", call=n)
        serve.ask("info")
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert "error" not in serve.answer(cancel)
    assert serve.answer(n)["outcome"]["fault"]["type"] == "cancelled"
    serve.ask("close", sandbox=sb)


def test_the_last_signal_is_one_too(serve):
    sb = serve.open()
    n = serve.request("start", sandbox=sb, argv=["sleep", "600"])
    assert "error" not in serve.ask("signal", call=n, signal=64), "before the command runs, as a rule"
    assert serve.result(serve.request("wait", call=n))["signal"] == 64
    serve.ask("close", sandbox=sb)
