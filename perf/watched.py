"""Measure what a broker costs more while it is watched: metrics, a page of the dashboard, sketches and histograms.

    python -m perf.watched [--segments 16] [--seconds 2] [--loads "100 pairs QoS 0; 100 pairs QoS 1"] [--json FILE]
    python -m perf.watched --instructions [--messages 20000]
    python -m perf.watched --requests

Two brokers share a core and serve the same load without a break. One is off (no HTTP listener, `observe_messages 0`),
the other is on (metrics, dashboard, `observe_messages 64`; a process scrapes `/metrics` each second, and reads the feed
and what the overview of the page asks for). After each segment they change roles, by SIGHUP. So both figures are from
the same seconds, and a machine that becomes slower makes both slower. The relay serves the load alone, before and
after.

CPU is that of the broker's process, and of its loop alone, for each delivered message. A change is the geometric mean
of the ratios on / off of two segments with exchanged roles. The median of the changes is printed, with the middle half.
With --instructions, callgrind counts the instructions of the process for each message, as the difference of two runs
without HTTP, with `observe_messages` 0 and 64. With --requests, the CPU of one scrape and of other requests is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.run import measure
from mosq.tools.bench.spec import Spec
from mosq.tools.bench.started import CONFIG, free_port, relay
from mosq.tools.bench.usage import used

if TYPE_CHECKING:
    from collections.abc import Iterator

WATCHED = """observe_messages 64
listener {web} 127.0.0.1
protocol http_api
http_metrics true
http_dashboard true
"""
LOADS: dict[str, dict[str, Any]] = {
    "100 pairs QoS 0": {"publishers": 100},
    "100 pairs QoS 1": {"publishers": 100, "qos": 1},
    "100 pairs QoS 0 at 20,000/s": {"publishers": 100, "rate": 20_000},
    "100 pairs QoS 1 at 20,000/s": {"publishers": 100, "qos": 1, "rate": 20_000},
}
SETTLE_S = 1.5                  # after a reload, until a segment begins: for the viewer's start, too
SPARE_S = 0.3                   # between two segments
START_S = 15.0
REQUESTS, REQUESTS_EVERY_S = 10, 0.3
LATENCY_EVERY_S = 5             # the overview reads the histograms
FREE = sorted(os.sched_getaffinity(0))
BROKER_CORE, OTHER_CORE = (FREE[0], FREE[1]) if FREE[1:] else (None, None)      # not pinned on one core


class Broker:
    """A broker whose configuration changes between off and on."""

    def __init__(self, folder: Path) -> None:
        self.port, self.web = free_port(), free_port()
        self._file = folder / "mosq.conf"
        self._viewer: subprocess.Popen[bytes] | None = None
        self._write("")
        self.process = subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(self._file)],
                                        stdin=subprocess.DEVNULL)
        wait_for(self.port)
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            pin(int(thread.name), BROKER_CORE)

    def _write(self, more: str) -> None:
        user = "user root\n" if os.geteuid() == 0 else ""
        self._file.write_text(f"{user}sys_interval 0\n{CONFIG.format(port=self.port)}{more}")

    def become(self, watched: bool) -> None:
        """Change the configuration, and begin or end to look."""
        self.end_viewer()
        self._write(WATCHED.format(web=self.web) if watched else "")
        self.process.send_signal(signal.SIGHUP)
        if watched:
            self._viewer = subprocess.Popen([sys.executable, "-m", "perf.watched", "--view", str(self.web)],
                                            stdout=subprocess.PIPE)

    def wait_for_viewer(self) -> None:
        """Wait for the line of a viewer that has read its first metrics."""
        if self._viewer is not None and self._viewer.stdout is not None and not self._viewer.stdout.readline():
            raise SystemExit("the viewer has ended")

    def end_viewer(self) -> None:
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            viewer.terminate()
            viewer.wait()

    def close(self) -> None:
        self.end_viewer()
        self.process.terminate()
        self.process.wait()


def pin(thread: int, core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(thread, {core})


def wait_for(port: int) -> None:
    end_s = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end_s:
                raise SystemExit(f"nothing listens on port {port}") from None
            time.sleep(.02)


def view(web: int) -> None:
    """Scrape each second, and read what an open page reads; print a line after the first scrape."""
    wait_for(web)
    ended = threading.Event()

    def page() -> None:
        feed = http.client.HTTPConnection("127.0.0.1", web, timeout=30)
        with contextlib.suppress(OSError, http.client.HTTPException):
            feed.request("GET", "/dashboard/api/feed")
            answer = feed.getresponse()
            while answer.read1(65536):
                pass

    reader = threading.Thread(target=page, daemon=True)
    reader.start()
    due_s = time.monotonic()
    for n in range(3600):
        if b"mosq_publish_received_total" not in read(web, "/metrics"):
            raise SystemExit("no metrics")
        if not reader.is_alive():
            raise SystemExit("the feed of the page has ended")
        if n % LATENCY_EVERY_S == 1:
            read(web, "/dashboard/api/latency")
        if n == 0:
            print("reads", flush=True)
        due_s += 1
        ended.wait(max(0.0, due_s - time.monotonic()))


def read(web: int, path: str) -> bytes:
    """Return the body of a page. Raises SystemExit if the broker does not give it."""
    connection = http.client.HTTPConnection("127.0.0.1", web, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{path}: status {answer.status}")
        return answer.read()


class Segment:
    """Holds what one time in one configuration costs."""

    def __init__(self, pid: int, delivered: int) -> None:
        self._pid, self._delivered = pid, delivered
        self._all_s, self._threads = used(pid).cpu_s, threads_s(pid)
        self.begun_s = time.monotonic()

    def end(self, delivered: int) -> tuple[float, float]:
        """Return the CPU of the process and of its busiest thread, the loop, in microseconds for each message."""
        all_s, now = used(self._pid).cpu_s - self._all_s, threads_s(self._pid)
        loop_s = max(value - self._threads.get(thread, 0.0) for thread, value in now.items())
        n = max(1, delivered - self._delivered)
        return all_s / n * 1e6, loop_s / n * 1e6


def threads_s(pid: int) -> dict[str, float]:
    """Return the CPU of each thread."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
    return found


class Turns:
    """Changes the configuration of a broker while a load runs, and measures each segment. Called by its generator ten
    times a second."""

    def __init__(self, broker: Broker, n: int, seconds: float, first: bool, begin_s: float) -> None:
        """`first`: whether the broker is on in the first segment. `begin_s`: when the changes begin."""
        self.broker, self.n, self.seconds, self.first, self.begin_s = broker, n, seconds, first, begin_s
        self.found: list[tuple[float, float]] = []      # microseconds of the process, and of its loop
        self._segment: Segment | None = None
        self._changed = 0                               # segments for which the configuration was changed

    def __call__(self, what: str, counts: dict[str, int]) -> None:
        i, now_s = len(self.found), time.monotonic()
        if i >= self.n or not counts["received"]:
            return
        change_s = self.begin_s + i * (SETTLE_S + self.seconds + SPARE_S)
        if self._changed == i and now_s >= change_s:
            self.broker.become(self.is_on(i))
            self._changed += 1
        elif self._segment is None and self._changed > i and now_s >= change_s + SETTLE_S:
            self.broker.wait_for_viewer()
            self._segment = Segment(self.broker.process.pid, counts["received"])
        elif self._segment is not None and now_s >= self._segment.begun_s + self.seconds:
            self.found.append(self._segment.end(counts["received"]))
            self._segment = None

    def is_on(self, i: int) -> bool:
        """Return whether the broker is on in a segment."""
        return self.first == (i % 2 == 0)


def changes(one: list[tuple[float, float]], other: list[tuple[float, float]], column: int) -> list[float]:
    """Return by how many percent the broker that is on costs more, for each two segments with exchanged roles. `one` is
    on in the first segment."""
    ratios = [(first[column] / second[column]) ** (1 if i % 2 == 0 else -1)
              for i, (first, second) in enumerate(zip(one, other, strict=True))]
    return [100 * (math.sqrt(ratios[i] * ratios[i + 1]) - 1) for i in range(0, len(ratios) - 1, 2)]


def both(load: dict[str, Any], n: int, seconds: float) -> list[list[tuple[float, float]]]:
    """Return the segments of two brokers that serve a load at the same time; the first is on in the first segment."""
    whole_s = n * (seconds + SETTLE_S + SPARE_S) + 3
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mosq-watched-"))) for _ in "12"]
        brokers = [stack.enter_context(contextlib.closing(Broker(folder))) for folder in folders]
        begin_s = time.monotonic() + 1.5
        turns = [Turns(broker, n, seconds, broker is brokers[0], begin_s) for broker in brokers]
        with ThreadPoolExecutor(2) as pool:     # a generator does not hold the GIL
            specs = [Spec("pairs", port=broker.port, seconds=whole_s, **load) for broker in brokers]
            results = list(pool.map(measure, specs, turns))
    for result, turn in zip(results, turns, strict=True):
        if not result.complete or result.phases[-1].lost or len(turn.found) < n:
            lost = result.phases[-1].lost if result.phases else 0
            raise SystemExit(result.why or f"{lost} messages were lost, {n - len(turn.found)} segments are missing")
    return [turn.found for turn in turns]


def of_relay(load: dict[str, Any], seconds: float) -> float:
    """Return the CPU of the relay for each message, in microseconds."""
    with relay(BROKER_CORE) as place:
        options: dict[str, Any] = {**place, **load}
        result = measure(Spec("pairs", seconds=seconds, **options), lambda what, counts: None)
    found = result.phases[-1].broker["cpu_us_per"]
    assert found is not None
    return found


def compare(given: argparse.Namespace) -> list[dict[str, object]]:
    """Print a line for each load."""
    rows = []
    pin(0, OTHER_CORE)          # the generator and the viewer
    print("| load | relay, us | off, us | on, us | process | loop alone |\n" + "| --- " * 6 + "|", flush=True)
    for name in given.loads:
        load = LOADS[name]
        before = of_relay(load, given.seconds)
        found = both(load, given.segments, given.seconds)
        base = statistics.mean((before, of_relay(load, given.seconds)))
        on = statistics.median(found[i % 2][i][0] for i in range(given.segments))
        off = statistics.median(found[1 - i % 2][i][0] for i in range(given.segments))
        more = [changes(found[0], found[1], column) for column in (0, 1)]
        texts = [f"{statistics.median(some):+.1f} % ({quartiles(some)})" for some in more]
        print(f"| {name} | {base:.2f} | {off / base:.2f} ({off:.2f}) | {on / base:.2f} ({on:.2f}) | {texts[0]} | "
              f"{texts[1]} |", flush=True)
        rows.append({"load": name, "relay_us": base, "segments": found, "process_percent": more[0],
                     "loop_percent": more[1]})
    return rows


def quartiles(values: list[float]) -> str:
    """Return the middle half of the values."""
    if len(values) < 2:
        return "one pair"
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return f"{first:+.1f} to {third:+.1f}"


# ---------------------------------------------------------------- requests

def requests() -> list[dict[str, object]]:
    """Print what one request costs the process, and the loop alone, of a broker without traffic."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="mosq-watched-") as name, contextlib.closing(Broker(Path(name))) as broker:
        pid = broker.process.pid
        broker.become(True)
        broker.wait_for_viewer()
        broker.end_viewer()
        before = threads_s(pid)
        measure(Spec("pairs", port=broker.port, rate=5000, seconds=1), lambda what, counts: None)
        loop = max(before, key=lambda thread: threads_s(pid)[thread] - before[thread])
        for path in ("/metrics", "/dashboard/api/latency", "/health"):
            before = threads_s(pid)
            for _ in range(REQUESTS):
                read(broker.web, path)
                time.sleep(REQUESTS_EVERY_S)
            after = threads_s(pid)
            all_s = sum(value - before.get(thread, 0.0) for thread, value in after.items())
            all_ms, loop_ms = (1e3 * value / REQUESTS for value in (all_s, after[loop] - before[loop]))
            print(f"{path}: {all_ms:.2f} ms, of it the loop {loop_ms:.2f} ms", flush=True)
            rows.append({"path": path, "ms": all_ms, "loop_ms": loop_ms})
    return rows


# ---------------------------------------------------------------- instructions

@contextlib.contextmanager
def counted(folder: Path, period: int) -> Iterator[tuple[int, Path]]:
    """Run a broker under callgrind; yield its port and the file of the counts, which is there after the block."""
    port, out = free_port(), folder / "counts"
    user = "user root\n" if os.geteuid() == 0 else ""
    file = folder / "mosq.conf"
    file.write_text(f"{user}sys_interval 0\nobserve_messages {period}\n" + CONFIG.format(port=port))
    process = subprocess.Popen(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-m",
                                "mosq", "-c", str(file)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_slow(port)
        yield port, out
    finally:
        process.terminate()
        process.wait()


def wait_for_slow(port: int) -> None:
    for _ in range(8):
        with contextlib.suppress(SystemExit):
            wait_for(port)
            return
    raise SystemExit("the broker does not start under valgrind")


def instructions(period: int, qos: int, messages: int) -> int:
    """Return the instructions of a broker's life with so many messages."""
    with tempfile.TemporaryDirectory(prefix="mosq-watched-") as name:
        with counted(Path(name), period) as (port, out):
            spec = Spec("pairs", port=port, qos=qos, publishers=10, messages=messages, stall=60.0)
            result = measure(spec, lambda what, counts: None)
        if not result.complete:
            raise SystemExit(result.why)
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])


def count(given: argparse.Namespace) -> list[dict[str, object]]:
    """Print the instructions for each message."""
    rows = []
    print("| | `observe_messages 0` | `observe_messages 64` | change |\n| --- | --- | --- | --- |", flush=True)
    for qos in (0, 1):
        n, per = given.messages, {}
        for period in (0, 64):
            per[period] = (instructions(period, qos, 2 * n) - instructions(period, qos, n)) / n
        print(f"| QoS {qos} | {per[0]:,.0f} | {per[64]:,.0f} | {100 * (per[64] / per[0] - 1):+.1f} % |", flush=True)
        rows.append({"qos": qos, **{f"period_{period}": value for period, value in per.items()}})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=16, help="for each load; an even number")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--loads", type=lambda text: [one.strip() for one in text.split(";")], default=list(LOADS),
                        help="separated by ;")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--view", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.view:
        view(given.view)
        return
    if given.segments < 2 or given.segments % 2:
        parser.error("--segments: expected an even number")
    if unknown := set(given.loads) - set(LOADS):
        parser.error(f"--loads: expected {'; '.join(LOADS)}; not {', '.join(unknown)}")
    rows = count(given) if given.instructions else requests() if given.requests else compare(given)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
