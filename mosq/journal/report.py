"""Figures about streams, and a check for damage, as objects and as text. See docs/journal.md."""

from typing import TYPE_CHECKING, Any

from mosq.journal.folders import Files, files_of
from mosq.journal.parts import STRIDE, consumers_of, marks_of, reader_of, shards_of
from mosq.journal.stream import Range
from mosq.tools.db.show import size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mosq import _core

RECENT_US = 60_000_000
ROWS = 1 << 16


def when(time_us: int) -> str | None:
    """Return the time as an ISO text in UTC; None if there is no time."""
    from datetime import UTC, datetime, timedelta

    if not 0 < time_us < 1 << 57:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


# ---- figures


def shard_figures(path: "Path", shard: int, mark: "_core.ShardMark", files: Files) -> dict[str, Any]:
    """Return the figures of one shard."""
    reader = reader_of(path, shard)
    reader.seek(mark["first_seq"])
    first = reader.read(mark["seq"], 1)
    newest = mark["time_us"]
    recent = reader.seek_time(newest - RECENT_US) if newest > RECENT_US else mark["first_seq"]
    return {
        "shard": shard,
        "first_seq": mark["first_seq"],
        "next_seq": mark["seq"],
        "records": mark["seq"] - mark["first_seq"],
        "segments": files.segments,
        "bytes": files.n_bytes,
        "oldest_us": first[0][1] if first else 0,
        "newest_us": newest,
        "recent": mark["seq"] - min(max(recent, mark["first_seq"]), mark["seq"]),
    }


def consumer_figures(path: "Path", shards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return name, lag in records and last update of each consumer."""
    out: list[dict[str, Any]] = []
    for name, mark in sorted(consumers_of(path).items()):
        if mark is None:
            out.append({"name": name, "damaged": True, "lag": None, "updated": None})
            continue
        updated_us, seqs = mark
        done = dict(enumerate(seqs))
        lag = sum(max(0, shard["next_seq"] - max(done.get(shard["shard"], 0), shard["first_seq"])) for shard in shards)
        out.append({"name": name, "damaged": False, "lag": lag, "updated": when(updated_us), "seqs": list(seqs)})
    return out


def figures(path: "Path") -> dict[str, Any]:
    """Return the figures of a stream. Raises FileNotFoundError if it has no mark."""
    there = shards_of(path)  # first: each of these has a mark, also if a worker begins its part now
    marks = marks_of(path)
    files = files_of(path)
    shards = [shard_figures(path, i, marks["shards"][i], files.get(i, Files(0, 0))) for i in there]
    oldest = min((shard["oldest_us"] for shard in shards if shard["oldest_us"]), default=0)
    newest = max((shard["newest_us"] for shard in shards), default=0)
    total = {key: sum(shard[key] for shard in shards) for key in ("records", "segments", "bytes")}
    recent_s = min(newest - oldest, RECENT_US) / 1e6
    out = {
        "stream": path.name,
        "path": str(path),
        **total,
        "oldest": when(oldest),
        "newest": when(newest),
        "marked": when(marks["made_us"]),
        "records_per_s": round(sum(shard["recent"] for shard in shards) / recent_s, 1) if recent_s > 0 else None,
        "consumers": consumer_figures(path, shards),
    }
    for shard in shards:
        shard["oldest"], shard["newest"] = when(shard.pop("oldest_us")), when(shard.pop("newest_us"))
        del shard["recent"]
    return {**out, "shards": shards}


def extent(counted: dict[str, Any]) -> str:
    return f"{size(counted['bytes'])} in {counted['segments']:,} segments"


def figures_text(counted: dict[str, Any]) -> str:
    """Return the figures as text."""
    rate = counted["records_per_s"]
    lines = [
        f"{counted['stream']}: {counted['records']:,} records, {extent(counted)}",
        f"  from {counted['oldest'] or '-'} to {counted['newest'] or '-'}"
        + (f", {rate:,} records/s in the last minute of it" if rate is not None else ""),
    ]
    lines += [
        f"  shard {shard['shard']}: {shard['first_seq']:,} to {shard['next_seq']:,}, {extent(shard)}"
        for shard in counted["shards"]
    ]
    for consumer in counted["consumers"]:
        if consumer["damaged"]:
            lines.append(
                f"  consumer {consumer['name']}: its mark is damaged, so no segment is deleted; write it again, or "
                f"remove consumers/{consumer['name']}"
            )
        else:
            lines.append(
                f"  consumer {consumer['name']}: {consumer['lag']:,} records behind, updated "
                f"{consumer['updated'] or 'never'}"
            )
    return "\n".join(lines)


# ---- check for damage


def records_of(path: "Path") -> int:
    """Return the number of records in a stream."""
    return sum(mark["seq"] - mark["first_seq"] for mark in marks_of(path)["shards"])


def shard_check(path: "Path", shard: int, progress: "Callable[[int], object]") -> tuple[int, list[Range]]:
    """Read all records and their checksums. Return (records, missing ranges). Records that retention deletes during the
    check are no loss."""
    reader = reader_of(path, shard)
    reader.seek(reader.marks()["shards"][shard % STRIDE]["first_seq"])
    read, lost = 0, []
    while True:
        before = reader.seq
        rows, _ = reader.columns(reader.end, ROWS)
        holes = [Range(*hole)._replace(shard=shard) for hole in reader.take_lost()]
        lost += [hole for hole in holes if hole.why != "retired"]
        progress(reader.seq - before)
        if rows == 0:
            return read, lost
        read += rows


def check(path: "Path", progress: "Callable[[int], object]") -> dict[str, Any]:
    """Check a stream: its records and the marks of its consumers. `progress` gets numbers of records read."""
    records, lost = 0, []
    for shard in shards_of(path):
        read, holes = shard_check(path, shard, progress)
        records += read
        lost += holes
    damaged = [name for name, mark in sorted(consumers_of(path).items()) if mark is None]
    return {
        "stream": path.name,
        "path": str(path),
        "records": records,
        "lost": [
            {"shard": hole.shard, "why": hole.why, "from": hole.lo, "to": hole.hi, "records": hole.hi - hole.lo}
            for hole in lost
        ],
        "consumers_damaged": damaged,
    }


def check_text(found: dict[str, Any]) -> str:
    """Return the findings as text."""
    name = found["stream"]
    lines = [
        f"{name}: shard {hole['shard']}: {hole['why']}: {hole['from']:,} to {hole['to'] - 1:,} "
        f"({hole['records']:,} records)"
        if hole["why"] != "more"
        else f"{name}: shard {hole['shard']}: and {hole['to']:,} more ranges"
        for hole in found["lost"]
    ]
    lines += [
        f"{name}: the mark of consumer {each} is damaged, so no segment is deleted: write it again, or remove "
        f"{found['path']}/consumers/{each}"
        for each in found["consumers_damaged"]
    ]
    verdict = "damage found" if lines else "no damage found"
    return "\n".join([*lines, f"{name}: {found['records']:,} records: {verdict}."])
