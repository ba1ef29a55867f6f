"""Search for the input that makes one turn of the broker's loop longest.

    python -m tests.fuzz.worst_turn --seconds 600 --seed 1 [--scale 1.0] [--log FILE]

A program is a list of steps: crowds of filters, groups, retained messages, bursts, take-overs, wills, sessions that expire together,
reloads with many rules, commands of dynamic security. The search runs random programs, each on a fresh broker, keeps the worst ones
and changes them. The score is the broker's own `turn_work_max` (counted work) or `turn_us_max` (time; the smallest of three runs
counts, because a busy machine only adds). The same seed makes the same programs, as long as the scores agree.

The run fails if counted work exceeds the bound that cext/broker/core/turn.pxd states.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.harness.broker import Broker
from tests.harness.packets import (
    Connect, Disconnect, Packet, Pingreq, Puback, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will,
)
from tests.harness.properties import P
from tests.harness.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUDGET = 200_000
SHARE = BUDGET // 200
# Three budgets, and a share with one packet's work for each connection with new input: see cext/broker/core/turn.pxd.
CONNECTIONS_MAX = 512
WORK_MAX = 3 * BUDGET + CONNECTIONS_MAX * 3 * SHARE
CONFIG = f"""listener {{port}} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
turn_budget {BUDGET}
sys_interval 1
log_type none
acl_file {{dir}}/acl
enable_control_api true
"""
RULES = "topic readwrite #\ntopic read $SYS/#\ntopic readwrite $CONTROL/#\n"


@dataclass(frozen=True)
class Step:
    kind: str
    n: int
    shape: int
    qos: int


class Stage:
    """The clients of one program."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.wires: dict[str, Wire] = {}

    def client(self, name: str, expiry_s: int = 0, will: Will | None = None) -> Wire:
        wire = self.wires.get(name)
        if wire is None:
            wire = self.wires[name] = Wire(self.broker.port, 5, 60)
            props = ((P.SESSION_EXPIRY, expiry_s),) if expiry_s else ()
            wire.send(Connect(name, not expiry_s, will=will, props=((P.RECEIVE_MAXIMUM, 65535), *props)))
            wire.read_packet()
        return wire

    def settle(self, wire: Wire) -> None:
        """Read until the broker has handled all that the client has sent."""
        wire.send(Pingreq())
        while (raw := wire.read_frame()) is not None and raw[0] != 0xD0:
            if raw[0] >> 4 == 3 and raw[0] & 6:
                self.acknowledge(wire, raw)

    @staticmethod
    def acknowledge(wire: Wire, raw: bytes) -> None:
        at = 1
        while raw[at] & 128:
            at += 1
        topic_n = int.from_bytes(raw[at + 1:at + 3], "big")
        mid = int.from_bytes(raw[at + 3 + topic_n:at + 5 + topic_n], "big")
        wire.send(Puback(mid) if raw[0] & 6 == 2 else Pubrec(mid))

    def send(self, name: str, packets: Iterator[Packet] | list[Packet]) -> None:
        wire = self.client(name)
        wire.send(*packets)
        self.settle(wire)

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()


def filter_of(shape: int, i: int) -> str:
    """Return filter i of a family. All filters of a family differ."""
    if shape == 0:
        return "/".join("+" if i >> bit & 1 else "a" for bit in range(18)) + "/x"
    if shape == 1:
        return "/".join("+" if i >> bit & 1 else "a" for bit in range(18))
    if shape == 2:
        return f"w/{i}"
    if shape == 3:
        return f"w/{i}/#"
    if shape == 4:
        return f"$share/g{i}/a/a"
    if shape == 5:
        return f"$share/g/w/{i}/+"
    return "/".join("ab+"[i // 3**bit % 3] for bit in range(11)) + "/#"


def topic_of(shape: int, i: int) -> str:
    return ("a/" * 18 + "y", "/".join("a" * 18), f"w/{i}", f"w/{i}/b", "a/a", f"w/{i % 7}/c", "/".join("a" * 11))[shape]


def subscribe(stage: Stage, s: Step) -> None:
    size = (1, 100, 10_000)[s.qos]
    name = f"s{s.n % 3}"
    for start in range(0, s.n, size):
        stage.send(name, [Subscribe(1, tuple((filter_of(s.shape, i), s.qos) for i in range(start, min(s.n, start + size))))])


def subscribe_crowd(stage: Stage, s: Step) -> None:
    for i in range(min(s.n // 20, 2000)):
        stage.client(f"c{i}").send(Subscribe(1, ((filter_of(s.shape, i % 3), s.qos),)))
    for i in range(min(s.n // 20, 2000)):
        stage.settle(stage.client(f"c{i}"))


def unsubscribe(stage: Stage, s: Step) -> None:
    stage.send(f"s{s.n % 3}", [Unsubscribe(1, tuple(filter_of(s.shape, i) for i in range(s.n)))])


def leave(stage: Stage, s: Step) -> None:
    wire = stage.wires.pop(f"s{s.n % 3}", None)
    if wire is not None:
        wire.send(Disconnect())
        wire.close()


def publish(stage: Stage, s: Step, retain: bool = False) -> None:
    n = min(s.n, 20_000)
    packets: list[Packet] = [Publish(topic_of(s.shape, i), b"x", s.qos, 1 + i % 60_000 if s.qos else 0, retain=retain) for i in range(n)]
    if s.qos == 2:
        packets = [p for i, one in enumerate(packets) for p in (one, Pubrel(1 + i % 60_000))]
    for start in range(0, len(packets), 2000):
        stage.send("p", packets[start:start + 2000])


def publish_together(stage: Stage, s: Step) -> None:
    """Let many clients publish at the same moment."""
    names = [f"m{i}" for i in range(min(s.n // 100, 400))]
    for name in names:
        stage.client(name)
    for name in names:
        stage.client(name).send(*(Publish(topic_of(s.shape, i), b"x") for i in range(20)))
    for name in names:
        stage.settle(stage.client(name))


def retained(stage: Stage, s: Step) -> None:
    publish(stage, s, retain=True)


def retained_short(stage: Stage, s: Step) -> None:
    """Store retained messages that expire in the same second."""
    for start in range(0, s.n, 2000):
        stage.send("p", [Publish(f"e/{i}", b"x", retain=True, props=((P.EXPIRY, 1),)) for i in range(start, min(s.n, start + 2000))])


def replay(stage: Stage, s: Step) -> None:
    for i in range(min(s.n // 1000 + 1, 30)):
        stage.client(f"r{i}").send(Subscribe(1, (("#", s.qos),)))
    for i in range(min(s.n // 1000 + 1, 30)):
        stage.settle(stage.client(f"r{i}"))


def take_over(stage: Stage, s: Step) -> None:
    for i in range(min(s.n // 50, 300)):
        wire = Wire(stage.broker.port, 5, 60)
        wire.send(Connect(f"s{i % 3}", s.qos == 0, props=((P.SESSION_EXPIRY, 100),)))
        stage.wires[f"t{i}"] = wire


def sessions(stage: Stage, s: Step) -> None:
    """Leave sessions behind that expire in the same second, with queued messages and subscriptions."""
    for i in range(min(s.n // 4, 5000)):
        name = f"x{i}"
        wire = stage.client(name, 1)
        wire.send(Subscribe(1, ((filter_of(s.shape, i), s.qos),)))
        wire.close()
        del stage.wires[name]


def wills(stage: Stage, s: Step) -> None:
    names = [f"l{i}" for i in range(min(s.n // 50, 400))]
    for name in names:
        stage.client(name, will=Will(topic_of(s.shape, 0), b"x" * 100, s.qos))
    for name in names:
        stage.wires.pop(name).close()


def queue(stage: Stage, s: Step) -> None:
    """Queue messages for an offline member of groups, then end its session: they are handed over."""
    wire = stage.client("off", 1000)
    wire.send(Subscribe(1, tuple((filter_of(4, i), 1) for i in range(50))))
    wire.close()
    del stage.wires["off"]
    stage.send("p", [Publish("a/a", b"x", 1, 1 + i) for i in range(min(s.n, 2000))])
    wire = Wire(stage.broker.port, 5, 60)
    wire.send(Connect("off", clean=True))
    stage.wires["off"] = wire


def reload(stage: Stage, s: Step) -> None:
    (stage.broker.dir / "acl").write_text(RULES + "".join(f"pattern write w/%c/{i}\n" for i in range(s.n)))
    stage.broker.send_signal(signal.SIGHUP)


def big_properties(stage: Stage, s: Step) -> None:
    props = tuple((P.USER, ("k" * 10, "v" * 10)) for _ in range(min(s.n, 30_000)))
    stage.send("p", [Publish(topic_of(s.shape, i), b"x", props=props) for i in range(3)])


def big_payloads(stage: Stage, s: Step) -> None:
    stage.send("p", [Publish(topic_of(s.shape, i), b"x" * min(s.n * 20, 1_900_000), s.qos and 1, s.qos and 1 + i) for i in range(20)])


def control(stage: Stage, s: Step) -> None:
    command = json.dumps({"commands": [{"command": "explain", "topic": topic_of(s.shape, 0)}] * min(s.n, 1000)}).encode()
    stage.send("p", [Publish("$CONTROL/mosq/v1/index", command) for _ in range(20)])
    stage.send("p", [Publish("$CONTROL/broker/v1", b'{"commands":[{"command":"listListeners"}]}') for _ in range(20)])


KINDS: dict[str, Callable[[Stage, Step], None]] = {f.__name__: f for f in (
    subscribe, subscribe_crowd, unsubscribe, leave, publish, publish_together, retained, retained_short, replay, take_over, sessions,
    wills, queue, reload, big_properties, big_payloads, control)}


@dataclass
class Score:
    work: int
    us: int
    by: str     # the step after which the longest turn was seen first

    def line(self) -> str:
        return f"{self.work:>9} units {self.us / 1000:>8.1f} ms after {self.by}"


def maximum(watcher: Wire) -> tuple[int, int]:
    """Return the broker's largest work and time of a turn, from $SYS."""
    watcher.send(Subscribe(9, (("$SYS/broker/turn/+/maximum", 0),)))
    seen: dict[str, int] = {}
    while len(seen) < 2:
        got = watcher.read_packet()
        if isinstance(got, Publish):
            seen[got.topic] = int(got.payload)
    return seen["$SYS/broker/turn/work/maximum"], seen["$SYS/broker/turn/time/maximum"]


def run(program: list[Step]) -> Score:
    score = Score(0, 0, "the start")
    with Broker(CONFIG, {"acl": RULES}) as broker:
        stage = Stage(broker)
        watcher = Wire(broker.port, 5, 60)
        watcher.send(Connect("watcher"))
        watcher.read_packet()
        start = maximum_after(watcher)
        for step in program:
            with contextlib.suppress(OSError, AssertionError):  # the broker may refuse: the search is for long turns only
                KINDS[step.kind](stage, step)
            work, us = maximum_after(watcher)
            if work > score.work:
                score.work = work
            if us > score.us and us > start[1]:
                score.us, score.by = us, step.kind
        stage.close()
        score.work = max(score.work, maximum_after(watcher)[0])
    return score


def maximum_after(watcher: Wire) -> tuple[int, int]:
    """Return the maximum as of the next publication of $SYS: it is published at most a second after the change."""
    end = time.monotonic() + 1.3
    found = maximum(watcher)
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            got = watcher.read_packet(max(0.05, end - time.monotonic()))
            if isinstance(got, Publish):
                work = int(got.payload)
                found = (work, found[1]) if got.topic.endswith("work/maximum") else (found[0], work)
    return found


def some_step(r: random.Random, scale: float) -> Step:
    return Step(r.choice(list(KINDS)), int(scale * 10 ** r.uniform(1, 5)), r.randrange(7), r.randrange(3))


def changed(program: list[Step], r: random.Random, scale: float) -> list[Step]:
    """Return a program with one change: a step more, a step less, or another size, shape or QoS."""
    one = list(program)
    roll = r.random()
    at = r.randrange(len(one))
    if roll < 0.3 and len(one) < 8:
        one.insert(r.randrange(len(one) + 1), some_step(r, scale))
    elif roll < 0.45 and len(one) > 1:
        del one[at]
    elif roll < 0.7:
        one[at] = replace(one[at], n=max(1, min(int(100_000 * scale), int(one[at].n * r.choice((0.5, 2, 4))))))
    elif roll < 0.85:
        one[at] = replace(one[at], shape=r.randrange(7))
    else:
        one[at] = replace(one[at], qos=r.randrange(3))
    return one


def top_work(best: list[tuple[Score, list[Step]]]) -> int:
    """Return the second largest counted work."""
    return sorted((score.work for score, _ in best), reverse=True)[:2][-1]


def search(seconds: float, seed: int, scale: float, log: Path | None) -> dict[str, Any]:
    """Search until the time is over. Return the worst programs by work and by time."""
    r = random.Random(seed)
    end = time.monotonic() + seconds
    best: list[tuple[Score, list[Step]]] = []
    runs = 0
    while time.monotonic() < end or not runs:
        if len(best) < 4 or r.random() < 0.35:
            program = [some_step(r, scale) for _ in range(r.randint(1, 5))]
        else:
            program = changed(r.choice(best)[1], r, scale)
        score = run(program)
        runs += 1
        if best and score.us > max(one.us for one, _ in best):
            score.us = min([score.us, *(run(program).us for _ in range(2))])
        best.append((score, program))
        best = [one for i, one in enumerate(sorted(best, key=lambda one: -one[0].us)) if i < 4 or one[0].work >= top_work(best)]
        line = f"run {runs}: {score.line()}: " + ", ".join(f"{s.kind}({s.n}, {s.shape}, {s.qos})" for s in program)
        print(line, file=sys.stderr)
        if log is not None:
            with log.open("a") as out:
                print(line, file=out)
    work = max(best, key=lambda one: one[0].work)
    us = max(best, key=lambda one: one[0].us)
    return {"runs": runs, "work": work, "us": us}


def main() -> int:
    from pathlib import Path

    parser = argparse.ArgumentParser(description="Search for the longest turn of the broker's loop.")
    parser.add_argument("--seconds", type=float, default=600.0, help="time of the search")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all sizes")
    parser.add_argument("--log", type=Path, help="file to which a line of each run is appended")
    args = parser.parse_args()
    found = search(args.seconds, args.seed, args.scale, args.log)
    for name in ("work", "us"):
        score, program = found[name]
        print(f"worst by {name}: {score.line()}")
        for step in program:
            print(f"    {step.kind}({step.n}, {step.shape}, {step.qos})")
    if found["work"][0].work > WORK_MAX:
        print(f"a turn took more than {WORK_MAX} units of work")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
