"""Measure the time from PUBLISH to a row of gold.

The setup is a broker, `mosq pipeline run` with its defaults, and some traffic. About once a second a client publishes a
message on a new topic; the delay ends when the view `topics` contains that topic. DuckDB reads the view ten times a
second.

    python -m perf.spark_delay [marks, one a second] [messages a second] [trigger]
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from mosq.pipeline import settings
from mosq.tools.bench.started import free_port
from perf.lock import bench_lock

TOPICS = 100
LOOK_S = 0.1
LATE_S = 120.0
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


def traffic(port: int, per_second: int, over: threading.Event) -> None:
    """Publish `per_second` messages a second until `over` is set."""
    client, n = Client(port), 0
    while not over.wait(0.1):
        for _ in range(per_second // 10):
            n += 1
            client.client.publish(f"site/{n % TOPICS}", b"%d" % n, 1)
    client.close()


class Seen(threading.Thread):
    """Record when each mark was seen first."""

    def __init__(self, views: Path) -> None:
        super().__init__(daemon=True)
        self.views = views
        self.at: dict[str, float] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.views.exists():
            time.sleep(LOOK_S)
        with duckdb.connect(config={"threads": 1}) as base:
            base.execute(self.views.read_text())
            while not self.over.wait(LOOK_S):
                rows = base.execute("SELECT topic FROM topics WHERE topic LIKE 'mark/%'").fetchall()
                now = time.monotonic()
                for (topic,) in rows:
                    self.at.setdefault(topic, now)


def measure(folder: Path, marks: int, per_second: int, trigger: str) -> list[float]:
    """Return the delays of all marks in seconds."""
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
        seen = Seen(found.tables / "views.sql")
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
        at = {}
        for i in range(marks):
            time.sleep(random.uniform(0.5, 1.5))
            at[f"mark/{i}"] = sent(f"mark/{i}")
        delays = [delay(topic, when) for topic, when in at.items()]
        seen.over.set()
        seen.join()
        client.close()
        return delays
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
        delays = sorted(measure(Path(folder), marks, per_second, trigger))
    p99 = delays[-(-99 * len(delays) // 100) - 1]
    print("| marks | messages a second | trigger | median | p99 | largest |\n|---|---|---|---|---|---|")
    print(
        f"| {marks} | {per_second} | {trigger} | {statistics.median(delays):.1f} s | {p99:.1f} s | {delays[-1]:.1f} s |"
    )


if __name__ == "__main__":
    main()
