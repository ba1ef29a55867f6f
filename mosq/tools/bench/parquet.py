"""A result as Parquet: a row for each phase, nested values under joined names, histograms as lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mosq.tools.bench.spec import BenchError
from mosq.tools.extras import install_advice

if TYPE_CHECKING:
    from mosq.tools.bench.result import Result

MISSING = f"Parquet needs pyarrow, which is not installed: {install_advice('bench')}"


def check() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BenchError(MISSING) from None


def rows(result: Result) -> list[dict[str, object]]:
    whole = result.told()
    of_run = {"scenario": whole["scenario"], "run_complete": whole["complete"], "why": whole["why"],
              "started": whole["started"], **flat("option", result.spec), **flat("machine", result.machine)}
    return [{**of_run, **{name: value for key, told in phase.told().items() for name, value in flat(key, told).items()}}
            for phase in result.phases]


def flat(name: str, value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return {key: one for inner, told in value.items() for key, one in flat(f"{name}_{inner}", told).items()}
    return {name: list(value) if isinstance(value, tuple) else value}


def write(result: Result, path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = rows(result)
    names = {name: None for row in found for name in row}       # of all phases, in their order
    try:
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in found]), path)
    except OSError as error:
        raise BenchError(f"cannot write {path}: {error.strerror or error}") from None
