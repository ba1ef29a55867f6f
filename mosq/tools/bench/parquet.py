"""Write a result as Parquet: a row for each phase, nested values under joined names, histograms as lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mosq.tools.bench.spec import BenchError
from mosq.tools.extras import install_advice

if TYPE_CHECKING:
    from mosq.tools.bench.result import Result

MISSING = f"Parquet needs pyarrow, which is not installed: {install_advice('bench')}"


def check() -> None:
    """Raise BenchError if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BenchError(MISSING) from None


def rows(result: Result) -> list[dict[str, object]]:
    """Return a row for each phase, with flat names."""
    whole = result.as_dict()
    of_run = {"scenario": whole["scenario"], "run_complete": whole["complete"], "why": whole["why"],
              "started": whole["started"], **flat("option", result.spec), **flat("machine", result.machine)}
    return [{**of_run, **{name: value for key, data in phase.as_dict().items()
                          for name, value in flat(key, data).items()}} for phase in result.phases]


def flat(name: str, value: object) -> dict[str, object]:
    """Return a value under one name, or under several joined names if it is a dictionary."""
    if isinstance(value, dict):
        return {key: one for inner, data in value.items() for key, one in flat(f"{name}_{inner}", data).items()}
    return {name: list(value) if isinstance(value, tuple) else value}


def write(result: Result, path: str) -> None:
    """Write a result. Raises BenchError if the file cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = rows(result)
    names = {name: None for row in found for name in row}       # columns of all phases, in their order
    try:
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in found]), path)
    except OSError as error:
        raise BenchError(f"cannot write {path}: {error.strerror or error}") from None
