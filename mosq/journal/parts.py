"""A stream of a broker with several workers has a part for each worker: a journal of its own.

    streams/NAME/            the part of a broker that is one process, number 0
    streams/NAME/worker.2/   the part of worker 2

Shard number S of part P is shard P * STRIDE + S of the stream, so each shard keeps its number when workers come and go,
or when the shards of a part become more. Numbers between two parts have no shard: their marks are those of a shard
without a record.
Only reads, apart from put_consumer of stream.py.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

STRIDE = 64                     # JOURNAL_SHARDS_MAX of cext/journal/format.pxd
PART = re.compile(r"worker\.([1-9]\d?)")
NO_SHARD = {"first_seq": 0, "seq": 0, "segment": 0, "offset": 0, "behind": 0, "time_us": 0}


def part_folder(path: "str | os.PathLike[str]", part: int) -> Path:
    """Return the folder of a part."""
    return Path(path) / f"worker.{part}" if part else Path(path)


def later_parts(path: "str | os.PathLike[str]") -> list[int]:
    """Return the numbers of the parts of workers, in order."""
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(found[1]) for name in names if (found := PART.fullmatch(name)))


def marks_of(path: "str | os.PathLike[str]") -> "_core.Marks":
    """Return the mark of a stream, with those of all its parts. Raises FileNotFoundError if there is none, or another
    OSError."""
    later = later_parts(path)
    if not later:
        return _core.marks(path)
    found: dict[int, _core.Marks] = {}
    for part in (0, *later):
        try:
            found[part] = _core.marks(part_folder(path, part))
        except FileNotFoundError:
            continue                    # it has not begun
    if not found:
        raise FileNotFoundError(2, os.strerror(2), str(path))
    shards: list[Any] = []
    for part, marks in found.items():
        shards += [dict(NO_SHARD) for _ in range(part * STRIDE - len(shards))]
        shards += marks["shards"]
    newest = max(found.values(), key=lambda marks: marks["made_us"])
    return {**newest, "shards": shards}


def parts_of(path: "str | os.PathLike[str]") -> dict[int, int]:
    """Return the number of shards of each part that has a mark. Raises OSError."""
    found = {}
    for part in (0, *later_parts(path)):
        try:
            found[part] = len(_core.marks(part_folder(path, part))["shards"])
        except FileNotFoundError:
            continue
    return found


def shards_of(path: "str | os.PathLike[str]") -> list[int]:
    """Return the numbers of all shards."""
    return [part * STRIDE + shard for part, count in parts_of(path).items() for shard in range(count)]


def reader_of(path: "str | os.PathLike[str]", shard: int) -> "_core.PyReader":
    """Return a reader of one shard. Raises FileNotFoundError if there is none, or another OSError."""
    part, number = divmod(shard, STRIDE)
    return _core.PyReader(part_folder(path, part), number)


def consumers_of(path: "str | os.PathLike[str]") -> "dict[str, tuple[int, list[int]] | None]":
    """Return name -> (time of the last change in microseconds, [sequence number of each shard]); None: a mark of the
    consumer cannot be read. Raises OSError."""
    out: dict[str, tuple[int, list[int]] | None] = {}
    for part in (0, *later_parts(path)):
        try:
            found = _core.consumers(part_folder(path, part))
        except FileNotFoundError:
            continue
        for name, mark in found.items():
            had = out.get(name, (0, []))
            if had is None or mark is None:
                out[name] = None
                continue
            seqs = had[1] + [0] * (part * STRIDE - len(had[1])) + list(mark[1])
            out[name] = max(had[0], mark[0]), seqs
    return out


def divided(path: "str | os.PathLike[str]", seqs: "Sequence[int]") -> "list[tuple[Path, Sequence[int]]]":
    """Return the folder of each part, and its numbers of a list with one for each shard."""
    if not later_parts(path):
        return [(Path(path), seqs)]
    out: list[tuple[Path, Sequence[int]]] = []
    for part, count in parts_of(path).items():
        own = list(seqs[part * STRIDE:part * STRIDE + count])
        out.append((part_folder(path, part), own + [0] * (count - len(own))))
    return out
