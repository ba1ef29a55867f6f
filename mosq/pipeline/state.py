"""Store the state of the jobs beside Spark's checkpoint: the settings of the tables, and the state after each batch.

Each file is small, and is written as a whole or not at all. The state of a batch is written after everything else of
the batch. A change of the settings that would make old and new rows of one table differ is refused, with advice.
"""

import contextlib
import fcntl
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.journal import Stream
from mosq.journal.folders import streams_below
from mosq.pipeline import MosqPipelineError, tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mosq.pipeline.settings import Settings

JOBS = ("silver", "gold", "audit")  # jobs beside bronze, which all need
FORMAT = 1
KEPT = 8  # Spark may do the last batch again, and needs the state before it
SETUP = "setup.json"
QUERY = "spark"  # folder of Spark's own checkpoint
REBUILDING = "rebuild.json"  # exists while the other tables are rebuilt from bronze


def put(path: Path, content: object) -> None:
    """Write a file as JSON; it is on the disk when this returns."""
    tables.put(path, json.dumps(content, indent=1, sort_keys=True))


@contextlib.contextmanager
def locked(path: Path, busy: str) -> "Iterator[None]":
    """Lock a file for one process at a time; the second process gets an error with the text `busy`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MosqPipelineError(busy) from None
        yield


def get(path: Path) -> Any:
    """Return the content of a file, or None if it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise MosqPipelineError(
            f"{path} is damaged ({error}): restore it, or begin again with other folders for tables and checkpoints"
        ) from None


# ---- after each batch


def empty() -> dict[str, Any]:
    """Return the state before the first batch."""
    return {
        "batch": -1,
        "rows": {},
        "shards": {},
        "quarantine": {},
        "late": 0,
        "audit": {"rows": 0, "wrong": 0, "lost_events": 0, "examples": []},
    }


def _batches(settings: "Settings") -> dict[int, Path]:
    folder = settings.checkpoints / "batches"
    return {int(path.stem): path for path in folder.glob("[0-9]*.json")} if folder.is_dir() else {}


def after(settings: "Settings", batch: int | None = None) -> dict[str, Any]:
    """Return the state after the last batch, or after the last one that is not later than `batch`."""
    found = {number: path for number, path in _batches(settings).items() if batch is None or number <= batch}
    if not found:
        if batch is not None and batch >= 0:
            raise MosqPipelineError(
                f"{settings.checkpoints / 'batches'}: the state after batch {batch} is gone, but Spark continues after"
                " it. Restore that folder, or run `mosq pipeline run --rebuild`"
            )
        return empty()
    state: dict[str, Any] = get(found[max(found)])
    return state


def put_after(settings: "Settings", state: dict[str, Any]) -> None:
    """Write the state after a batch, and remove all but the last KEPT states."""
    number = state["batch"]
    put(settings.checkpoints / "batches" / f"{number}.json", state)
    for old, path in _batches(settings).items():
        if old <= number - KEPT:
            path.unlink(missing_ok=True)


# ---- the settings of the tables


def streams(settings: "Settings") -> dict[str, Stream]:
    """Return the streams to read: those that the settings name, or all."""
    if not settings.journal.is_dir():
        raise MosqPipelineError(
            f"{settings.journal}: there is no such folder; expected the broker's streams there (`stream NAME FILTER` in"
            " mosquitto.conf, with `persistence true`). Start the broker once, or correct [pipeline] journal in"
            f" {settings.file}"
        )
    there = streams_below(settings.journal)
    for name in settings.streams:
        if name not in there:
            raise MosqPipelineError(
                f"{settings.journal}: there is no stream {name}; there are: {', '.join(there) or 'none'}; "
                f"correct [pipeline] streams in {settings.file}"
            )
    names = settings.streams or tuple(there)
    if not names:
        raise MosqPipelineError(
            f"{settings.journal}: there is no stream in it yet; expected `stream NAME FILTER` in mosquitto.conf"
        )
    return {name: Stream(there[name]) for name in names}


def _identity(stream: Stream) -> dict[str, Any]:
    from mosq import _core

    try:
        marks = _core.marks(stream.path)
    except (OSError, ValueError) as error:
        raise MosqPipelineError(f"{stream.path} cannot be read: {error}") from None
    return {"id": marks["stream_id"], "shards": len(marks["shards"])}


def check_rebuilt(settings: "Settings") -> None:
    """Raise MosqPipelineError if a rebuild did not finish."""
    if (settings.checkpoints / REBUILDING).exists():
        raise MosqPipelineError(
            f"{settings.checkpoints}: a rebuild began and did not finish; run `mosq pipeline run --rebuild` again"
        )


def setup(settings: "Settings", jobs: "Sequence[str]") -> dict[str, Any]:
    """Return the settings that rows of the tables depend on."""
    rules = [[silver.name, silver.topic, silver.format, silver.schema] for silver in settings.silver]
    return {
        "format": FORMAT,
        "tables": str(settings.tables),
        "streams": {name: _identity(stream) for name, stream in streams(settings).items()},
        "jobs": sorted(jobs),
        "silver": {rule[0]: rule[1:] for rule in rules},
        "silver_order": [rule[0] for rule in rules],
        "window_us": settings.window_us,
        "prefix_levels": settings.prefix_levels,
    }


DERIVED = {
    "silver": "[[silver]]",
    "silver_order": "the order of [[silver]]",
    "window_us": "[pipeline] window",
    "prefix_levels": "[pipeline] prefix_levels",
    "jobs": "the list of jobs",
}
REBUILD = "Undo the change, or run `mosq pipeline run --rebuild`, which computes silver and gold again from bronze"


def check(settings: "Settings", now: dict[str, Any], rebuilding: bool = False) -> None:
    """Check that the existing tables were made with the same settings; the first time there are none.

    A rebuild may change the settings in DERIVED.
    """
    had = get(settings.checkpoints / SETUP)
    if had is None:
        if (settings.tables / "bronze").exists():
            raise MosqPipelineError(
                f"{settings.tables} holds tables, but {settings.checkpoints} does not hold their progress: "
                "restore the checkpoints, or begin with another folder for tables"
            )
        return
    if had["format"] != FORMAT:
        raise MosqPipelineError(
            f"{settings.checkpoints}: written by another version of mosq (format {had['format']}): update, or begin"
            " again with other folders"
        )
    if query_id(settings) is None and _batches(settings):
        raise MosqPipelineError(
            f"{settings.checkpoints / QUERY} is gone, so Spark would number its batches from 0 again, and they would"
            " be mistaken for existing ones: restore it, or begin with other folders for tables and checkpoints"
        )
    if had["tables"] != now["tables"]:
        raise MosqPipelineError(
            f"{settings.checkpoints} belongs to the tables in {had['tables']}, not to those in {now['tables']}: correct"
            f" [pipeline] tables or checkpoints in {settings.file}"
        )
    _check_streams(settings, had["streams"], now["streams"])
    for key, what in DERIVED.items():
        if had[key] != now[key] and not rebuilding:
            raise MosqPipelineError(
                f"{settings.file}: {what} differs from the settings that the tables in {settings.tables} have"
                f"{_difference(had[key], now[key])}. {REBUILD}."
            )


def _check_streams(settings: "Settings", had: dict[str, Any], now: dict[str, Any]) -> None:
    for name, stream in had.items():
        if name not in now:
            raise MosqPipelineError(
                f"stream {name} was read before but is not now: restore it ({settings.file}: [pipeline] streams, or"
                f" the broker's folder {settings.journal}), or begin with other folders for tables and checkpoints"
            )
        if stream["id"] != now[name]["id"]:
            raise MosqPipelineError(
                f"{settings.journal / name} is not the stream that was read before (it was created again, and its"
                " numbers begin again): begin with other folders for tables and checkpoints; old tables stay readable"
            )
        if stream["shards"] > now[name]["shards"]:
            raise MosqPipelineError(
                f"{settings.journal / name} had {stream['shards']} shards and has {now[name]['shards']}: the number of"
                " shards may only grow; was an old copy restored? Restore the newer one, or begin with other folders"
            )


def _difference(had: object, now: object) -> str:
    if isinstance(had, dict) and isinstance(now, dict):
        changed = sorted(name for name in had.keys() | now.keys() if had.get(name) != now.get(name))
        return f" ({', '.join(changed)})"
    return f" (it was {had}, and is {now})"


def query_id(settings: "Settings") -> str | None:
    """Return Spark's id of the checkpoint's query, or None if it never ran."""
    found = get(settings.checkpoints / QUERY / "metadata")
    return None if found is None else str(found["id"])
