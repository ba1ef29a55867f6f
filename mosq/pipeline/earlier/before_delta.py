"""Read the tables of mosq before Delta: bronze in `bronze/batch_id=N`, and the files beside Spark's checkpoint.

A batch of such a table could lack rows, or have rows twice, if its run was killed and the JVM of that run lived on. So
numbers that bronze lacks come from the journal, as far as the journal has them; a row of kind 10 (gap) stands for the
others. A row that is there twice is taken once.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mosq.journal.kinds import GAP
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.rows.positions import FROM
from mosq.pipeline.runs import progress
from mosq.pipeline.source.rows import SCHEMA, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.journal import Stream
    from mosq.pipeline.settings import Settings

SETUP, ABOUT = "setup.json", "_table.json"
FORMAT = 1
OLD_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "cluster_node"])
READ_ROWS = 1 << 16
OldPlace = tuple[str, int]  # stream, shard


def _damaged(path: Path, error: Exception) -> MosqPipelineError:
    why = str(error).partition("\n")[0]
    return MosqPipelineError(
        f"{path} cannot be read ({why}): restore it; or remove the file, then its rows are read from the journal, as"
        " far as it has them"
    )


@dataclass(frozen=True)
class Old:
    """Name the old tables and what is known of them."""

    tables: Path
    setup: dict[str, Any]
    ends: dict[OldPlace, int]  # the number behind the last batch, by Spark's checkpoint

    @classmethod
    def find(cls, settings: "Settings", folder: Path) -> "Old | None":
        """Return the old tables whose checkpoints are in `folder`; None if there are none."""
        setup = progress.get(folder / SETUP)
        if setup is None:
            return None
        if not isinstance(setup, dict) or not {"format", "tables", "streams", "jobs"} <= setup.keys():
            raise MosqPipelineError(
                f"{folder / SETUP} is damaged: expected format, tables, streams and jobs in it; restore it"
            )
        if setup["format"] != FORMAT:
            raise MosqPipelineError(
                f"{folder / SETUP}: written by another version of mosq (format {setup['format']}): update"
            )
        places = [Path(setup["tables"])]
        if "://" not in settings.tables:
            places.insert(0, Path(settings.tables))
        for place in places:
            if (place / progress.BRONZE / ABOUT).exists():
                about = progress.get(place / progress.BRONZE / ABOUT)
                if about.get("format") != FORMAT:
                    raise MosqPipelineError(
                        f"{place / progress.BRONZE / ABOUT}: written by another version of mosq: update"
                    )
                return cls(place, setup, _ends(folder / progress.QUERY))
        listed = " or ".join(map(str, dict.fromkeys(places)))
        raise MosqPipelineError(
            f"there is no table bronze in {listed}, but {folder} says that there is one: is the storage of the tables"
            " mounted? Mount or restore it"
        )

    def batches(self) -> list[list[Path]]:
        """Return the files of each batch of bronze, in the order of the batches."""
        folders = {
            int(number): path
            for path in (self.tables / progress.BRONZE).glob("batch_id=*")
            if (number := path.name.partition("=")[2]).isdecimal()
        }
        return [sorted(folders[number].rglob("*.parquet")) for number in sorted(folders)]

    def rows(self) -> int:
        """Return the number of rows of bronze, from the metadata of its files."""
        n = 0
        for files in self.batches():
            for path in files:
                try:
                    n += pq.read_metadata(path).num_rows
                except (OSError, pa.ArrowException) as error:
                    raise _damaged(path, error) from None
        return n


def _ends(folder: Path) -> dict[OldPlace, int]:
    """Return the number behind the last finished batch of each shard, from Spark's checkpoint; {} if it is gone."""
    done = [int(path.name) for path in (folder / "commits").glob("[0-9]*") if path.name.isdecimal()]
    if not done:
        return {}
    offsets = folder / "offsets" / str(max(done))
    try:
        streams = json.loads(offsets.read_text().splitlines()[2])["streams"]
        return {(name, i): int(hi) for name, one in streams.items() for i, hi in enumerate(one["next"])}
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise MosqPipelineError(
            f"{offsets} cannot be read ({error}): restore it, or remove {folder}, then the tables end where bronze ends"
        ) from None


@dataclass
class Chunk:
    """Hold some batches of bronze: which rows to take, and what to take from the journal."""

    masks: list[tuple[Path, Any]]  # of each file: which of its rows are taken
    holes: dict[OldPlace, list[tuple[int, int]]]
    ranges: dict[OldPlace, tuple[int, int]]  # [from, up to) of all rows
    rows: int = 0
    doubled: int = 0


@dataclass
class _Keys:
    """Collect stream, shard and number of the rows of some files."""

    codes: dict[OldPlace, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    code: list[Any] = field(default_factory=list)
    seq: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)  # the number behind a row: of a gap, that behind the gap

    def add(self, path: Path) -> None:
        try:
            rows = pq.read_table(path, columns=["stream", "shard", "seq", "kind", "time"], partitioning=None)
            gaps = pc.and_(pc.equal(rows["kind"], GAP), pc.is_null(rows["time"]))
            payloads = pq.read_table(path, columns=["payload"], partitioning=None) if pc.any(gaps).as_py() else None
        except (OSError, pa.ArrowException) as error:
            raise _damaged(path, error) from None
        coded = rows["stream"].combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        which = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        shard = rows["shard"].to_numpy().astype(np.int64)
        code = np.zeros(len(which), np.int64)
        for pair in np.unique(np.stack([which, shard], axis=1), axis=0).tolist():
            place = (names[pair[0]], pair[1])
            code[(which == pair[0]) & (shard == pair[1])] = self.codes.setdefault(place, len(self.codes))
        seq = rows["seq"].to_numpy()
        end = seq + 1
        if payloads is not None:
            for i in np.flatnonzero(gaps.to_numpy(zero_copy_only=False)).tolist():
                found = FROM.search(payloads["payload"][i].as_py() or b"")
                end[i] = int(found[2]) + 1 if found else end[i]
        self.files.append(path)
        self.sizes.append(len(seq))
        for had, new in ((self.code, code), (self.seq, seq), (self.end, end)):
            had.append(new)


class Reader:
    """Read bronze as chunks, each behind the one before. `streams` are those of the journal, by their names."""

    def __init__(self, old: Old, streams: "dict[str, Stream]", chunk_rows: int) -> None:
        self.old, self.streams, self.chunk_rows = old, streams, chunk_rows
        self.filled = self.lost = self.doubled = 0  # rows from the journal, numbers without a record, rows left out

    def chunks(self, at: dict[OldPlace, int]) -> "Iterator[Chunk]":
        """Yield the chunks behind `at`, the next number of each place; `at` follows them.

        The chunks behind a position are the same in each attempt, so a killed migration goes on with equal batches.
        """
        waiting: list[Chunk] = []
        for files in self.old.batches():
            one = self._chunk(files, at)
            if one.ranges:
                waiting.append(one)
            if sum(chunk.rows for chunk in waiting) >= self.chunk_rows:
                yield _joined(waiting)
                waiting = []
        tail = {place: (at[place], hi) for place, hi in self.old.ends.items() if place in at and at[place] < hi}
        if tail:
            waiting.append(Chunk([], {place: [span] for place, span in tail.items()}, tail))
            at.update({place: hi for place, (_, hi) in tail.items()})
        if waiting:
            yield _joined(waiting)

    def _chunk(self, files: list[Path], at: dict[OldPlace, int]) -> Chunk:
        """Return what to take of one batch, and move `at` behind it."""
        keys = _Keys()
        for path in files:
            keys.add(path)
        found = Chunk([], {}, {})
        if not any(keys.sizes):
            return found
        code, seq, end = (np.concatenate(arrays) for arrays in (keys.code, keys.seq, keys.end))
        take = np.zeros(len(seq), bool)
        for place, number in keys.codes.items():
            mine = np.flatnonzero(code == number)
            at.setdefault(place, self._begin(place, int(seq[mine].min())))
            mine = mine[seq[mine] >= at[place]]
            each, first = np.unique(seq[mine], return_index=True)
            found.doubled += len(mine) - len(each)
            if not len(each):
                continue
            take[mine[first]] = True
            ends = np.maximum.accumulate(end[mine[first]])
            before = np.r_[at[place], ends[:-1]]
            holes = np.flatnonzero(each > before)
            found.holes[place] = [(int(before[i]), int(each[i])) for i in holes]
            found.ranges[place] = (at[place], int(ends[-1]))
            at[place] = int(ends[-1])
        found.rows = int(np.count_nonzero(take))
        edges = np.cumsum([0, *keys.sizes])
        found.masks = [(path, take[edges[i] : edges[i + 1]]) for i, path in enumerate(keys.files)]
        return found

    def _begin(self, place: OldPlace, least: int) -> int:
        """Return the first number of a place: records before bronze's first one that the journal has are missing."""
        stream = self.streams[place[0]]
        return min(least, stream.marks()[place[1]].first_seq)

    def rows(self, chunk: Chunk) -> "Iterator[Any]":
        """Yield the rows of a chunk as RecordBatches with the columns of the source."""
        self.doubled += chunk.doubled
        for path, mask in chunk.masks:
            if not mask.any():
                continue
            done = 0
            try:
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches(READ_ROWS, columns=OLD_SCHEMA.names):
                        here = mask[done : done + batch.num_rows]
                        done += batch.num_rows
                        if here.any():
                            rows = batch if here.all() else batch.filter(pa.array(here))
                            yield rows.select(OLD_SCHEMA.names).cast(OLD_SCHEMA)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(path, error) from None
        for (name, shard), holes in chunk.holes.items():
            path = self.streams[name].path
            end = self.streams[name].marks()[shard].seq
            for lo, hi in holes:
                if hi > end:
                    raise MosqPipelineError(
                        f"{path}: shard {shard} ends at {end:,}, and the tables have numbers behind it: an older copy"
                        " of the journal? Restore the newer one"
                    )
                for batch in read_range(name, path, shard, lo, hi, fail_on_loss=False):
                    gaps = pc.and_(pc.equal(batch["kind"], GAP), pc.is_null(batch["time"]))
                    lost = [json.loads(one)["lost"] for one in batch.filter(gaps)["payload"].to_pylist()]
                    self.filled += batch.num_rows - len(lost)
                    self.lost += sum(lost)
                    yield batch


def _joined(chunks: list[Chunk]) -> Chunk:
    found = Chunk([], {}, {})
    for one in chunks:
        found.masks += one.masks
        found.rows += one.rows
        found.doubled += one.doubled
        for place, holes in one.holes.items():
            found.holes.setdefault(place, []).extend(holes)
        for place, (lo, hi) in one.ranges.items():
            found.ranges[place] = (found.ranges.get(place, (lo, hi))[0], hi)
    return found
