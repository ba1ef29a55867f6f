"""Test that each query of docs/pipeline-cookbook.md gives the output shown there, in DuckDB and in Spark.

`python -m tests.pipeline.test_cookbook` writes the outputs into the page.
"""

from __future__ import annotations

import datetime
import re
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mosq.cli.pipeline.sql import as_table
from mosq.pipeline import frames
from mosq.pipeline.duck import Duck
from tests.pipeline import fleet_tables, lake_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs/pipeline-cookbook.md"
BLOCK = re.compile(r"```sql\n(.+?)\n```\n(?:\n```\n(.*?)\n```\n)?", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(PAGE.read_text())


def plain(value: Any) -> Any:
    """Return a value without the types in which the engines differ: sums have more digits in one of them."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    return value


def rows(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def shown(table: Any) -> str:
    return "\n".join(as_table(table.column_names, rows(table)))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = lake_tables.load(tmp_path_factory.mktemp("fleet"), fleet_tables.SETTINGS)
    fleet_tables.write(found)
    return found


def test_duckdb_gives_the_outputs_of_the_page(tables: Any) -> None:
    duck = Duck(tables)
    assert len(blocks()) == 10
    for query, output in blocks():
        assert shown(duck.query(query)) == output, query
        assert len(output.splitlines()) > 1, f"the fleet has no answer to {query}"
    duck.close()


def test_spark_gives_the_same(spark: SparkSession, tables: Any) -> None:
    frames.register(spark, tables)
    duck = Duck(tables)
    for query, _ in blocks():
        ours, theirs = spark.sql(query).toArrow(), duck.query(query)
        assert ours.column_names == theirs.column_names, query
        assert rows(ours) == rows(theirs), query
    duck.close()


def write_outputs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = lake_tables.load(Path(folder), fleet_tables.SETTINGS)
        fleet_tables.write(found)
        duck = Duck(found)
        PAGE.write_text(BLOCK.sub(lambda block: f"```sql\n{block[1]}\n```\n\n```\n{shown(duck.query(block[1]))}\n```\n", PAGE.read_text()))
        duck.close()


if __name__ == "__main__":
    write_outputs()
