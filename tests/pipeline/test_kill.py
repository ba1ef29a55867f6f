"""Test kills at random moments: of a driver while its JVM is stopped, of the broker, of a compaction, and of another part of the run.

`dev/pipeline-kills` does many more. MOSQ_PIPELINE_SEED=... has the same order again, and the same moments as far as a machine repeats itself.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from mosq.pipeline.runs import jobs, tending
from tests.durable.test_restart import Kept
from tests.pipeline.kills import BROKER, ORPHANS, VICTIMS, Round, check_journal, check_tables, check_verified, journalled, summary, written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.part("spark")
def test_every_record_is_in_the_tables_once(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("MOSQ_PIPELINE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with Kept(BROKER) as broker:
        found = written(tmp_path, broker)
        with Round(broker, found, dice) as work:
            other = dice.choice([what for what in VICTIMS if what not in (ORPHANS, "broker", "compaction")])
            for what in dice.sample([ORPHANS, "broker", "compaction", other], k=4):
                work.kill(what)
        assert broker.stop() == 0
        jobs.run(spark, found, once=True, log=lambda line: None)
        there = journalled(broker)
        check_journal(there, work.load, seed)
        check_tables(spark, found, there, seed)
        check_verified(found, there, seed)      # reads the journal, which ends with the broker
        assert any("merged" in line for line in tending.compact_all(found, 2))
        check_tables(spark, found, there, seed)
        check_verified(found, there, seed)


def test_the_summary_adds_up_the_sets() -> None:
    line = '{"seed": %d, "kills": {"JVM": %d}, "acknowledged": 1000, "records": 1200, "batches": 7, "differences": 0}'
    text = summary([line % (5, 2), line % (6, 1)])
    assert "| JVM | 3 |" in text and "| all | 3 |" in text
    assert "2 sets; acknowledged 2,000, records 2,400, batches 14, differences 0; seeds 5, 6" in text
