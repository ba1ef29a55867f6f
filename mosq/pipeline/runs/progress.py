"""Know how far the tables are, and whether tables, checkpoints, journal and settings belong together.

The table `progress` has one row with the state after the last batch; it is the last commit of a batch. The file
`checkpoints/identity.json` names the set of tables and this checkpoint, and the settings that rows depend on. A change
that would make old and new rows of one table differ is refused, with advice.
"""

import datetime
import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.journal import Stream
from mosq.journal.folders import streams_below
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake import places
from mosq.pipeline.lake.parts import sync
from mosq.pipeline.lake.places import lost, place_of
from mosq.pipeline.lake.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mosq.pipeline.settings import Settings, Silver, Source

JOBS = ("silver", "gold", "audit")  # jobs beside bronze, which all need
FORMAT = 3
PROGRESS, BRONZE = "progress", "bronze"
SCHEMA = pa.schema(
    [
        pa.field("batch", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("state", pa.string()),
    ]
)
IDENTITY = places.IDENTITY
QUERY = "spark"  # folder of Spark's own checkpoint
SWAP = "rebuild.json"  # exists while the tables of a rebuild are switched
OTHER_FOLDERS = "begin with other places for tables and checkpoints"
HALF_SWITCHED = "a rebuild was killed while its tables switched: `mosq pipeline run` finishes it first"
MIGRATING = "migrate.json"  # exists while the tables of a migration are put in their place
MIGRATE = "`mosq pipeline migrate` brings them to this version"
ADOPT = "`mosq pipeline adopt` makes a checkpoint that begins behind their last batch"


def put(path: Path, content: object) -> None:
    """Write a file as JSON; it is on the disk, as a whole or not at all, when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(content, indent=1, sort_keys=True))
    sync(new)
    new.replace(path)
    sync(path.parent)


def get(path: Path) -> Any:
    """Return the content of a file, or None if it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise MosqPipelineError(f"{path} is damaged ({error}): restore it, or {OTHER_FOLDERS}") from None


# ---- the state after each batch


def empty() -> dict[str, Any]:
    """Return the state before the first batch."""
    return {
        "batch": -1,
        "step": 0,  # of this table: each commit has the next number
        "app": "",  # name of the checkpoint, as the commits of its batches have it
        "setup": None,  # settings of the tables, as in identity.json
        "at": 0.0,
        "rows": {},  # of each table
        "shards": {},  # "node/stream/shard": next, time_us, rows
        "quarantine": {},  # of each reason
        "late": 0,
        "keyless": {},  # of each rule with a key: rows with null in it
        "notes": {},  # of each rule: values that silver has in another way than the message
        "events": {},  # of each rule that declares an event: rows of silver that are late, misdated
        "audit": {"rows": 0, "wrong": 0, "lost_events": 0, "examples": []},
        "schemas": {},  # of each rule with an inferred schema, as DDL
        "fields": {},  # of each rule: field without a column -> number of messages
        "new": {},  # of each rule: field that waits for a column -> type, rows, since (seconds)
        "pending": {},  # of each rule without schema: rows, since (seconds)
        "backfill": {},  # of each rule whose schema is settled, until its earlier messages are in silver: shards
    }


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of which nothing is shared."""
    found: dict[str, Any] = json.loads(json.dumps(state))
    return found


def of_table(table: Table) -> dict[str, Any]:
    """Return the state that a table `progress` has."""
    rows = table.read()
    if rows.num_rows == 0:
        return empty()
    if rows.num_rows > 1:
        raise MosqPipelineError(f"{table.place.uri}: one row is expected, there are {rows.num_rows}: restore the table")
    known: dict[str, Any] = json.loads(rows["state"][0].as_py())
    return empty() | known


def after(settings: "Settings") -> dict[str, Any]:
    """Return the state after the last batch; the empty one if there is none."""
    table = Table.open(place_of(settings), PROGRESS)
    return empty() if table is None else of_table(table)


def put_after(table: Table, app: str, state: dict[str, Any]) -> None:
    """Commit a state; its step must be the next one. Raises MosqPipelineError if another run has committed it."""
    row = {
        "batch": state["batch"],
        "at": datetime.datetime.fromtimestamp(state["at"], datetime.UTC),
        "state": json.dumps(state | {"app": app}, sort_keys=True),
    }
    if not table.replace(pa.Table.from_pylist([row], SCHEMA), app, state["step"]):
        raise MosqPipelineError(
            f"{table.place.uri}: another run of these tables has committed batch {state['batch']}: stop it, run again"
        )


# ---- the settings of the tables


def streams(settings: "Settings") -> dict[str, Stream]:
    """Return the streams to read by "node/stream": those that the settings name, or all."""
    return {
        f"{source.node}/{name}": stream
        for source in settings.sources
        for name, stream in streams_of(settings, source).items()
    }


def streams_of(settings: "Settings", source: "Source") -> dict[str, Stream]:
    """Return the streams of one broker."""
    journal = source.journal
    if not journal.is_dir():
        raise MosqPipelineError(
            f"{journal}: there is no such folder; expected the streams of the broker {source.node} there (`stream NAME"
            " FILTER` in mosquitto.conf, with `persistence true`). Start the broker once, or correct `journal` in"
            f" {settings.file}"
        )
    there = streams_below(journal)
    for name in source.streams:
        if name not in there:
            raise MosqPipelineError(
                f"{journal}: there is no stream {name}; there are: {', '.join(there) or 'none'}; "
                f"correct `streams` in {settings.file}"
            )
    names = source.streams or tuple(there)
    if not names:
        raise MosqPipelineError(
            f"{journal}: there is no stream in it yet; expected `stream NAME FILTER` in mosquitto.conf"
        )
    return {name: Stream(there[name]) for name in names}


def _stream(stream: Stream) -> dict[str, Any]:
    from mosq.journal.parts import marks_of

    try:
        marks = marks_of(stream.path)
    except (OSError, ValueError) as error:
        raise MosqPipelineError(f"{stream.path} cannot be read: {error}") from None
    return {"id": marks["stream_id"], "shards": len(marks["shards"])}


def _distinct(streams: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Check that no stream is there twice, as if a folder was mounted at two places: its rows would count twice."""
    seen: dict[str, str] = {}
    for name, stream in streams.items():
        if (other := seen.setdefault(stream["id"], name)) != name:
            raise MosqPipelineError(
                f"{other} and {name} are one stream, or copies of it (id {stream['id']}): name each broker's own folder"
                " in [[source]]"
            )
    return streams


def setup(settings: "Settings", jobs: "Sequence[str]") -> dict[str, Any]:
    """Return the settings that rows of the tables depend on."""
    rules = [
        [silver.name, silver.topic, silver.format, silver.schema, *of_rule(silver)] for silver in settings.silver
    ]
    return {
        "streams": _distinct({name: _stream(stream) for name, stream in streams(settings).items()}),
        "jobs": sorted(jobs),
        "silver": {rule[0]: rule[1:] for rule in rules},
        "silver_order": [rule[0] for rule in rules],
        "window_us": settings.window_us,
        "prefix_levels": settings.prefix_levels,
    }


def of_rule(silver: "Silver") -> list[dict[str, Any]]:
    """Return what a rule declares beside its schema, if it declares anything."""
    found: dict[str, Any] = {}
    if silver.event is not None:
        found["event"] = silver.event.as_setup()
    if silver.unique is not None:
        found["unique"] = silver.unique.as_setup()
    return [found] if found else []


DERIVED = {
    "silver": "[[silver]]",
    "silver_order": "the order of [[silver]]",
    "window_us": "[pipeline] window",
    "prefix_levels": "[pipeline] prefix_levels",
    "jobs": "the list of jobs",
}
REBUILD = (
    "Undo the change, or run `mosq pipeline run --rebuild`, which computes what depends on it again from bronze;"
    " readers see the old tables until then"
)


def check(settings: "Settings", now: dict[str, Any], rebuilding: bool = False) -> None:
    """Check that settings, checkpoints and tables belong together; the first time there are none of the latter.

    A rebuild may change the settings in DERIVED.
    """
    had = get(settings.checkpoints / IDENTITY)
    if (settings.checkpoints / MIGRATING).exists():
        raise MosqPipelineError(
            f"{settings.checkpoints}: a migration was killed while its tables were put in their place: `mosq pipeline"
            " migrate` finishes it"
        )
    if had is None:
        _check_new(settings)
        return
    if had["format"] != FORMAT:
        raise MosqPipelineError(
            f"{settings.checkpoints}: written by another version of mosq (format {had['format']}, this one has"
            f" {FORMAT}): {'update mosq' if had['format'] > FORMAT else MIGRATE}"
        )
    if had["made"]:
        check_tables(settings, had)
    had = had["settings"]
    check_nodes(settings, {name.partition("/")[0] for name in had["streams"]})
    check_streams(settings, had["streams"], now["streams"])
    for key, what in DERIVED.items():
        if had[key] != now[key] and not rebuilding:
            raise MosqPipelineError(
                f"{settings.file}: {what} differs from the settings that the tables in {settings.tables} have"
                f"{_difference(had[key], now[key])}. {REBUILD}."
            )


def _check_new(settings: "Settings") -> None:
    """Check that there are no tables if the checkpoints are new."""
    old = settings.checkpoints / "setup.json"
    if old.exists():
        raise MosqPipelineError(
            f"{settings.checkpoints} and {settings.tables} were written by an earlier version of mosq, which had no"
            f" Delta tables: {MIGRATE}"
        )
    place = place_of(settings)
    for name in (BRONZE, PROGRESS):
        if Table.open(place, name) is not None:
            raise MosqPipelineError(
                f"{settings.tables} holds tables, but {settings.checkpoints} does not hold their progress: "
                f"restore the checkpoints, or name another place for tables; or {ADOPT}"
            )
    if (settings.checkpoints / QUERY / "metadata").exists():
        raise MosqPipelineError(
            f"{settings.checkpoints / IDENTITY} is gone, but Spark's checkpoint is there: restore it, or"
            f" {OTHER_FOLDERS}; if there are tables, {ADOPT}"
        )


def check_tables(settings: "Settings", had: dict[str, Any]) -> None:
    """Check that the tables of this checkpoint are there, and that Spark's checkpoint is as new as they are."""
    place = place_of(settings)
    for name in (BRONZE, PROGRESS):
        table = Table.open(place, name)
        if table is None:
            raise lost(settings, name)
        if table.identity != had["identity"]:
            raise MosqPipelineError(
                f"{place.child(name).uri} is a table of another set (identity {table.identity}, expected"
                f" {had['identity']}): correct [pipeline] tables or checkpoints in {settings.file}"
            )
    batch = after(settings)["batch"]
    if batch < 0:
        return
    there = offsets_there(settings)
    if not there or max(there) < batch:
        raise MosqPipelineError(
            f"{settings.checkpoints / QUERY} ends at batch {max(there, default=-1)}, but the tables have batch {batch}:"
            f" it is gone or an older copy; restore it; or {ADOPT}"
        )
    done = [int(path.name) for path in (settings.checkpoints / QUERY / "commits").glob("[0-9]*")]
    if max(done, default=-1) > batch:
        raise MosqPipelineError(
            f"{settings.tables} has the rows up to batch {batch}, but {settings.checkpoints / QUERY} has finished batch"
            f" {max(done)}: the tables are an older copy; restore the newer one; or {ADOPT}"
        )


def check_nodes(settings: "Settings", had: set[str]) -> None:
    """Check that each broker that was read is still among the sources."""
    now = [source.node for source in settings.sources]
    gone = sorted(had - set(now))
    if gone and len(had) == len(now) == 1:
        raise MosqPipelineError(
            f"{settings.file}: node is {now[0]}, but the rows of the tables have {gone[0]}: set"
            f' node = "{gone[0]}", or {OTHER_FOLDERS}'
        )
    if gone:
        raise MosqPipelineError(
            f"{settings.file}: the broker {', '.join(gone)} was read before, but no [[source]] has this node: restore"
            f" the entry (its journal must stay, also if the broker is not used any more), or {OTHER_FOLDERS}"
        )


def check_streams(settings: "Settings", had: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that the streams of the tables are still those of the journal."""
    for name, stream in had.items():
        if name not in now:
            raise MosqPipelineError(
                f"stream {name} was read before but is not now: restore it ({settings.file}: `streams`, or the"
                f" broker's folder {_folder(settings, name)}), or {OTHER_FOLDERS}"
            )
        if stream["id"] != now[name]["id"]:
            raise MosqPipelineError(
                f"{_folder(settings, name)} is not the stream that was read before (it was created again, and its"
                f" numbers begin again): {OTHER_FOLDERS}; old tables stay readable"
            )
        if stream["shards"] > now[name]["shards"]:
            raise MosqPipelineError(
                f"{_folder(settings, name)} had {stream['shards']} shards and has {now[name]['shards']}: the number of"
                f" shards may only grow; was an old copy restored? Restore the newer one, or {OTHER_FOLDERS}"
            )


def _folder(settings: "Settings", name: str) -> Path:
    """Return the folder of a stream "node/stream"."""
    node, _, stream = name.partition("/")
    return next(source.journal / stream for source in settings.sources if source.node == node)


def _difference(had: object, now: object) -> str:
    if isinstance(had, dict) and isinstance(now, dict):
        changed = sorted(name for name in had.keys() | now.keys() if had.get(name) != now.get(name))
        return f" ({', '.join(changed)})"
    return f" (it was {had}, and is {now})"


# ---- the identity


def begun(settings: "Settings", now: dict[str, Any]) -> dict[str, Any]:
    """Return the content of identity.json with the settings of now; write a new one if there is none."""
    path = settings.checkpoints / IDENTITY
    found: dict[str, Any] | None = get(path)
    if found is None:
        found = {"format": FORMAT, "identity": str(uuid.uuid4()), "app": str(uuid.uuid4()), "made": False}
        found["first"] = settings.sources[0].node
    if found.get("settings") != now:
        found["settings"] = now
        put(path, found)
    return found


def made(settings: "Settings", about: dict[str, Any]) -> None:
    """Record that the tables are there."""
    if not about["made"]:
        about["made"] = True
        put(settings.checkpoints / IDENTITY, about)


# ---- Spark's offsets


def offsets_there(settings: "Settings") -> list[int]:
    """Return the numbers of the batches whose offsets Spark's checkpoint has."""
    folder = settings.checkpoints / QUERY / "offsets"
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal())


def clear_begun_query(settings: "Settings", state: dict[str, Any]) -> None:
    """Remove Spark's checkpoint if it has no batch yet.

    A full disk can leave half of a file there, and Spark then refuses to begin.
    """
    if state["batch"] < 0 and not offsets_there(settings):
        shutil.rmtree(settings.checkpoints / QUERY, ignore_errors=True)


def by_age(settings: "Settings") -> "list[Source]":
    """Return the sources, the one that the tables had first at the beginning."""
    about = get(settings.checkpoints / IDENTITY) or {}
    first = about.get("first")
    return sorted(settings.sources, key=lambda source: source.node != first)


def offset(settings: "Settings", batch: int) -> dict[str, Any]:
    """Return the offset at the end of a batch by "node/stream", from Spark's checkpoint; {} before the first batch.

    It is synced to the disk first: Spark does not do that, and a commit must not know more than the checkpoint.
    """
    if batch < 0:
        return {}
    path = settings.checkpoints / QUERY / "offsets" / str(batch)
    try:
        sync(path)
        sync(path.parent)
        lines = path.read_text().splitlines()
        streams: dict[str, Any] = json.loads(lines[2])["streams"]
        # one broker's streams have bare names; with several, a bare name is of the first one
        first = by_age(settings)[0].node
        streams = {name if "/" in name else f"{first}/{name}": entry for name, entry in streams.items()}
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise MosqPipelineError(
            f"{path}: the offsets of batch {batch} cannot be read ({error}): restore {settings.checkpoints}, or"
            f" {OTHER_FOLDERS}"
        ) from None
    return streams


def ranges(settings: "Settings", batch: int) -> dict[str, tuple[int, int]]:
    """Return for each "node/stream/shard" the sequence numbers [from, up to) that a batch has by Spark's checkpoint."""
    end = offset(settings, batch)
    before = offset(settings, batch - 1) if batch - 1 in offsets_there(settings) else {}
    found = {}
    for name, entry in end.items():
        had = before.get(name)
        starts = entry.get("from", []) if had is None else had["next"]
        for shard, hi in enumerate(entry["next"]):
            lo = starts[shard] if shard < len(starts) else 0
            if lo < hi:
                found[f"{name}/{shard}"] = (lo, hi)
    return found


def nexts(settings: "Settings", batch: int) -> dict[str, int]:
    """Return for each "node/stream/shard" the number after the last one of a batch by Spark's checkpoint."""
    return {
        f"{name}/{shard}": hi
        for name, entry in offset(settings, batch).items()
        for shard, hi in enumerate(entry["next"])
    }
