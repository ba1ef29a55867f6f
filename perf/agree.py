"""Compare the counts of `mosq bench` and the instrument: both put the same loads on fresh brokers, in turns.

    python -m perf.agree                        # print the table; status 1 if a count differs by more than 1 %
    python -m perf.agree --scale 10             # with ten times the messages
    python -m perf.agree --relays 5             # instead: CPU per message of both relays under mqload's load

mqload is the program that MQLOAD names, or is built from $MOSQ_BENCH/mqload.c (../shared/bench by default). Counted
runs must agree exactly, except `match`, where topics are drawn; at a fixed rate both publish for the same time. The
costs beside the counts are from one run each: CPU of the broker and of the generator, in us per message.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.run import measure
from mosq.tools.bench.spec import Spec
from mosq.tools.bench.started import broker, free_port, relay
from perf.lock import bench_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = 0.01
SOURCE = Path(os.environ.get("MOSQ_BENCH", Path(__file__).parents[2] / "shared" / "bench")) / "mqload.c"


@dataclass(frozen=True)
class Load:
    """Hold the same load as options of both programs."""

    title: str
    ours: dict[str, Any]
    theirs: list[str]
    messages: int = 0           # 0: limited by time


LOADS = (
    Load("fan-in QoS 0, 50 to 1", {"scenario": "fan-in", "publishers": 50},
         ["fanin", "--pubs", "50", "--subs", "1"], 500_000),
    Load("fan-in QoS 1, 50 to 1", {"scenario": "fan-in", "publishers": 50, "qos": 1},
         ["fanin", "--pubs", "50", "--subs", "1", "--qos", "1"], 200_000),
    Load("fan-out QoS 0, 1 to 1000", {"scenario": "fan-out", "subscribers": 1000, "window": 20_000},
         ["fanout", "--pubs", "1", "--subs", "1000", "--window", "20000"], 1000),
    Load("100 pairs QoS 0", {"scenario": "pairs", "publishers": 100}, ["pairs", "--pubs", "100"], 500_000),
    Load("100 pairs QoS 1", {"scenario": "pairs", "publishers": 100, "qos": 1},
         ["pairs", "--pubs", "100", "--qos", "1"], 200_000),
    Load("100 pairs QoS 2", {"scenario": "pairs", "publishers": 100, "qos": 2},
         ["pairs", "--pubs", "100", "--qos", "2"], 200_000),
    Load("match, 100,000 filters", {"scenario": "match", "publishers": 10, "topics": 20_000},
         ["match", "--pubs", "10", "--clients", "100", "--nsubs", "100000", "--inflight", "20"], 200_000),
    Load("offline, 100 x 500", {"scenario": "offline", "publishers": 10, "qos": 1},
         ["offline", "--pubs", "10", "--clients", "100", "--qos", "1"], 500),
    Load("retained, 100,000", {"scenario": "retained", "publishers": 10, "qos": 1},
         ["retain", "--pubs", "10", "--qos", "1", "--messages", "100000"]),
    Load("100 pairs QoS 0 at 20,000/s for 2 s",
         {"scenario": "pairs", "publishers": 100, "rate": 20_000.0, "seconds": 2.0, "warmup": 0.0},
         ["pairs", "--pubs", "100", "--rate", "20000", "--window", "0", "--seconds", "2", "--warmup", "0"]),
    Load("100 pairs QoS 1 at 10,000/s for 2 s",
         {"scenario": "pairs", "publishers": 100, "qos": 1, "rate": 10_000.0, "seconds": 2.0, "warmup": 0.0},
         ["pairs", "--pubs", "100", "--qos", "1", "--rate", "10000", "--window", "0", "--seconds", "2",
          "--warmup", "0"]),
)


# loads of mqload for both relays
RELAYED = (
    ("fan-in QoS 0, 50 to 1", "fanin --pubs 50 --subs 1"),
    ("fan-out QoS 0, 1 to 1000", "fanout --subs 1000 --window 20000"),
    ("100 pairs QoS 0", "pairs --pubs 100"), ("100 pairs QoS 1", "pairs --pubs 100 --qos 1"),
    ("100 pairs QoS 2", "pairs --pubs 100 --qos 2"),
    ("100 pairs QoS 0, one message per send", "pairs --pubs 100 --burst 1 --window 2000"),
    ("100 pairs QoS 0 at 20,000/s", "pairs --pubs 100 --rate 20000 --window 0"),
    ("1 MB payloads", "fanin --pubs 10 --subs 1 --size 1000000 --window 10 --burst 1"),
)
SECONDS = ("--seconds", "1", "--warmup", "0.3")


@dataclass(frozen=True)
class Row:
    """Hold the figures of one phase."""

    name: str
    published: int
    delivered: int
    wrong: int                  # lost, doubled, out of order
    broker_us: float
    generator_us: float


def ours(load: Load, scale: float) -> list[Row]:
    """Run a load with `mosq bench` against a fresh broker."""
    with broker() as where:
        given: dict[str, Any] = {**load.ours, **where}
        if load.messages:
            given["messages"] = max(1, int(load.messages * scale))
        result = measure(Spec(**given), lambda what, counts: None)
    if not result.complete:
        raise SystemExit(f"{load.title}: {result.why}")
    return [Row(phase.name, phase.published, phase.delivered, phase.lost + phase.duplicates + phase.out_of_order,
                phase.broker["cpu_us_per"] or 0, phase.generator["cpu_us_per"]) for phase in result.phases]


def theirs(load: Load, scale: float, mqload: Path) -> list[Row]:
    """Run a load with the instrument against a fresh broker."""
    with broker() as where:
        command = [str(mqload), *load.theirs, "--port", str(where["port"]), "--size", "64",
                   "--broker-pid", str(where["broker_pid"])]
        if load.messages:
            command += ["--messages", str(max(1, int(load.messages * scale)))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{load.title}: {done.stderr}")
    phases = [json.loads(line) for line in done.stdout.splitlines()]
    return [Row(phase["phase"], phase["published"], phase["delivered"], phase["lost"] + phase["dup"] + phase["ooo"],
                phase["cpu_us_per_msg"], phase["loadgen_us_per_msg"]) for phase in phases]


@contextlib.contextmanager
def their_relay(mqload: Path) -> Iterator[dict[str, Any]]:
    """Run the relay of mqload; yield its port and process."""
    port = free_port()
    process = subprocess.Popen(["taskset", "-c", "0", str(mqload), "relay", "--port", str(port)])
    try:
        while not listens(port):
            time.sleep(0.01)
        yield {"port": port, "broker_pid": process.pid}
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def relays(mqload: Path, rounds: int) -> None:
    """Print the CPU per message of both relays, which take turns on core 0; the load has core 1."""
    print("| load | relay of mosq bench, us | relay of mqload, us | ratio of the medians; of the least |")
    print("|---|---|---|---|")
    for title, load in RELAYED:
        costs: tuple[list[float], list[float]] = ([], [])
        for turn in range(2 * rounds):
            which = (turn + turn // 2) % 2
            with their_relay(mqload) if which else relay(0) as where:
                command = ["taskset", "-c", "1", str(mqload), *load.split(), *SECONDS, "--port", str(where["port"]),
                           "--broker-pid", str(where["broker_pid"])]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(f"{title}: {done.stderr}")
            costs[which].append(json.loads(done.stdout.splitlines()[0])["cpu_us_per_msg"])
        ours, theirs = costs
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"| {title} | {mine:.2f} ({min(ours):.2f} to {max(ours):.2f}) "
              f"| {other:.2f} ({min(theirs):.2f} to {max(theirs):.2f}) "
              f"| {mine / other:.2f}; {min(ours) / min(theirs):.2f} |", flush=True)


def apart(one: int, other: int) -> float:
    """Return the difference of two counts as a share of the larger."""
    return abs(one - other) / max(one, other, 1)


def program(folder: Path) -> Path:
    """Return the path of mqload; build it into the folder if MQLOAD is not set."""
    if given := os.environ.get("MQLOAD"):
        return Path(given)
    if not SOURCE.exists():
        raise SystemExit(f"there is no mqload: MQLOAD is not set, and {SOURCE.name} is not in MOSQ_BENCH")
    built = folder / "mqload"
    subprocess.run(["cc", "-O2", "-o", str(built), str(SOURCE), "-lm"], check=True)
    return built


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.agree", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the messages of counted runs")
    parser.add_argument("--relays", type=int, default=0, metavar="ROUNDS", help="compare the relays, in so many rounds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, bench_lock():
        mqload = program(Path(folder))
        if args.relays:
            relays(mqload, args.relays)
            return 0
        return counts(mqload, args.scale)


def counts(mqload: Path, scale: float) -> int:
    """Print the counts of both load generators; return the exit status."""
    worst = 0.0
    wrong = 0
    print("| load, phase | published: mosq bench, mqload | delivered | apart | broker us | generator us |")
    print("|---|---|---|---|---|---|")
    for load in LOADS:
        for a, b in zip(ours(load, scale), theirs(load, scale, mqload), strict=True):
            far = max(apart(a.published, b.published), apart(a.delivered, b.delivered))
            worst, wrong = max(worst, far), wrong + a.wrong + b.wrong
            print(f"| {load.title}: {a.name} | {a.published:,}, {b.published:,} | {a.delivered:,}, {b.delivered:,} "
                  f"| {far:.2%} | {a.broker_us:.2f}, {b.broker_us:.2f} "
                  f"| {a.generator_us:.2f}, {b.generator_us:.2f} |", flush=True)
    print(f"\nat most {worst:.2%} apart; lost, doubled or out of order: {wrong}", flush=True)
    return 1 if worst > WITHIN or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
