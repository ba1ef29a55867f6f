"""Say that a cluster has no executor any more: Spark waits for one without a word."""

import time
from typing import TYPE_CHECKING

from mosq.pipeline.cluster import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

EVERY_S = 2.0
ALONE_S = 10.0  # an executor that was killed has a successor before that


class Watch:
    """Count the executors of a session now and then."""

    def __init__(
        self, spark: "SparkSession", log: "Callable[[str], object]", clock: "Callable[[], float]" = time.monotonic
    ) -> None:
        self.spark, self.log, self.clock = spark, log, clock
        self.is_cluster = probe.is_cluster(spark.sparkContext.master)
        self.next = self.seen = clock()
        self.said = False

    def look(self) -> None:
        """Log once if there has been no executor for ALONE_S, and once when there is one again."""
        if not self.is_cluster or self.clock() < self.next:
            return
        now = self.clock()
        self.next = now + EVERY_S
        if probe.executors(self.spark) > 0:
            self.seen = now
            if self.said:
                self.log("there is an executor again: the batch goes on")
                self.said = False
        elif now - self.seen >= ALONE_S and not self.said:
            self.said = True
            self.log(
                f"{self.spark.sparkContext.master} has had no executor for {now - self.seen:.0f} s: the batch waits."
                " Start a worker with free memory and cores, and the batch goes on; or end this run, and run again"
                f" later ({probe.PAGE})"
            )
