"""Bring tables of an earlier version of mosq to this one: `mosq pipeline migrate`.

Tables before Delta: bronze is copied, and silver, quarantine and gold are computed from it again. The old ones are not
copied, because their integers were DOUBLE, new fields were not in them, and rows could be missing. Each step is a batch
with the commits of a run, into tables beside the old ones. So a killed migration goes on where it was. Then all tables
are compared with the journal, a checkpoint is made behind the last row, and the new files are put in the place of the
old ones, which stay in the folder ASIDE.

Tables of format 2 lack the names of brokers in their settings only.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError, trouble
from mosq.pipeline.earlier.before_delta import Old, OldPlace, Reader
from mosq.pipeline.lake import lock as locks
from mosq.pipeline.lake.parts import sync
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.work import Work, read_manifest
from mosq.pipeline.runs import adopt, jobs, progress, settling
from mosq.pipeline.runs.progress import IDENTITY, MIGRATING, PROGRESS, QUERY
from mosq.pipeline.runs.tableset import rules
from mosq.pipeline.runs.verify import Verification
from mosq.pipeline.runs.versions import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.pipeline.settings import Settings

    Log = Callable[[str], object]
    Begin = Callable[[str, int], Callable[[int], object]]

STAGED, ASIDE = "migrating", "before-delta"  # folders in those of tables and checkpoints
OLD_TABLES = ("bronze", "silver", "gold", "quarantine", "views")
KEPT = (locks.LOCK, locks.UPKEEP, locks.READERS, locks.REBUILD, MIGRATING, STAGED, ASIDE)  # of the checkpoints
CHUNK_ROWS = 500_000
SAMPLED_CHUNKS = 20  # the schema of a rule is inferred from messages in these
FAULTS_LISTED = 3


def migrate(settings: "Settings", log: "Log" = print, begin: "Begin | None" = None) -> bool:
    """Bring the tables to this version; return False if they are of it. `begin` gets the name and size of a step."""
    busy = f"{settings.checkpoints} is in use: another program works on these tables; stop it first"
    with locks.held(settings.checkpoints / locks.LOCK, busy, log), trouble.plain_errors(settings):
        if (settings.checkpoints / MIGRATING).exists():
            _switch(settings, log)
            return True
        about = progress.get(settings.checkpoints / IDENTITY)
        if about is not None:
            return _upgraded(settings, about, log)
        old = Old.find(settings, settings.checkpoints)
        if old is None:
            raise MosqPipelineError(
                f"{settings.checkpoints}: there are no tables of an earlier version: correct [pipeline] tables and"
                f" checkpoints in {settings.file}"
            )
        Migration(settings, old, log, begin or (lambda name, n: lambda moved: None)).run()
        _switch(settings, log)
        return True


# ---- tables before Delta


class Migration:
    """Make Delta tables of tables before Delta, beside them."""

    def __init__(self, settings: "Settings", old: Old, log: "Log", begin: "Begin") -> None:
        self.settings, self.old, self.log, self.begin = settings, old, log, begin
        self.in_place = str(old.tables) == settings.tables
        self.staged = dataclasses.replace(
            settings,
            tables=str(old.tables / STAGED) if self.in_place else settings.tables,
            checkpoints=settings.checkpoints / STAGED,
        )
        self.node = self._node()
        source = next(one for one in settings.sources if one.node == self.node)
        self.reader = Reader(old, progress.streams_of(settings, source), CHUNK_ROWS)

    def _node(self) -> str:
        """Return the name of the broker whose streams the old tables have, and check the streams."""
        now = progress.setup(self.settings, self.old.setup["jobs"])["streams"]
        nodes = [source.node for source in self.settings.sources]
        had = self.old.setup["streams"]
        for node in nodes:
            if any(now.get(f"{node}/{name}", {}).get("id") == one["id"] for name, one in had.items()):
                break
        else:
            node = nodes[0]
        progress.check_streams(self.settings, {f"{node}/{name}": one for name, one in had.items()}, now)
        return node

    def run(self) -> None:
        moved = self.begin("copying", self.old.rows())
        if self.in_place:
            Path(self.staged.tables).mkdir(exist_ok=True)
        self._resume()
        work = jobs.Jobs(None, self.staged, self.old.setup["jobs"], self.log)
        if work.state["batch"] < 0 and not work.state["schemas"] and "silver" in work.jobs:
            work.declare(self._schemas())
        at = self._positions(work.state)
        moved(sum(one["rows"] for one in work.state["shards"].values()))
        for chunk in self.reader.chunks(at):
            ranges = {f"{self.node}/{stream}/{shard}": span for (stream, shard), span in chunk.ranges.items()}
            work.take(self.reader.rows(chunk), ranges, self.node)
            moved(chunk.rows)
        self._say(work.state)
        self._verify()
        self._checkpoint(work.tables.setup, work.state)
        content = {"tables": str(self.old.tables) if self.in_place else None, "phase": "aside"}
        progress.put(self.settings.checkpoints / MIGRATING, content)

    def _resume(self) -> None:
        """Let the checkpoint of a killed migration end where its tables end."""
        about = progress.get(self.staged.checkpoints / IDENTITY)
        if about is not None and about["made"]:
            self._checkpoint(about["settings"], progress.after(self.staged))

    def _checkpoint(self, setup: dict[str, Any], state: dict[str, Any]) -> None:
        shutil.rmtree(self.staged.checkpoints / QUERY, ignore_errors=True)
        adopt.checkpoint(self.staged, setup, state)

    @staticmethod
    def _positions(state: dict[str, Any]) -> dict[OldPlace, int]:
        found = {}
        for place, one in state["shards"].items():
            _, stream, shard = place.rsplit("/", 2)
            found[stream, int(shard)] = int(one["next"])
        return found

    def _schemas(self) -> dict[str, str]:
        """Infer the schemas of the rules that declare none."""
        names = [rule.name for rule in self.settings.silver if rule.format == "json" and rule.schema is None]
        texts: dict[str, list[str]] = {name: [] for name in names}
        reader = Reader(self.old, self.reader.streams, CHUNK_ROWS)
        for n, chunk in enumerate(reader.chunks({}) if names else ()):
            work = Work(
                place=place_of(self.staged),
                node=self.node,
                rules=rules(self.settings, {}),
                jobs=frozenset(["silver"]),
                bronze=False,
                only=frozenset(names),
            )
            for name, found in read_manifest(work(reader.rows(chunk))).samples.items():
                texts[name] += found
            if n + 1 >= SAMPLED_CHUNKS or all(len(one) >= settling.SAMPLES for one in texts.values()):
                break
        schemas = {name: settling.inferred(name, one[: settling.SAMPLES], self.log) for name, one in texts.items()}
        return {name: text for name, text in schemas.items() if text is not None}

    def _say(self, state: dict[str, Any]) -> None:
        rows = ", ".join(f"{name} {n:,}" for name, n in sorted(state["rows"].items()))
        self.log(f"rows: {rows or 'none'}")
        if self.reader.doubled:
            self.log(f"bronze had {self.reader.doubled:,} rows twice: each is taken once")
        if self.reader.filled:
            self.log(f"bronze lacked {self.reader.filled:,} rows: they are read from the journal")
        if self.reader.lost:
            self.log(
                f"bronze lacked {self.reader.lost:,} rows that the journal does not have any more: rows of kind 10"
                " (gap) stand for them"
            )

    def _verify(self) -> None:
        about = progress.get(self.staged.checkpoints / IDENTITY)
        work = Verification(self.staged, Snapshot.take(self.staged, about["settings"], about["app"]))
        work.moved = self.begin("comparing", work.size())
        faults = work.run().faults
        if faults:
            listed = "; ".join(str(one) for one in faults[:FAULTS_LISTED])
            raise MosqPipelineError(
                f"{self.staged.tables}: the new tables do not add up in {len(faults):,} ranges ({listed}): the old"
                " tables are unchanged; report this"
            )


# ---- the new files in the place of the old ones


def _moved(folder: Path, to: Path, names: "Iterator[str]") -> None:
    to.mkdir(exist_ok=True)
    for name in sorted(names, key=lambda name: name == IDENTITY):
        (folder / name).rename(to / name)
        sync(to)
    sync(folder)
    sync(to)


def _switch(settings: "Settings", log: "Log") -> None:
    """Put the old files aside, and then the new ones in their place. A killed switch is finished by the next call.

    identity.json comes last: until then no run begins.
    """
    marker = settings.checkpoints / MIGRATING
    content = progress.get(marker)
    tables = None if content["tables"] is None else Path(content["tables"])
    checkpoints = settings.checkpoints
    if content["phase"] == "aside":
        if tables is not None:
            old = [path.name for path in tables.iterdir() if path.name.strip(".").split(".")[0] in OLD_TABLES]
            _moved(tables, tables / ASIDE, iter(old))
        _moved(checkpoints, checkpoints / ASIDE, (one.name for one in checkpoints.iterdir() if one.name not in KEPT))
        content["phase"] = "place"
        progress.put(marker, content)
    for folder in (tables, checkpoints):
        if folder is not None and (folder / STAGED).exists():
            _moved(folder / STAGED, folder, (one.name for one in (folder / STAGED).iterdir()))
            (folder / STAGED).rmdir()
    marker.unlink()
    sync(checkpoints)
    where = checkpoints / ASIDE if tables is None else f"{tables / ASIDE} and {checkpoints / ASIDE}"
    log(f"migrated: `mosq pipeline run` goes on behind the last row; the old files are in {where}: delete them later")


# ---- Delta tables of an earlier version


def _upgraded(settings: "Settings", about: dict[str, Any], log: "Log") -> bool:
    if about["format"] == progress.FORMAT:
        log("the tables are of this version: nothing is changed")
        return False
    if about["format"] != 2:
        raise MosqPipelineError(
            f"{settings.checkpoints}: written by a later version of mosq (format {about['format']}): update mosq"
        )
    node = about["settings"].get("node") or settings.sources[0].node
    progress.check_nodes(settings, {node})
    record = Table.open(place_of(settings), PROGRESS)
    if record is None and about["made"]:
        raise MosqPipelineError(
            f"{place_of(settings).child(PROGRESS).uri}: there is no table: is the storage of the tables mounted?"
        )
    if record is not None:
        state = progress.of_table(record)
        if "node" in (state["setup"] or {}):
            state["setup"] = _with_nodes(state["setup"], node)
            state["step"] += 1
            progress.put_after(record, about["app"], state)
    about |= {"settings": _with_nodes(about["settings"], node), "format": progress.FORMAT, "first": node}
    progress.put(settings.checkpoints / IDENTITY, about)
    log("migrated: `mosq pipeline run` goes on")
    return True


def _with_nodes(setup: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the settings of tables with the broker's name in the keys of streams."""
    found = {key: one for key, one in setup.items() if key != "node"}
    return found | {"streams": {f"{node}/{name}": one for name, one in setup["streams"].items()}}
