"""Find the streams of a read in their folder, with the positions in their marks. This needs no lock and no broker."""

from typing import TYPE_CHECKING, NamedTuple

from mosq import _core
from mosq.journal import Stream
from mosq.journal.folders import is_stream, streams_below
from mosq.journal.parts import marks_of
from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from mosq.pipeline.source.options import Options, Position, Source


class Seen(NamedTuple):
    """Hold the current state of a stream: for each shard its oldest record, and the number after its last on the disk.

    `key` is the stream's name, or NODE/NAME if the streams of several brokers are read.
    """

    key: str
    path: "Path"
    id: str
    first: list[int]
    end: list[int]


def look(key: str, path: "Path") -> Seen:
    """Return the state of a stream. Raises MosqPipelineError if it has no readable mark."""
    try:
        marks = marks_of(path)
    except FileNotFoundError:
        raise MosqPipelineError(
            f"there is no stream in {path}: name another one, or configure `stream {path.name} FILTER`; if a broker "
            "has it, start that broker once, which writes the mark again"
        ) from None
    except OSError as error:
        if _core.passing(error.errno or 0):
            raise MosqPipelineError(
                f"the mark of the stream in {path} cannot be read now ({error.strerror}): no record was skipped, and "
                "the same query continues where it was; let this process open it, and enough files (ulimit -n)"
            ) from error
        raise MosqPipelineError(
            f"the mark of the stream in {path} cannot be read ({error.strerror}): it was written by a later version of "
            "mosq, or it is damaged, which the broker's next start repairs"
        ) from error
    shards = marks["shards"]
    return Seen(
        key, path, marks["stream_id"], [mark["first_seq"] for mark in shards], [mark["seq"] for mark in shards]
    )


def find(options: "Options") -> dict[str, Seen]:
    """Return the streams by their keys, in the order of keys."""
    found: dict[str, Seen] = {}
    for source in sorted(options.sources):
        found |= _of_source(source)
    return found


def key_of(node: str, stream: str) -> str:
    """Return the key of a stream in offsets."""
    return f"{node}/{stream}" if node else stream


def _of_source(source: "Source") -> dict[str, Seen]:
    path = source.path
    if not path.is_dir():
        raise MosqPipelineError(f"there is no folder {path}: docs/pipeline-source.md describes where streams are")
    # the path is the folder of one stream, or of several
    found = {path.name: path} if is_stream(path) else streams_below(path)
    names = source.streams or sorted(found)
    if missing := [name for name in names if name not in found]:
        raise MosqPipelineError(
            f"there is no stream {', '.join(missing)} in {path}; there are: {', '.join(sorted(found)) or 'none'}"
        )
    if not names:
        raise MosqPipelineError(
            f"there is no stream in {path} yet: configure one (`stream NAME FILTER...`) and start the broker"
        )
    return {key: look(key, found[name]) for name in names for key in (key_of(source.node, name),)}


def position(seen: Seen, option: str, positions: "dict[str, Position]", default: "Position") -> list[int]:
    """Return the sequence number of each shard of a stream for an option."""
    wanted = positions.get(seen.key, positions.get("", default))
    if wanted == "earliest":
        return list(seen.first)
    if wanted == "latest":
        return list(seen.end)
    if isinstance(wanted, int):
        stream = Stream(seen.path)
        return [min(stream.seq_at(wanted, shard), end) for shard, end in enumerate(seen.end)]
    assert isinstance(wanted, list)
    if len(wanted) != len(seen.end):
        raise MosqPipelineError(
            f"option {option}: stream {seen.key} has {len(seen.end)} shards, but the option has {len(wanted)} numbers"
        )
    for shard, (seq, end) in enumerate(zip(wanted, seen.end, strict=True)):
        if seq > end:
            raise MosqPipelineError(
                f"option {option}: stream {seen.key}, shard {shard}: {seq} does not exist yet; the next one will be "
                f"{end}"
            )
    return wanted


def check_named(option: str, positions: "dict[str, Position]", found: dict[str, Seen]) -> None:
    """Raise MosqPipelineError if an option names a stream that is not read."""
    if unknown := [name for name in positions if name and name not in found]:
        raise MosqPipelineError(
            f"option {option} names the stream {', '.join(unknown)}, which is not read; this read has: "
            f"{', '.join(found)}"
        )
