"""Provide one Spark session for all tests of the pipeline, because starting one takes seconds.

Tests that use it are marked `spark` and run in one process of their own (`pytest -m spark`).
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from mosq.pipeline.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    session = spark_session("tests", master="local[2]", conf={
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
        # optimisations that pay off with many rows only cost time here: the tests run many small queries, each once. The jobs of test_kill run with
        # the settings of users
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    })
    yield session
    session.stop()
    gc.collect()        # a resource that pyspark leaves open is reported here, not in a later test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the session as a test of Spark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.spark)
