"""One Spark session for all tests of the pipeline: starting one takes seconds. They are marked `spark` and run in one process of
their own (`pytest -m spark`)."""

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
        # many small queries, each once: what pays off with many rows costs here. The jobs of test_kill run as users run them
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    })
    yield session
    session.stop()
    gc.collect()        # what pyspark leaves open is told here, not in whatever test comes next


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for the session is one of Spark's, whether it says so or not."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.spark)
