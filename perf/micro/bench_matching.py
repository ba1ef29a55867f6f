"""Measure `mosq pipeline match` in Spark with a million topics and a hundred thousand filters, half with wildcards.

    python -m perf.micro.bench_matching [TOPICS] [FILTERS] [--master local[2]]

The times are seconds, the least of three, after Spark has started and has run something in a worker. The index alone,
on one core and without Spark, is measured as well. Other programs on the machine disturb all of it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mosq.pipeline.matching import DELIVERIES, Indexed, Matching, sums
from mosq.pipeline.matching_files import read_filters, read_topics
from mosq.pipeline.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable

METRICS = ("temp", "hum", "co2", "state", "volt", "amp", "err", "rssi")
TIMES = 3


def levels(chance: random.Random) -> list[str]:
    site, device, value = chance.randrange(50), chance.randrange(200), chance.randrange(50)
    return [f"site{site}", f"dev{device}", chance.choice(METRICS), str(value)]


def some_topics(n: int) -> list[str]:
    chance = random.Random(1)
    return ["/".join(levels(chance)) for _ in range(n)]


def some_filters(n: int) -> list[str]:
    """Return filters: half of them exact, 25 % with one `+`, 15 % with two, 10 % end with `#`."""
    chance = random.Random(2)
    found: set[str] = set()
    while len(found) < n:
        parts, kind = levels(chance), chance.random()
        if 0.5 <= kind < 0.9:
            for at in chance.sample(range(4), 1 if kind < 0.75 else 2):
                parts[at] = "+"
        elif kind >= 0.9:
            parts = [*parts[:chance.randrange(2, 4)], "#"]
        found.add("/".join(parts))
    return sorted(found)


def least(what: str, run: Callable[[], object]) -> None:
    """Run a function TIMES times; print the least seconds and the result."""
    took = []
    for _ in range(TIMES):
        at = time.perf_counter()
        result = run()
        took.append(time.perf_counter() - at)
    print(f"{what:<32} {min(took):6.2f} s   {result:,}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", type=int, nargs="?", default=1_000_000)
    parser.add_argument("filters", type=int, nargs="?", default=100_000)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    topics, filters = some_topics(options.topics), some_filters(options.filters)
    batch = pa.record_batch({"topic": topics})
    index = Indexed(pa.table({"filter": filters}))
    least("index alone, one core", lambda: sum(batch["n"][batch["id"].index(DELIVERIES).as_py()].as_py()
                                               for batch in sums(iter([batch]), index)))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.txt") for name in ("topics", "filters")]
        for file, lines in zip(files, (topics, filters), strict=True):
            file.write_text("\n".join(lines) + "\n")
        spark = spark_session("bench", master=options.master)
        spark.range(10).mapInArrow(lambda batches: batches, "id bigint").count()
        rows = read_filters(spark, str(files[1]), False).rows
        frame = read_topics(spark, str(files[0]))

        def totals() -> int:
            found = Matching(spark, rows).sums(frame).where(f"id = {DELIVERIES}").first()
            return int(found.n) if found is not None else 0

        def written(what: str) -> int:
            work = Matching(spark, rows)
            table = work.pairs(frame) if what == "pairs" else work.per_topic(frame)
            table.write.mode("overwrite").parquet(f"{folder}/{what}")
            return int(spark.read.parquet(f"{folder}/{what}").count())

        least("read filters", lambda: len(read_filters(spark, str(files[1]), False).rows))
        least("counts of filters", totals)
        least("counts of topics, to Parquet", lambda: written("counts"))
        least("every pair, to Parquet", lambda: written("pairs"))
        spark.stop()


if __name__ == "__main__":
    main()
