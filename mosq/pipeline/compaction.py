"""Merges the small files of many batches into large ones, while others read and write the table.

The merged rows take the place of the last batch of their range, in a copy of the table's folder (all other files are
links); then the two folders change places in one step, and the old one goes. Who has listed the table before and opens
a file after that finds it missing, and must begin again; who lists while it happens finds the old names, the new ones,
or old ones that he cannot open. Nobody finds a row twice or not at all, as long as he lists files before he reads the
first one, as Spark and DuckDB do.

Killed before the change, it has changed nothing; killed after it, it leaves the old folder, which the next one
removes."""

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

LARGE_BYTES = 128 << 20  # a batch of so much is left as it is
FILE_ROWS = 5_000_000
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def compact_all(settings: "Settings", at_least: int) -> "Iterator[str]":
    """A line for each table. What the jobs are not done with is left alone."""
    with alone(settings):
        state.check_rebuilt(settings)
        done = state.after(settings)["batch"]
        for about in sorted(settings.tables.glob(f"**/{tables.ABOUT}")):
            table = about.parent
            if not table.name.startswith("."):
                name = table.relative_to(settings.tables)
                merged = compact(table, done, at_least)
                yield f"{name}: {merged:,} batches merged into one" if merged else f"{name}: nothing to merge"


def alone(settings: "Settings") -> "AbstractContextManager[None]":
    """Tables are merged, or made anew, by one process."""
    busy = f"{settings.tables}: another `mosq pipeline compact` or `run --rebuild` works on these tables; wait for it"
    return state.locked(settings.checkpoints / "compact.lock", busy)


def compact(table: Path, upto: int, at_least: int = 2) -> int:
    """-> how many batches became one; 0: too few that are small."""
    new = table.parent / f".{table.name}.new"
    with _alone(table):
        shutil.rmtree(new, ignore_errors=True)
        said = tables.about(table)
        if said["partition_by"]:
            raise MosqPipelineError(
                f"{table} is partitioned by {', '.join(said['partition_by'])}: such tables are not merged"
            )
        chosen = _chosen(table, upto)
        if len(chosen) < at_least:
            return 0
        try:
            _merge(table, chosen, new)
            with tables.locked(table):
                for path in table.glob("batch_id=*"):
                    if int(path.name.partition("=")[2]) not in chosen:
                        shutil.copytree(path, new / path.name, copy_function=os.link)
                tables.put_about(new, tables.about(table) | {"compacted": max(chosen[-1], said["compacted"])})
                tables.sync_tree(new)
                _exchange(new, table)
                tables.sync(table.parent)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)  # what was begun, or what it took the place of
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise MosqPipelineError(
                    f"{table}: no space left to merge it, which for a moment takes as much as its small files have:"
                    " free some, and compact again; nothing is lost"
                ) from error
            raise
        shutil.rmtree(new)
    return len(chosen)


def _alone(table: Path) -> "AbstractContextManager[None]":
    busy = f"{table} is being compacted by another process; wait for it"
    return state.locked(table.parent / f".{table.name}.compact.lock", busy)


def _chosen(table: Path, upto: int) -> list[int]:
    """The batches behind the last large one, in their order."""
    found: list[int] = []
    for number in reversed([number for number in tables.batches(table) if number <= upto]):
        if sum(path.stat().st_size for path in tables.files(table, number)) >= LARGE_BYTES:
            break
        found.insert(0, number)
    return found


def _merge(table: Path, chosen: list[int], new: Path) -> None:
    import pyarrow.parquet as pq

    folder = new / f"batch_id={chosen[-1]}"
    folder.mkdir(parents=True)
    files = [path for number in chosen for path in tables.files(table, number)]
    writer: Any = None
    written = n_files = rows = 0
    try:
        for path in files:
            found = pq.ParquetFile(path)
            if path is files[-1] and writer is None and found.metadata.num_rows == 0:
                # batches of nothing become one: readers want a file to know the columns from
                empty = found.read().cast(_plain(found.schema_arrow))
                pq.write_table(empty, folder / f"merged-{chosen[0]}-{chosen[-1]}-0.parquet")
            for batch in found.iter_batches():
                if writer is None or written >= FILE_ROWS:
                    if writer is not None:
                        writer.close()
                    schema = _plain(batch.schema)
                    # a name that no reader has listed before: what it listed it must not find again with other rows
                    writer = pq.ParquetWriter(
                        folder / f"merged-{chosen[0]}-{chosen[-1]}-{n_files}.parquet", schema, compression="snappy"
                    )
                    n_files, written = n_files + 1, 0
                writer.write_batch(batch.cast(schema))
                written += batch.num_rows
                rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    counted = sum(pq.read_metadata(path).num_rows for path in files)
    if rows != counted:
        raise MosqPipelineError(
            f"{table}: {counted:,} rows are in batches {chosen[0]} to {chosen[-1]}, and {rows:,} were read: is a file"
            " damaged? Nothing was changed"
        )


def _plain(schema: Any) -> Any:
    """Files of one table differ in what they say of nulls, and of who wrote them."""
    import pyarrow as pa

    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])


def _exchange(new: Path, table: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(table), RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    shutil.rmtree(new, ignore_errors=True)
    if code in (errno.EINVAL, errno.ENOSYS):
        raise MosqPipelineError(
            f"{table}: this file system cannot let two folders change places, so tables on it are not merged; ext4,"
            " XFS, Btrfs and tmpfs can"
        )
    raise OSError(code, os.strerror(code), str(table))
