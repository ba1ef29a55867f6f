"""Kill the pipeline's programs at random moments, and compare journal and tables at the end.

    dev/pipeline-kills [--kills 20] [--seconds N] [--sets 1] [--seed N] [--report FILE]

A set is a broker with a journal, a publisher, `mosq pipeline run`, and a program that compacts all the time. Before each kill the run must have
finished two more batches. After the last kill of a set `run --once` reads what is left. Then: an acknowledged message is in the journal once; each
record of the journal is in bronze once; silver, quarantine and gold add up to it; `mosq pipeline verify` finds nothing. --report appends a line of
JSON for each set; --summary FILE prints the sums of such lines. A set of the same seed has the same kills; their moments depend on the machine too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from mosq.journal import Stream
from mosq.pipeline import frames, settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.runs import progress, verify
from tests.durable.test_restart import Kept
from tests.pipeline.processes import ROOT, Killed, signalled
from tests.streams.journalled import folder, keeping
from tests.streams.test_kill import WINDOW, Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

STREAMS = {"all": 2, "events": 1}       # number of shards
BROKER = keeping("stream all # shards 2", "stream_events true", "max_inflight_messages 0")
MESSAGE, START = 1, 11
NO_NUMBERS = "load/49"                  # the payloads of one topic in ten go to the quarantine
BOUND_S = 300.0                         # nothing that is waited for takes so long
SETTINGS = """
[pipeline]
journal = "{journal}"
trigger = "100 ms"
batch_rows = 10000
master = "local[2]"
[spark]
"spark.sql.shuffle.partitions" = "1"
"spark.local.dir" = "{local}"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
[[silver]]
name = "numbers"
topic = "{no_numbers}"
format = "number"
[[silver]]
name = "texts"
topic = "load/#"
format = "csv"
schema = "said STRING"
"""


class Load(threading.Thread):
    """Publish to a broker, and kill and start the broker on request."""

    def __init__(self, broker: Kept, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.broker, self.dice = broker, dice
        self.sender = Sender(broker, "load", dice)
        self.kill, self.over = threading.Event(), threading.Event()
        self.kills = 0

    def run(self) -> None:
        self.sender.connect()
        while self.kill.is_set() or not self.over.is_set():
            self.sender.fill()
            for _ in range(self.dice.randrange(1, WINDOW)):
                self.sender.take()
            if self.kill.is_set():
                self.broker.die()
                while self.sender.take():
                    pass
                self.broker.start()
                self.sender.connect()
                self.kills += 1
                self.kill.clear()
            time.sleep(0.1)         # some hundred messages a second: this is not about speed
        while self.sender.open:
            self.sender.take()


def until(condition: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def wait_for_batches(driver: Killed, found: settings.Settings, more: int) -> None:
    """Wait until so many more batches are done: then the driver is at work."""
    had = progress.after(found)["batch"]

    def done() -> bool:
        assert driver.alive(), f"the driver has ended by itself: {driver.stderr_text()}"
        return bool(progress.after(found)["batch"] >= had + more)

    until(done, lambda: f"no batch for {BOUND_S:.0f} s: {driver.stderr_text()}")


class Round:
    """Hold the programs of one set."""

    def __init__(self, broker: Kept, found: settings.Settings, dice: random.Random) -> None:
        self.broker, self.found, self.dice = broker, found, dice
        self.load = Load(broker, random.Random(dice.random()))
        self.driver = Killed("mosq", "pipeline", "run", "--follow", "-s", found.file)
        self.compacting = Killed("tests.pipeline.processes", "compacting", found.file)
        self.kills: Counter[str] = Counter()

    def __enter__(self) -> Round:
        self.load.start()
        self.driver.start()
        self.compacting.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.load.over.set()
        self.load.join()
        self.driver.close()
        self.compacting.close()

    def work(self) -> None:
        wait_for_batches(self.driver, self.found, 2)

    def kill(self, what: str) -> None:
        """Kill one of VICTIMS at a random moment, and start again what has ended."""
        self.work()
        time.sleep(self.dice.random())
        VICTIMS[what](self)
        self.kills[what] += 1
        if not self.driver.alive():
            self.driver.start()
        if not self.compacting.alive():
            self.compacting.start()

    def all_of_the_run(self) -> None:
        self.driver.kill()

    def driver_alone(self) -> None:
        self.driver.kill_alone()

    def stopped_orphans(self) -> None:
        """Kill the driver while its JVM and workers are stopped; they go on beside the next run, and end."""
        pids = self.driver.orphan()
        said = "waiting for the end of Spark's JVM"
        self.driver.start()

        def waits() -> bool:
            assert self.driver.alive(), self.driver.stderr_text()
            return said in self.driver.stderr_text()

        try:
            until(waits, self.driver.stderr_text)
            time.sleep(self.dice.random())
        finally:
            for pid in pids:
                signalled(pid, signal.SIGCONT)

    def jvm(self) -> None:
        """Kill the JVM; the run must end with a message, as nothing can be done without it."""
        assert self.driver.kill_part("java")
        until(lambda: not self.driver.alive(), lambda: "the run goes on without its JVM")
        self.ended_with_advice()

    def worker(self) -> None:
        """Kill a Python worker; the run goes on, or ends with a message."""
        until(lambda: self.driver.kill_part("python", self.dice), lambda: "there is no Python worker")
        had = progress.after(self.found)["batch"]
        until(lambda: not self.driver.alive() or progress.after(self.found)["batch"] > had + 2, self.driver.stderr_text)
        if not self.driver.alive():
            self.ended_with_advice()

    def ended_with_advice(self) -> None:
        assert self.driver.process is not None and self.driver.process.returncode == 1, self.driver.process
        said = self.driver.stderr_text()
        assert "\nError: " in said and "Traceback" not in said, said

    def compaction(self) -> None:
        self.compacting.kill()

    def of_broker(self) -> None:
        n = self.load.kills
        self.load.kill.set()
        until(lambda: self.load.kills > n, lambda: "the broker does not start")


ORPHANS = "driver; its JVM and workers, stopped before, continue beside the next run"
VICTIMS: dict[str, Callable[[Round], None]] = {
    "run: driver, JVM and workers": Round.all_of_the_run,
    "driver alone": Round.driver_alone,
    ORPHANS: Round.stopped_orphans,
    "JVM": Round.jvm,
    "Python worker": Round.worker,
    "compaction": Round.compaction,
    "broker": Round.of_broker,
}


def one_set(where: Path, seed: int, kills: Sequence[str], seconds: float) -> dict[str, Any]:
    """Do these kills, and begin none later than `seconds`; return what was compared. Raises AssertionError for a difference."""
    dice, began = random.Random(seed), time.monotonic()
    with Kept(BROKER) as broker:
        found = written(where, broker)
        with Round(broker, found, dice) as work:
            for what in kills:
                if time.monotonic() - began < seconds:
                    work.kill(what)
            work.work()
        assert broker.stop() == 0
        done = subprocess.run([sys.executable, "-m", "mosq", "pipeline", "run", "--once", "-s", str(found.file)], cwd=ROOT, check=False,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        there = journalled(broker)
        check_verified(found, there, seed)      # reads the journal, which ends with the broker
    check_journal(there, work.load, seed)
    check_tables(None, found, there, seed)
    return {"seed": seed, "kills": dict(work.kills), "acknowledged": len(work.load.sender.done), "records": len(there),
            "batches": progress.after(found)["batch"] + 1, "seconds": round(time.monotonic() - began), "differences": 0}


def written(where: Path, broker: Kept) -> settings.Settings:
    """Write the settings of the pipeline of a broker."""
    (where / "pipeline.toml").write_text(SETTINGS.format(journal=folder(broker).parent, local=where / "local", no_numbers=NO_NUMBERS))
    return settings.load(where)


def journalled(broker: Kept) -> dict[tuple[str, int, int], Any]:
    """Read every record with the journal's own reader."""
    found = {}
    for name, shards in STREAMS.items():
        stream = Stream(folder(broker, name))
        assert [mark.first_seq for mark in stream.marks()] == [0] * shards
        found |= {(name, shard, record.seq): record for shard in range(shards) for record in stream.read(shard=shard)}
    return found


# ---- what must be equal


def check_journal(there: dict[tuple[str, int, int], Any], load: Load, seed: int) -> None:
    count = Counter(record.payload for record in there.values() if record.kind == MESSAGE)
    assert {payload for payload in load.sender.done if count[payload] != 1} == set(), f"seed {seed}"
    assert set(count) <= load.sender.sent and set(count.values()) == {1}, f"seed {seed}"
    assert len(load.sender.done) > 100
    assert sum(record.kind == START for record in there.values()) == load.kills + 1


def check_verified(found: settings.Settings, there: dict[tuple[str, int, int], Any], seed: int) -> None:
    result = verify.verify(found)
    assert (result.faults, result.notes) == ([], []), f"seed {seed}"
    assert sum(one["bronze"] for one in result.shards.values()) == len(there), f"seed {seed}"


def check_tables(spark: SparkSession | None, found: settings.Settings, there: dict[tuple[str, int, int], Any], seed: int) -> None:
    duck = Duck(found)
    with contextlib.closing(duck):

        def asked(query: str) -> list[tuple[Any, ...]]:
            return duck.base.execute(query).fetchall()

        columns = ("stream", "shard", "seq", "kind", "topic", "payload")
        listed = ", ".join(columns)
        by_spark = None if spark is None else [tuple(row) for row in frames.frame(spark, found, "bronze").select(*columns).collect()]
        by_deltalake = [tuple(row.values()) for row in DeltaTable(f"{found.tables}/bronze").to_pyarrow_table(columns=list(columns)).to_pylist()]
        by_duckdb = asked(f"SELECT {listed} FROM bronze")
        for name, rows in (("Spark", by_spark), ("deltalake", by_deltalake), ("DuckDB", by_duckdb)):
            if rows is None:
                continue
            count = Counter(row[:3] for row in rows)
            assert max(count.values()) == 1, f"twice through {name}, seed {seed}: {count.most_common(3)}"
            read = {row[:3]: (row[3], row[4] or "", bytes(row[5] or b"")) for row in rows}
            assert read == {key: (one.kind, one.topic or "", one.payload or b"") for key, one in there.items()}, f"through {name}, seed {seed}"
        messages = {key: one.topic for key, one in there.items() if one.kind == MESSAGE}
        bad = {key for key, topic in messages.items() if topic == NO_NUMBERS}
        key = "stream, shard, seq"
        assert sorted(asked(f"SELECT {key} FROM silver_texts")) == sorted(messages.keys() - bad), f"seed {seed}"
        assert sorted(asked(f"SELECT {key} FROM quarantine")) == sorted(bad), f"seed {seed}"
        assert Counter(dict(asked("SELECT topic, sum(messages) FROM topics GROUP BY topic"))) == Counter(messages.values()), f"seed {seed}"
        for view in ("clients", "prefixes", "latency"):
            assert asked(f"SELECT sum(messages) FROM {view}") == [(len(messages),)], f"{view}, seed {seed}"
        assert asked("SELECT count(*) FROM late") == [(0,)]
    stands = progress.after(found)
    assert stands["rows"]["bronze"] == len(there) and stands["rows"]["silver/texts"] == len(messages) - len(bad), f"seed {seed}"


# ---- the program


def summary(lines: Sequence[str]) -> str:
    """Return the sums of the lines of a report as a table."""
    sets = [json.loads(line) for line in lines if line.strip()]
    kills: Counter[str] = Counter()
    for one in sets:
        kills.update(one["kills"])
    rows = [f"| {what} | {kills[what]} |" for what in VICTIMS]
    totals = {name: sum(one[name] for one in sets) for name in ("acknowledged", "records", "batches", "differences")}
    return "\n".join(["| killed | times |", "|---|---|", *rows, f"| all | {kills.total()} |", "", f"{len(sets)} sets; "
                      + ", ".join(f"{name} {n:,}" for name, n in totals.items()) + f"; seeds {', '.join(str(one['seed']) for one in sets)}"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the pipeline's programs at random moments, and compare journal and tables.")
    parser.add_argument("--kills", type=int, default=20, help="of each set")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a set: no further kill begins after that")
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first set; 0: at random")
    parser.add_argument("--report", type=Path, help="append a line of JSON for each set")
    parser.add_argument("--summary", type=Path, help="only print the sums of such lines")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)    # a shell's background ignores it
    if given.summary is not None:
        print(summary(given.summary.read_text().splitlines()))
        return
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 32)
    for i in range(given.sets):
        print(f"seed {seed + i}", flush=True)
        kills = random.Random(seed + i).choices(list(VICTIMS), k=given.kills)
        where = Path(tempfile.mkdtemp(prefix="mosq-kills-"))
        try:
            line = json.dumps(one_set(where, seed + i, kills, given.seconds))
        except AssertionError:
            traceback.print_exc()
            sys.exit(f"seed {seed + i} failed: its tables stay in {where}")
        shutil.rmtree(where)
        print(line, flush=True)
        if given.report is not None:
            with given.report.open("a") as file:
                print(line, file=file)


if __name__ == "__main__":
    main()
