"""Keep tables small and fast: merge small files, delete old rows, erase rows; cleaning.py deletes replaced files.

All of it happens in commits of Delta, so a reader sees one version before, during and after it. A reader of an older
version has some minutes (Table.kept_s) until the files that only this version names are deleted.
"""

import datetime
import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake.cleaning import clean
from mosq.pipeline.lake.parts import DATE, WINDOW, Part, PartWriter, is_windowed
from mosq.pipeline.lake.table import Table, _date, _hooks, _properties, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # gets the table, the rows that will be deleted as an expression of pyarrow, and the date before which all are
    Record = Callable[[Table, Any, datetime.date | None], None]

TARGET_BYTES = 128 << 20  # of a merged file
AT_LEAST = 8  # small files of one date, before they are merged
NEWEST_AT_LEAST = 48  # of the newest date: batches add to it, so it would be merged again and again
GOLD_ROWS = 4_000_000  # of a merged gold file, which is made in memory
MERGES = "mosq/merges"  # the name under which commits of merges are numbered
ERASE = "erase"  # what the commit of an erasure says of itself
TIME = "time"
FULL_EVERY_S = 12 * 3600


@dataclass(frozen=True)
class Plan:
    """Hold what to do with a table: `keep_us` None keeps all rows; `closed` ends the windows that no batch changes.

    `newest_at_least` is for a table that batches add to: the newest date needs so many small files, and those that are
    large already wait (see _doubling). 0: the newest date is merged as any other one.
    """

    keep_us: int | None = None
    closed: datetime.datetime | None = None
    at_least: int = AT_LEAST
    newest_at_least: int = 0
    full: bool = False
    cleans: bool = True  # delete replaced files and old logs
    record: "Record | None" = None  # is called before rows are deleted


def tend(table: Table, plan: Plan) -> str:
    """Do everything that the table needs now; return what was done."""
    done = []
    table.refresh()
    if plan.keep_us is not None and (n := expire(table, plan.keep_us, plan.record)):
        done.append(f"{n:,} old rows deleted")
    merged, into = merge_files(table, plan)
    if merged:
        done.append(f"{merged:,} files merged into {into:,}")
    if plan.cleans and (n := clean(table, plan.full)):
        done.append(f"{n:,} replaced files deleted")
    return ", ".join(done) or "nothing to do"


def merge_files(table: Table, plan: Plan) -> tuple[int, int]:
    """Merge small files of each date, or of the whole table if it has no dates; return how many became how many."""
    if table.partition_by and is_windowed(table.schema):
        return _merge_windows(table, plan)
    adds = table.adds()
    merged = into = 0
    newest_at_least = plan.newest_at_least if table.partition_by else 0
    for date in _many(adds, plan.at_least, newest_at_least):
        files = [add for add in _small(adds).to_pylist() if add.get(f"partition.{DATE}") == date]
        if newest_at_least and date == _newest(adds):
            files = _doubling(files, "size_bytes")
        for group in _groups(files, "size_bytes", TARGET_BYTES):
            with plain(table.place.uri):
                n = _compacted(table, group)
            if n:
                merged, into = merged + len(group), into + n
    return merged, into


def _small(adds: pa.Table) -> pa.Table:
    return adds.filter(pc.less(adds["size_bytes"], TARGET_BYTES // 2))


def _many(adds: pa.Table, at_least: int, newest_at_least: int = 0) -> list[datetime.date | None]:
    """Return the dates that have at least that many small files; the newest date may need more."""
    n: dict[datetime.date | None, int] = {}
    for add in _small(adds).to_pylist():
        date = add.get(f"partition.{DATE}")
        n[date] = n.get(date, 0) + 1
    least = {_newest(adds): max(at_least, newest_at_least)} if newest_at_least else {}
    return [date for date, count in n.items() if count >= least.get(date, at_least)]


def _newest(adds: pa.Table) -> datetime.date | None:
    newest: datetime.date | None = pc.max(adds[f"partition.{DATE}"]).as_py()
    return newest


def _doubling(files: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return the files without those that are larger than all smaller ones together.

    So a merge at least doubles the size of each file in it. A row is written again about log2(TARGET_BYTES / bytes of
    a first merge) times; if each merge took the largest file too, it would be that quotient times.
    """
    largest = total = 0
    for size in sorted(add[key] for add in files):
        if size <= total:
            largest = size
        total += size
    return [add for add in files if add[key] <= largest]


def _compacted(table: Table, files: "Sequence[dict[str, Any]]") -> int:
    """Merge files of one date; return how many they became, or 0 if another commit has one of them.

    deltalake's `optimize` is not used: of two programs that merge the same files both succeed, and the rows are there
    twice.
    """
    there = {one.path: one for one in table.dataset().get_fragments()}
    if any(add["path"] not in there for add in files):
        return 0
    writer = PartWriter(table.parent, table.name, table.schema)
    for add in files:
        n = 0
        # a file may need much more memory than its size on the disk
        for batch in there[add["path"]].scanner(schema=table.schema, batch_readahead=1).to_batches():
            writer.write(batch)
            n += batch.num_rows
        if n != add["num_records"]:
            raise MosqPipelineError(f"{table.place.uri}: {add['path']} has other rows than the log says")
    return _exchanged(table, files, writer.close(), beside_appends=True)


def _merge_windows(table: Table, plan: Plan) -> tuple[int, int]:
    """Merge the files of a gold table whose windows are closed: a batch does not write those again."""
    adds = table.adds()
    if plan.closed is None or f"max.{WINDOW}" not in adds.column_names:
        return 0, 0
    newest = adds[f"max.{WINDOW}"]
    mask = pc.fill_null(pc.less(newest, pa.scalar(plan.closed, newest.type)), fill_value=False)
    mask = pc.and_(mask, pc.less(adds["num_records"], GOLD_ROWS // 2))
    merged = into = 0
    closed = adds.filter(mask)
    for date in _many(closed, plan.at_least):
        files = closed.filter(pc.equal(closed[f"partition.{DATE}"], date)).to_pylist()
        if plan.newest_at_least and date == _newest(closed):
            files = _doubling(files, "num_records")
        files.sort(key=lambda add: add[f"min.{WINDOW}"])
        for group in _groups(files, "num_records", GOLD_ROWS):
            with plain(table.place.uri):
                n = _replace_files(table, group)
            if n:
                merged, into = merged + len(group), into + n
    return merged, into


def _groups(files: list[dict[str, Any]], key: str, most: int) -> "Iterator[list[dict[str, Any]]]":
    """Yield groups of two files or more whose sum of `key` is at most `most`."""
    group: list[dict[str, Any]] = []
    total = 0
    for add in files:
        if group and total + add[key] > most:
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(add)
        total += add[key]
    if len(group) > 1:
        yield group


def _replace_files(table: Table, files: "Sequence[dict[str, Any]]") -> int:
    rows = pa.concat_tables([table._of_file(add) for add in files])
    if rows.num_rows != sum(add["num_records"] for add in files):
        raise MosqPipelineError(f"{table.place.uri}: a file has other rows than its log says; nothing was merged")
    writer = PartWriter(table.parent, table.name, table.schema)
    writer.write(rows.sort_by(WINDOW))
    return _exchanged(table, files, writer.close(), beside_appends=False)


def _exchanged(
    table: Table, files: "Sequence[dict[str, Any]]", parts: "Sequence[Part]", *, beside_appends: bool
) -> int:
    """Commit merged files in the place of others; return the number of files now, or 0 if nothing happened.

    Without `beside_appends` nothing happens if any commit came since the table was read. With it only a change of the
    same files does that: merges have a number, which only one of two programs can commit.
    """
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction

    now, number = int(time.time() * 1000), table.done(MERGES) + 1
    dated = bool(table.partition_by)
    gone = [
        RemoveAction(add["path"], False, now, add["size_bytes"], {DATE: _date(add)} if dated else {}) for add in files
    ]
    new = [
        AddAction(part.path, part.size, {DATE: part.date or None} if dated else {}, now, False, part.stats)
        for part in parts
    ]
    with plain(table.place.uri):
        try:
            table.handle.create_write_transaction(
                [*gone, *new],
                "append",
                table.schema,
                table.partition_by,
                commit_properties=_properties({}, MERGES, number, removes=not beside_appends),
                **_hooks(),
            )
        except CommitFailedError:
            table.refresh()  # another commit has one of the files: the next upkeep merges them
            return 0
        table._committed()
    return len(parts)


def expire(table: Table, keep_us: int, record: "Record | None" = None) -> int:
    """Delete the dates that ended more than `keep_us` ago; return how many rows.

    A table without dates loses the rows whose `time` is of such a date.
    """
    last = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(microseconds=keep_us)).date()
    adds = table.adds()
    if not adds.num_rows:
        return 0
    if DATE not in table.partition_by:
        return _expire_rows(table, last, record)
    dates = adds[f"partition.{DATE}"]
    old = adds.filter(pc.fill_null(pc.less(dates, pa.scalar(last, dates.type)), fill_value=False))
    if not old.num_rows:
        return 0
    n = pc.sum(old["num_records"]).as_py() or 0
    which = pc.field(DATE) < pa.scalar(last, pa.date32())
    first = None if record is None else functools.partial(record, table, which, last)
    table.delete(which, {"mosq": "retention"}, first)
    return int(n)


def _expire_rows(table: Table, last: datetime.date, record: "Record | None") -> int:
    if TIME not in table.schema.names:
        return 0
    begin = datetime.datetime.combine(last, datetime.time(), datetime.UTC)
    which = pc.field(TIME) < pa.scalar(begin, table.schema.field(TIME).type)
    first = None if record is None else functools.partial(record, table, which, last)
    return table.delete(which, {"mosq": "retention"}, first)


def erase(
    tables: "Sequence[Table]",
    client: str | None,
    topic: str | None,
    log: "Callable[[str], object]",
    record: "Record | None" = None,
) -> int:
    """Delete all rows of a client or topic from the tables; return how many. Older versions lose them kept_s later."""
    n = 0
    wanted = {name: value for name, value in (("client_id", client), ("topic", topic)) if value is not None}
    for table in tables:
        names = table.refresh().schema.names
        if not wanted or any(name not in names for name in wanted):
            continue
        which = pc.scalar(True)
        for name, value in wanted.items():
            which &= pc.field(name) == value
        first = None if record is None else functools.partial(record, table, which, None)
        deleted = table.delete(which, {"mosq": ERASE}, first)
        if deleted:
            log(f"{table.name}: {deleted:,} rows erased")
        n += deleted
    return n
