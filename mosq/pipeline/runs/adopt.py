"""Let tables go on whose checkpoint is lost, or is not of the same time: `mosq pipeline adopt`.

Bronze has the numbers of its rows, and `progress` the state after the last batch. So all tables are brought to the end
of that batch: rows of a later, unfinished batch are deleted, and the journal gives them again. A new checkpoint
begins exactly there, with a new name, so that no commit of the old one is taken for one of its own. Everything
is compared then (verify.py). Tables that lack rows are marked: `run --rebuild` computes them from bronze.

identity.json is removed first and written last: until then no run begins, and a killed adoption is repeated.
"""

import json
import time
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake import lock as locks
from mosq.pipeline.lake.parts import sync
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.lake.upkeep import ERASE
from mosq.pipeline.rows.positions import PLACE, at_place
from mosq.pipeline.runs import progress, removed, tending
from mosq.pipeline.runs.progress import BRONZE, IDENTITY, PROGRESS, QUERY, SWAP
from mosq.pipeline.runs.tableset import BACKLOG, QUARANTINE
from mosq.pipeline.runs.verify import Found, Verification
from mosq.pipeline.runs.versions import Snapshot, names, of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mosq.pipeline.settings import Settings

    Log = Callable[[str], object]

CHANGED = ["$adopted", "", None]  # no rule of a user has this topic, so a rebuild computes the rule again


def adopt(settings: "Settings", log: "Log" = print) -> bool:
    """Make a checkpoint for the tables; return False if the one there is right."""
    busy = f"{settings.checkpoints} is in use: a `mosq pipeline run` works on these tables; stop it first"
    with (
        locks.held(settings.checkpoints / locks.LOCK, busy, log),
        tending.alone(settings),  # it gives gold files back to the newest version: nothing may delete them
        locks.reading(settings.checkpoints / locks.READERS),
    ):
        return _adopted(settings, log)


def _adopted(settings: "Settings", log: "Log") -> bool:
    if (settings.checkpoints / SWAP).exists() and (settings.checkpoints / IDENTITY).exists():
        raise MosqPipelineError(progress.HALF_SWITCHED)
    about = progress.get(settings.checkpoints / IDENTITY)
    tables, state = _opened(settings, about)
    if about is not None and _belongs(settings, about, state):
        log("tables and checkpoint belong together: `mosq pipeline run` goes on; nothing is changed")
        return False
    setup = state.get("setup") or (about or {}).get("settings") or progress.setup(settings, progress.JOBS)
    setup = progress.copied(setup)
    _check_setup(settings, setup)
    if about is not None:
        old = settings.checkpoints / IDENTITY
        old.replace(old.with_name(f"{IDENTITY}.old"))
        sync(settings.checkpoints)
    gold_is_whole = _rolled_back(settings, tables, setup, state, log)
    found = Verification(settings, Snapshot(state, setup, tables)).run()
    _check_bronze(settings, found)
    _mark(setup, found, gold_is_whole, log)
    app = str(uuid.uuid4())
    checkpoint(settings, setup, state)
    state["step"] += 1
    state["at"] = time.time()
    progress.put_after(tables[PROGRESS], app, state)
    identity = {"format": progress.FORMAT, "identity": tables[BRONZE].identity, "app": app, "made": True}
    identity["first"] = settings.sources[0].node  # with several sources all names in the offsets have a node
    progress.put(settings.checkpoints / IDENTITY, identity | {"settings": setup})
    ends = ", ".join(f"{place}: {shard['next']:,}" for place, shard in sorted(state["shards"].items()))
    log(f"adopted: the next run begins behind batch {state['batch']:,} ({ends or 'no records yet'})")
    return True


def _opened(settings: "Settings", about: dict[str, Any] | None) -> tuple[dict[str, Table], dict[str, Any]]:
    """Return the tables, and the state after the last batch."""
    place = place_of(settings)
    bronze, record = Table.open(place, BRONZE), Table.open(place, PROGRESS)
    if bronze is None or record is None:
        lacks = BRONZE if bronze is None else PROGRESS
        raise MosqPipelineError(
            f"{place.child(lacks).uri}: there is no table: is the storage of the tables mounted? Without {BRONZE} and"
            f" {PROGRESS} nothing can be adopted; restore it, or {progress.OTHER_FOLDERS}"
        )
    state = progress.of_table(record)
    setup = state.get("setup") or {"silver_order": [rule.name for rule in settings.silver]}
    found = {name: Table.open(place, name) for name in names(setup)}
    tables = {name: table for name, table in found.items() if table is not None} | {PROGRESS: record}
    expected = bronze.identity if about is None else about["identity"]
    for table in tables.values():
        if table.identity != expected:
            raise MosqPipelineError(
                f"{table.place.uri} is a table of another set (identity {table.identity}, expected {expected}): correct"
                f" [pipeline] tables or checkpoints in {settings.file}"
            )
    return tables, state


def _check_setup(settings: "Settings", setup: dict[str, Any]) -> None:
    """Check that the settings have all brokers of the tables: the new offsets must name the streams as `run` does."""
    if any("/" not in name for name in setup["streams"]):
        raise MosqPipelineError(f"{settings.tables}: written by another version of mosq: {progress.OTHER_FOLDERS}")
    progress.check_nodes(settings, {name.partition("/")[0] for name in setup["streams"]})


def _belongs(settings: "Settings", about: dict[str, Any], state: dict[str, Any]) -> bool:
    """Return whether the checkpoint is of the same time as the tables."""
    if not about["made"] or state["app"] not in ("", about["app"]):
        return False
    try:
        progress.check_tables(settings, about)
        ends = progress.nexts(settings, state["batch"])
    except MosqPipelineError:
        return False
    return all(state["shards"].get(place, {"next": end})["next"] == end for place, end in ends.items())


# ---- tables


def _rolled_back(
    settings: "Settings", tables: dict[str, Table], setup: dict[str, Any], state: dict[str, Any], log: "Log"
) -> bool:
    """Bring all tables to the end of the same batch; return whether gold could be."""
    whole = _shortened(settings, tables[BRONZE], state, log)
    behind = _behind(state["shards"])
    for name, table in tables.items():
        if name == BRONZE or name.startswith("silver/") or name in (QUARANTINE, BACKLOG):
            n = table.delete(behind, {"mosq": "adopt"})
            if n:
                log(f"{name}: {n:,} rows of an unfinished batch deleted; the journal gives them again")
        elif name.startswith("gold/"):
            older = of_batch(table, state["app"], state["batch"])
            if older is None or not _can_go_back(table, older):
                whole = False
            elif older.version != table.version:
                table.restore(older.version)
                log(f"{name}: brought back to batch {state['batch']:,}")
    return whole


def _can_go_back(table: Table, older: Table) -> bool:
    """Return whether an older version has all its files, and none of the rows that were erased since."""
    n = table.version - older.version
    if any(commit.get("mosq") == ERASE for commit in (table.metadata(n) if n else ())):
        return False
    return older.is_whole()


def _behind(shards: "Mapping[str, Mapping[str, Any]]") -> Any:
    """Return an expression for the rows behind the numbers of a state."""
    known = pc.scalar(False)
    for place, shard in shards.items():
        node, stream, number = place.rsplit("/", 2)
        known |= at_place((node, stream, int(number))) & (pc.field("seq") < shard["next"])
    return ~known


def _shortened(settings: "Settings", bronze: Table, state: dict[str, Any], log: "Log") -> bool:
    """Let the state end where bronze ends, if bronze lacks its last rows; return whether it lacks none."""
    ends: dict[str, int] = {}
    was = (one for one in removed.read(settings) if one["table"] == BRONZE and one["lo"] is not None)
    for one in chain(removed.ranges(bronze, pc.scalar(True)), was):
        place = "/".join(str(one[name]) for name in PLACE)
        ends[place] = max(ends.get(place, 0), one["hi"])
    whole = True
    for place, shard in state["shards"].items():
        end = max(ends.get(place, 0), shard.get("first", 0))
        if end < shard["next"]:
            log(f"bronze ends at {end:,} of {place}, before its last batch ({shard['next']:,}): it goes on there")
            shard["next"] = end
            whole = False
    return whole


# ---- what is compared


def _check_bronze(settings: "Settings", found: Found) -> None:
    for one in found.faults:
        if one["table"] in (BRONZE, "journal"):
            place = f"{one['node']}/{one['stream']}/{one['shard']}"
            raise MosqPipelineError(
                f"{settings.tables}: {one['table']}, {place}, {one['from']:,} to {one['to']:,}: {one['what']}. Nothing"
                f" begins behind tables with such rows: restore them, or {progress.OTHER_FOLDERS}"
            )


def _mark(setup: dict[str, Any], found: Found, gold_is_whole: bool, log: "Log") -> None:
    """Change the settings that the tables had, so that a run asks for a rebuild of what lacks rows."""
    bad = {one["table"] for one in found.faults}
    rules = [name for name in setup["silver_order"] if f"silver/{name}" in bad or "silver" in bad]
    for name in rules:
        setup["silver"][name] = CHANGED
    if any(name.startswith("gold/") and name != BACKLOG for name in bad) or not gold_is_whole:
        setup["window_us"] = 0
        rules.append("gold")
    if BACKLOG in bad:
        setup["jobs"] = [job for job in setup["jobs"] if job != "audit"]
        rules.append("audit")
    if rules:
        which = ", ".join(rules)
        log(f"{which}: rows are missing or too many: `mosq pipeline run --rebuild` computes them from bronze")


# ---- the checkpoint


def checkpoint(settings: "Settings", setup: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint of Spark in which the batch of the state is the last one, and is finished."""
    folder = settings.checkpoints / QUERY
    if folder.exists():
        folder.rename(settings.checkpoints / f"{QUERY}.old-{time.time_ns()}")
    if state["batch"] < 0:
        return
    new = settings.checkpoints / f".{QUERY}.new-{uuid.uuid4()}"
    streams: dict[str, dict[str, Any]] = {}
    for name, about in setup["streams"].items():
        places = [f"{name}/{i}" for i in range(about["shards"])]
        if any(place in state["shards"] for place in places):
            shards = [state["shards"].get(place, {"next": 0})["next"] for place in places]
            # the streams of one broker have no node in offsets
            key = name if len(settings.sources) > 1 else name.partition("/")[2]
            streams[key] = {"id": about["id"], "next": shards}
    offset = json.dumps({"version": 1, "streams": streams})
    about_batch = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(state["at"] * 1000), "conf": {}})
    for path, text in (
        (new / "metadata", json.dumps({"id": str(uuid.uuid4())})),
        (new / "offsets" / str(state["batch"]), f"v1\n{about_batch}\n{offset}"),
        (new / "commits" / str(state["batch"]), 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sync(path)
        sync(path.parent)
    new.rename(folder)
    sync(settings.checkpoints)
