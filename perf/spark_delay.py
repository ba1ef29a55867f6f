"""Measure the time from PUBLISH to a row of gold.

The setup is a broker, `mosq pipeline run` with its defaults, and some traffic. About once a second a client publishes a
message on a new topic; the delay ends when gold/traffic contains that topic. `deltalake` reads the table ten times a
second. The last column is the CPU time of the pipeline, its JVM and workers, after WARM_S seconds.

    python -m perf.spark_delay [marks, one a second] [messages a second] [trigger]

Without marks and messages (`0 0`) it measures the CPU time of an idle pipeline for IDLE_S seconds.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho
import pyarrow.compute as pc
from paho.mqtt.enums import CallbackAPIVersion

from mosq.pipeline import settings
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.tools.bench.started import free_port
from perf.lock import bench_lock
from perf.spark_cpu import cpu_s

TOPICS = 100
LOOK_S = 0.1
TICK_S = 0.1
LATE_S = 120.0
WARM_S = 30.0
IDLE_S = 30.0
BROKER = """listener {port} 127.0.0.1
allow_anonymous true
user root
persistence true
persistence_location {folder}/
stream all #
stream_events true
log_type error
"""
PIPELINE = """[pipeline]
journal = "mosquitto.db.store/streams"
trigger = "{trigger}"
[[silver]]
name = "numbers"
topic = "site/#"
format = "number"
"""


class Client:
    """Publish at QoS 1 and wait for each acknowledgement: then the message is in the journal."""

    def __init__(self, port: int) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        while True:
            try:
                self.client.connect("127.0.0.1", port)
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        self.client.loop_start()

    def publish(self, topic: str) -> None:
        self.client.publish(topic, b"21.5", 1).wait_for_publish(LATE_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def connected(port: int) -> socket.socket:
    """Connect to a broker that is starting."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))
        time.sleep(0.02)


def traffic(port: int, per_second: int, over: threading.Event) -> None:
    """Publish `per_second` messages a second at QoS 1 until `over` is set, on one connection.

    The packets are encoded by a template, because a client library would need more than a core for 10,000 a second.
    """
    with connected(port) as link:
        link.sendall(bytes.fromhex("100e00044d515454040200000002") + b"tr")
        n, began = 0, time.monotonic()
        while not over.wait(TICK_S):
            due = int((time.monotonic() - began) * per_second)
            link.sendall(b"".join(map(packet, range(n, due))))
            n = due
            while select.select([link], [], [], 0)[0]:  # CONNACK and PUBACKs
                if not link.recv(1 << 20):
                    sys.exit("the broker has closed the connection of the traffic")


def packet(n: int) -> bytes:
    """Return the n-th PUBLISH, at QoS 1, whose payload is a number of 12 digits [3.1.1 3.3]."""
    return b"\x32\x17\x00\x07site/%02d%s%012d" % (n % TOPICS, (n % 65535 + 1).to_bytes(2, "big"), n)


class Seen(threading.Thread):
    """Record when each mark was seen first in gold."""

    def __init__(self, found: settings.Settings) -> None:
        super().__init__(daemon=True)
        self.place = place_of(found)
        self.at: dict[str, float] = {}
        self.over = threading.Event()

    def run(self) -> None:
        table = None
        while not self.over.wait(LOOK_S):
            table = Table.open(self.place, "gold/traffic") if table is None else table.refresh()
            if table is not None:
                topics = table.read(columns=["topic"])["topic"]
                now = time.monotonic()
                for topic in pc.unique(topics.filter(pc.starts_with(topics, "mark/"))).to_pylist():
                    self.at.setdefault(topic, now)


def measure(folder: Path, marks: int, per_second: int, trigger: str) -> tuple[list[float], float]:
    """Return the delays of all marks in seconds, and the share of a core that the pipeline used while they came."""
    port = free_port()
    (folder / "mosq.conf").write_text(BROKER.format(port=port, folder=folder))
    (folder / "pipeline.toml").write_text(PIPELINE.format(trigger=trigger))
    processes = [subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(folder / "mosq.conf")])]
    over = threading.Event()
    background = threading.Thread(target=traffic, args=(port, per_second, over))
    background.start()
    try:
        client = Client(port)
        client.publish("site/0")
        found = settings.load(folder)
        processes.append(subprocess.Popen([sys.executable, "-m", "mosq", "pipeline", "run", "-s", str(folder)]))
        seen = Seen(found)
        seen.start()

        def sent(topic: str) -> float:
            at = time.monotonic()
            client.publish(topic)
            return at

        def delay(topic: str, at: float) -> float:
            while topic not in seen.at:
                if time.monotonic() > at + LATE_S or processes[1].poll() is not None:
                    sys.exit(f"{topic} is still missing after {time.monotonic() - at:.0f} s")
                time.sleep(LOOK_S)
            return seen.at[topic] - at

        delay("mark/first", sent("mark/first"))  # Spark has started, and its first batch is done
        time.sleep(WARM_S)
        at = {}
        cpu, start = cpu_s(processes[1].pid), time.monotonic()
        time.sleep(0 if marks else IDLE_S)
        for i in range(marks):
            time.sleep(random.uniform(0.5, 1.5))
            at[f"mark/{i}"] = sent(f"mark/{i}")
        delays = [delay(topic, when) for topic, when in at.items()]
        share = (cpu_s(processes[1].pid) - cpu) / (time.monotonic() - start)
        seen.over.set()
        seen.join()
        client.close()
        return delays, share
    finally:
        over.set()
        background.join()
        for process in reversed(processes):
            process.terminate()
            process.wait()


def main() -> None:
    marks, per_second = map(int, (*sys.argv[1:3], *("60", "500")[len(sys.argv[1:3]) :]))
    trigger = sys.argv[3] if len(sys.argv) > 3 else "5 seconds"
    with bench_lock(), tempfile.TemporaryDirectory() as folder:
        delays, share = measure(Path(folder), marks, per_second, trigger)
    if not delays:
        print(f"idle, trigger {trigger}: {share:.1%} of a core")
        return
    delays.sort()
    p99 = delays[-(-99 * len(delays) // 100) - 1]
    print("| marks | messages a second | trigger | median | p99 | largest | of a core |\n|---|---|---|---|---|---|---|")
    print(
        f"| {marks} | {per_second} | {trigger} | {statistics.median(delays):.1f} s | {p99:.1f} s | {delays[-1]:.1f} s"
        f" | {share:.1%} |"
    )


if __name__ == "__main__":
    main()
