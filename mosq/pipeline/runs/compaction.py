"""Merge the small files of many batches into large ones, while other processes read and write the table.

Consecutive batches become one until it is large. A merged batch has less than twice the limit, because a rebuild
processes one batch at a time. The merged rows replace the last batch of their range in a copy of the table's folder;
all other files there are links. Then the two folders change places in one step, and the files of the old one are
deleted.

A reader that listed the table before and opens a file after the exchange finds the file missing, and must begin again.
A reader that lists during the exchange finds the old names, the new names, or old names that it cannot open. No reader
finds a row twice or misses one, as long as it lists all files before it reads the first one, as Spark and DuckDB do.

A process that is killed before the exchange has changed nothing; killed after it, it leaves the old folder. The next
compaction removes the leftovers. Memory: a row group of one file that is read, and one of the file that is written.
"""

import ctypes
import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError, state, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from mosq.pipeline.settings import Settings

# a batch of this size stays unchanged
LARGE_BYTES = 128 << 20
LARGE_ROWS = 5_000_000
# limits of a row group
GROUP_BYTES = 64 << 20
GROUP_ROWS = 128 << 10
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def compact_all(settings: "Settings", at_least: int) -> "Iterator[str]":
    """Compact all tables; yield a line for each. Batches that the jobs have not finished stay unchanged."""
    with alone(settings):
        state.check_rebuilt(settings)
        done = state.after(settings)["batch"]
        for table in tables.tables_in(settings.tables):
            if not tables.about(table).get("whole"):
                name = table.relative_to(settings.tables)
                merged, into = compact(table, done, at_least)
                yield f"{name}: {merged:,} batches merged into {into:,}" if merged else f"{name}: nothing to merge"


def alone(settings: "Settings") -> "AbstractContextManager[None]":
    """Lock the tables, so that only one process merges or rebuilds them."""
    busy = f"{settings.tables}: another `mosq pipeline compact` or `run --rebuild` works on these tables; wait for it"
    return state.locked(settings.checkpoints / "compact.lock", busy)


def compact(table: Path, upto: int, at_least: int = 2) -> tuple[int, int]:
    """Merge small batches; return how many batches became how many, or (0, 0) if too few are small."""
    new = table.parent / f".{table.name}.new"
    with _alone(table):
        shutil.rmtree(new, ignore_errors=True)
        known = tables.about(table)
        if known["partition_by"]:
            raise MosqPipelineError(
                f"{table} is partitioned by {', '.join(known['partition_by'])}: such tables are not merged"
            )
        ranges = _ranges(table, upto)
        gone = {number for numbers in ranges for number in numbers}
        if len(gone) < at_least:
            return 0, 0
        try:
            for numbers in ranges:
                _merge(table, numbers, new)
            _put_in_place(new, table, gone)
        except (OSError, MosqPipelineError) as error:
            shutil.rmtree(new, ignore_errors=True)  # the unfinished copy, or the old folder
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise MosqPipelineError(
                    f"{table}: no space left to merge it; merging needs as much free space as its small files have."
                    " Free some space, and compact again; no data is lost"
                ) from error
            raise
        _emptied(new)
    return len(gone), len(ranges)


def _emptied(old: Path) -> None:
    """Delete the files of the old folder, but keep the names of its batches until the next compaction.

    A reader that opened the folder before the exchange and lists it only now would otherwise find some of the batches,
    or none, and take that for the table.
    """
    (old / tables.ABOUT).unlink()
    for batch in old.glob("batch_id=*"):
        for path in batch.iterdir():
            path.unlink()


def _put_in_place(new: Path, table: Path, gone: set[int]) -> None:
    with tables.locked(table):
        for path in table.glob("batch_id=*"):
            if tables.batch_of(table, path) not in gone:
                shutil.copytree(path, new / path.name, copy_function=os.link)
        known = tables.about(table)
        tables.put_about(new, known | {"compacted": max(*gone, known["compacted"])})
        tables.sync_tree(new)
        _exchange(new, table)
        tables.sync(table.parent)


def _alone(table: Path) -> "AbstractContextManager[None]":
    busy = f"{table} is being compacted by another process; wait for it"
    return state.locked(table.parent / f".{table.name}.compact.lock", busy)


def _ranges(table: Path, upto: int) -> list[list[int]]:
    """Return the batches that become one: neighbours, up to the one that makes the merged batch large."""
    found: list[list[int]] = [[]]
    n_bytes = n_rows = 0
    for number in tables.batches(table):
        if number > upto:
            break
        size = sum(path.stat().st_size for path in tables.files(table, number))
        rows = tables.count(table, number)
        if size >= LARGE_BYTES or rows >= LARGE_ROWS or n_bytes >= LARGE_BYTES or n_rows >= LARGE_ROWS:
            found.append([])
            n_bytes = n_rows = 0
        found[-1].append(number)
        n_bytes, n_rows = n_bytes + size, n_rows + rows
    return [numbers for numbers in found if len(numbers) > 1]


def _merge(table: Path, numbers: list[int], new: Path) -> None:
    import pyarrow.parquet as pq

    folder = new / f"batch_id={numbers[-1]}"
    folder.mkdir(parents=True)
    files = [path for number in numbers for path in tables.files(table, number)]
    schema = _plain(pq.read_schema(files[-1]))
    rows = 0
    # a name that no reader has listed before: a listed name must not get other rows
    with pq.ParquetWriter(folder / f"merged-{numbers[0]}-{numbers[-1]}.parquet", schema, compression="snappy") as out:
        for group in _groups(files, schema):
            out.write_table(group)
            rows += group.num_rows
    counted = sum(pq.read_metadata(path).num_rows for path in files)
    if rows != counted:
        raise MosqPipelineError(
            f"{table}: {counted:,} rows are in batches {numbers[0]} to {numbers[-1]}, but {rows:,} were read: is a"
            " file damaged? Nothing was changed"
        )


def _groups(files: list[Path], schema: Any) -> "Iterator[Any]":
    """Yield the rows as tables; each becomes a row group."""
    import pyarrow as pa

    waiting: list[Any] = []
    n_rows = n_bytes = 0
    for batch in _batches(files):
        waiting.append(batch.cast(schema))
        n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + batch.nbytes
        if n_rows >= GROUP_ROWS or n_bytes >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, n_rows, n_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _batches(files: list[Path]) -> "Iterator[Any]":
    """Yield batches of about GROUP_BYTES, and at most GROUP_ROWS rows."""
    import pyarrow.parquet as pq

    for path in files:
        with pq.ParquetFile(path) as found:
            metadata = found.metadata
            n_bytes = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
            most = max(1, min(GROUP_ROWS, metadata.num_rows * GROUP_BYTES // max(n_bytes, 1)))
            yield from found.iter_batches(most)


def _plain(schema: Any) -> Any:
    """Return the schema without nullability and metadata: files of one table differ in these."""
    import pyarrow as pa

    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])


def _exchange(new: Path, table: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(table), RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        raise MosqPipelineError(
            f"{table}: this file system cannot exchange two folders, so tables on it are not merged; ext4,"
            " XFS, Btrfs and tmpfs can"
        )
    raise OSError(code, os.strerror(code), str(table))
