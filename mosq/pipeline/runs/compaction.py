"""Merges the small files of many batches into large ones, while others read and write the table.

Batches that follow one another become one until it is large (so it has less than twice of what that is: a rebuild does
one at a time). Its rows take the place of the last one of its range, in a copy of the table's folder (all other files
are links); then the two folders change places in one step, and the files of the old one go. Who has listed the table
before and opens a file after that finds it missing, and must begin again; who lists while it happens finds the old
names, the new ones, or old ones that he cannot open. Nobody finds a row twice or not at all, as long as he lists files
before he reads the first one, as Spark and DuckDB do.

Killed before the change, it has changed nothing; killed after it, it leaves the old folder. The next one removes what
is left over. Memory: a row group of a file that is read, and one of the file that is written."""

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

# a batch of so much is left as it is
LARGE_BYTES = 128 << 20
LARGE_ROWS = 5_000_000
# of a row group
GROUP_BYTES = 64 << 20
GROUP_ROWS = 128 << 10
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def compact_all(settings: "Settings", at_least: int) -> "Iterator[str]":
    """A line for each table. What the jobs are not done with is left alone."""
    with alone(settings):
        state.check_rebuilt(settings)
        done = state.after(settings)["batch"]
        for about in sorted(settings.tables.glob(f"**/{tables.ABOUT}")):
            table = about.parent
            if not table.name.startswith(".") and not tables.about(table).get("whole"):
                name = table.relative_to(settings.tables)
                merged, into = compact(table, done, at_least)
                yield f"{name}: {merged:,} batches merged into {into:,}" if merged else f"{name}: nothing to merge"


def alone(settings: "Settings") -> "AbstractContextManager[None]":
    """Tables are merged, or made anew, by one process."""
    busy = f"{settings.tables}: another `mosq pipeline compact` or `run --rebuild` works on these tables; wait for it"
    return state.locked(settings.checkpoints / "compact.lock", busy)


def compact(table: Path, upto: int, at_least: int = 2) -> tuple[int, int]:
    """-> how many batches became how many; (0, 0): too few that are small."""
    new = table.parent / f".{table.name}.new"
    with _alone(table):
        shutil.rmtree(new, ignore_errors=True)
        said = tables.about(table)
        if said["partition_by"]:
            raise MosqPipelineError(
                f"{table} is partitioned by {', '.join(said['partition_by'])}: such tables are not merged"
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
            shutil.rmtree(new, ignore_errors=True)  # what was begun, or what it took the place of
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise MosqPipelineError(
                    f"{table}: no space left to merge it, which for a moment takes as much as its small files have:"
                    " free some, and compact again; nothing is lost"
                ) from error
            raise
        _emptied(new)
    return len(gone), len(ranges)


def _emptied(old: Path) -> None:
    """The names of its batches stay until the next time: who has opened the folder before the change, and lists it only
    now, would else find some of them, or none, and take that for the table."""
    (old / tables.ABOUT).unlink()
    for batch in old.glob("batch_id=*"):
        for path in batch.iterdir():
            path.unlink()


def _put_in_place(new: Path, table: Path, gone: set[int]) -> None:
    with tables.locked(table):
        for path in table.glob("batch_id=*"):
            if tables.batch_of(table, path) not in gone:
                shutil.copytree(path, new / path.name, copy_function=os.link)
        said = tables.about(table)
        tables.put_about(new, said | {"compacted": max(*gone, said["compacted"])})
        tables.sync_tree(new)
        _exchange(new, table)
        tables.sync(table.parent)


def _alone(table: Path) -> "AbstractContextManager[None]":
    busy = f"{table} is being compacted by another process; wait for it"
    return state.locked(table.parent / f".{table.name}.compact.lock", busy)


def _ranges(table: Path, upto: int) -> list[list[int]]:
    """Batches that become one: neighbours, up to the one that makes it large."""
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
    # a name that no reader has listed before: what it listed it must not find again with other rows
    with pq.ParquetWriter(folder / f"merged-{numbers[0]}-{numbers[-1]}.parquet", schema, compression="snappy") as out:
        for group in _groups(files, schema):
            out.write_table(group)
            rows += group.num_rows
    counted = sum(pq.read_metadata(path).num_rows for path in files)
    if rows != counted:
        raise MosqPipelineError(
            f"{table}: {counted:,} rows are in batches {numbers[0]} to {numbers[-1]}, and {rows:,} were read: is a file"
            " damaged? Nothing was changed"
        )


def _groups(files: list[Path], schema: Any) -> "Iterator[Any]":
    """The rows as tables, each of which becomes a row group."""
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
    """Of so many rows that they have GROUP_BYTES, about, and GROUP_ROWS, at most."""
    import pyarrow.parquet as pq

    for path in files:
        with pq.ParquetFile(path) as found:
            said = found.metadata
            n_bytes = sum(said.row_group(i).total_byte_size for i in range(said.num_row_groups))
            most = max(1, min(GROUP_ROWS, said.num_rows * GROUP_BYTES // max(n_bytes, 1)))
            yield from found.iter_batches(most)


def _plain(schema: Any) -> Any:
    """Files of one table differ in what they say of nulls, and of who wrote them."""
    import pyarrow as pa

    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])


def _exchange(new: Path, table: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(table), RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        raise MosqPipelineError(
            f"{table}: this file system cannot let two folders change places, so tables on it are not merged; ext4,"
            " XFS, Btrfs and tmpfs can"
        )
    raise OSError(code, os.strerror(code), str(table))
