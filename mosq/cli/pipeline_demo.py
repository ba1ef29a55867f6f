"""Run `make pipeline-demo`: a broker, simulated devices and the pipeline for a minute, then the report.

Everything lies in one folder, which stays.
"""

import contextlib
import itertools
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mosq.cli.commands import main as mosq
from mosq.cli.pipeline.options import guarded
from mosq.pipeline import MosqPipelineError, settings, weather
from mosq.pipeline.lake.lock import Lock
from mosq.pipeline.runs import jobs, status
from mosq.pipeline.runs.fleet import AWAY, BUSY, PAUSED, SILENT, Fleet
from mosq.pipeline.runs.live import Live
from mosq.tools.bench.started import free_port
from mosq.tools.tied import tied

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

START_S = 30.0
OURS = ".mosq-pipeline-demo"  # marks a folder that may get another name
BROKER = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
max_queued_messages 300
stream telemetry {topics} shards 2
stream_events true
log_dest file {folder}/broker.log
{user}"""
FLEET_QUESTION = "SELECT topic, sum(messages) AS messages FROM topics GROUP BY topic ORDER BY 2 DESC, 1 LIMIT 5"
FLEET_ABOUT = f"""
All of this is meant to be. The sessions of archive-0 to archive-{AWAY - 1} are offline from the first second on.
The broker keeps 300 messages for each (max_queued_messages) and drops the others. The audit counts each of them, and
adds up. Some payloads are bad, so they are in the quarantine. device-{SILENT:03} falls silent, device-{PAUSED:03}
pauses, device-{BUSY:03} sends more for a while, and some devices lose their connection.
docs/pipeline-cookbook.md has questions about all of it."""
PIPELINE = """\
[pipeline]
journal = "broker/mosquitto.db.store/streams"
node = "demo"
window = "5 seconds"
prefix_levels = 2
master = "{master}"

{silver}
[spark]
"spark.sql.shuffle.partitions" = "2"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""
FLEET_SILVER = """\
[[silver]]
name = "telemetry"
topic = "site/+/+/telemetry"
format = "json"
schema = "temperature DOUBLE, unit STRING, n BIGINT"
values = ["temperature"]

[[silver]]
name = "power"
topic = "site/+/+/power"
format = "number"
values = ["value"]
"""
# a cluster of this machine: a master and two workers
CLUSTER = """\
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.executor.memory" = "512m"
"""


@dataclass(frozen=True)
class Scene:
    """Hold what a demo shows: its senders, their topics, and the question at the end."""

    topics: str
    silver: str
    about: str  # what the numbers of the status mean
    question: str
    begin: "Callable[[int], Fleet | weather.Weather]"  # gets the port
    what: str


def _broker(folder: Path, port: int, topics: str) -> "subprocess.Popen[bytes]":
    import os
    import socket

    home = folder / "broker"
    home.mkdir()
    user = "user root\n" if os.geteuid() == 0 else ""  # otherwise it could not write to the folder
    (home / "mosquitto.conf").write_text(BROKER.format(port=port, folder=home, user=user, topics=topics))
    process = subprocess.Popen(
        tied([sys.executable, "-m", "mosq", "-c", str(home / "mosquitto.conf")]),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends the sending; the broker goes on until its records are read
    )
    until = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                raise MosqPipelineError(f"the broker did not start; see {home}/broker.log") from None
            time.sleep(0.02)


def _while_the_fleet_sends(spark: Any, found: settings.Settings, live: Live, lock: Lock, seconds: int) -> None:
    ended = threading.Event()
    with jobs.stopped_by_signals() as stop:

        def end(number: int, frame: "FrameType | None") -> None:
            ended.set()
            stop.set()

        signal.signal(signal.SIGTERM, end)
        timer = threading.Timer(seconds, stop.set)
        timer.start()
        try:
            jobs.run(spark, found, log=live.log, report=live.report, stop=stop, lock=lock)
        finally:
            timer.cancel()
    if ended.is_set():
        _end()


def _end(*signalled: object) -> None:
    """End the demo, its broker and its cluster because of SIGTERM. SIGINT ends only the sending: the report follows."""
    raise SystemExit(128 + signal.SIGTERM)


@click.command()
@click.option("--seconds", default=60, show_default=True, type=click.IntRange(1, 86_400))
@click.option("--devices", default=200, show_default=True, type=click.IntRange(1, 5000))
@click.option("--data", default="fleet", show_default=True, type=click.Choice(("fleet", "weather")))
@click.option("--dir", "where", default="build/pipeline-demo", show_default=True, type=click.Path())
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option("--cluster", is_flag=True, help="Start a standalone cluster with two workers here, and use it.")
@guarded
def demo(seconds: int, devices: int, data: str, where: str, master: str, cluster: bool) -> int:
    """Run broker, fleet, pipeline and report.

    DATA=weather replays real measurements, which the package vega_datasets has, instead of a simulated fleet.
    """
    from mosq.pipeline.cluster.standalone import Standalone

    signal.signal(signal.SIGTERM, _end)
    scene = _scene(data, seconds, devices)
    folder = _made(where)
    with Standalone(folder / "cluster") if cluster else contextlib.nullcontext() as started:
        settings_text = PIPELINE.replace("{master}", master if started is None else started.url)
        settings_text = settings_text.replace("{silver}", scene.silver)
        (folder / "pipeline.toml").write_text(settings_text + (CLUSTER if cluster else ""))
        return _shown(folder, seconds, scene)


def _scene(data: str, seconds: int, devices: int) -> Scene:
    if data == "weather":
        n = len(weather.messages())
        return Scene(
            "weather/#",
            weather.SILVER,
            weather.ABOUT,
            weather.QUESTION,
            lambda port: weather.Weather("127.0.0.1", port, seconds),
            f"{n:,} measurements of the weather in Seattle and San Francisco",
        )
    return Scene(
        "site/#",
        FLEET_SILVER,
        FLEET_ABOUT,
        FLEET_QUESTION,
        lambda port: Fleet("127.0.0.1", port, devices, seconds=seconds),
        f"{devices} devices",
    )


def _made(where: str) -> Path:
    """Return the empty folder of the demo; an earlier demo there gets another name."""
    folder = Path(where).absolute()
    if folder.exists():
        if not (folder / OURS).exists():
            raise MosqPipelineError(f"{folder} exists, and is not from an earlier demo: name another folder (DIR=...)")
        n = next(n for n in itertools.count(1) if not folder.with_name(f"{folder.name}-{n}").exists())
        kept = folder.rename(folder.with_name(f"{folder.name}-{n}"))
        click.echo(f"the demo of before is now {kept}; remove it if you do not need it", err=True)
    folder.mkdir(parents=True)
    (folder / OURS).touch()
    return folder


def _shown(folder: Path, seconds: int, scene: Scene) -> int:
    from mosq.pipeline.session import spark_session

    found = settings.load(folder)
    port = free_port()
    broker = _broker(folder, port, scene.topics)
    live = Live(found)
    try:
        live.log(f"broker: port {port}, {scene.what}; tables: {found.tables}")
        fleet = scene.begin(port)
        fleet.start()
        with jobs.alone(found, live.log) as lock:
            live.log("starting Spark, which takes some seconds")
            spark = spark_session("mosq pipeline demo", master=found.master, conf=found.spark, pass_fds=(lock.fd,))
            jobs.check_cluster(spark, found, live.log)
            _while_the_fleet_sends(spark, found, live, lock, seconds)
            fleet.end()
            live.log(f"{fleet.sent:,} measurements were sent; the broker stops, the remaining records are read")
            broker.terminate()
            broker.wait()
            jobs.run(spark, found, once=True, log=live.log, report=live.report, lock=lock)
    finally:
        live.end()
        broker.kill()
        broker.wait()
    click.echo(status.text(status.status(found, with_audit=True)))
    click.echo(scene.about)
    click.echo(f"\nmosq pipeline sql -s {found.file} \"{scene.question}\"\n")
    click.echo("\n".join(_answered(spark, found, scene.question)))
    return mosq(["pipeline", "report", "-s", str(found.file), "--out", str(folder / "report")])


def _answered(spark: Any, found: settings.Settings, question: str) -> list[str]:
    """Return the answer to a question in SQL as lines. Spark gives it: DuckDB may not be installed."""
    from mosq.cli.pipeline.sql import as_table
    from mosq.pipeline import frames

    frames.register(spark, found)
    answer = spark.sql(question).toArrow()
    rows = list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
    return as_table(answer.column_names, rows)


if __name__ == "__main__":
    sys.exit(demo(standalone_mode=False))
