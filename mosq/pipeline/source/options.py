"""Check the options of a read as a whole, before anything is read."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mosq.journal.folders import NAME
from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    # start or end: "earliest", "latest", a time in microseconds, or a sequence number for each shard
    Position = str | int | list[int]

BOTH = ("path", "sources", "streams", "startingOffsets", "failOnDataLoss", "maxRecordsPerPartition")
OF_BATCH = ("endingOffsets",)
OF_STREAM = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "consumer")
KNOWN = {name.lower(): name for name in BOTH + OF_BATCH + OF_STREAM}
NODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Source(NamedTuple):
    """Name a folder of streams, the broker that writes them ("": only one is read), and streams of it ([]: all)."""

    node: str
    path: Path
    streams: list[str]


def _wrong(name: str, text: str, wanted: str) -> MosqPipelineError:
    return MosqPipelineError(f'format("mosq"): option {name} is {text!r}: expected {wanted}')


def time_us(text: str) -> int | None:
    """Return an ISO time in microseconds since 1970, or None if it is not one; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _position(name: str, text: str, value: object) -> "Position":
    if value in ("earliest", "latest"):
        return str(value)
    if isinstance(value, str) and (when := time_us(value)) is not None:
        return when
    if isinstance(value, list) and value and all(type(seq) is int and seq >= 0 for seq in value):
        return value
    raise _wrong(
        name,
        text,
        "earliest, latest, an ISO time (UTC unless it has a time zone), or JSON: {stream: one of these, or a list with "
        "the sequence number for each shard}",
    )


def _positions(name: str, text: str) -> "dict[str, Position]":
    """Return the position of each named stream; "" stands for all others."""
    if not text.lstrip().startswith("{"):
        return {"": _position(name, text, text)}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _wrong(name, text, f"JSON ({error})") from None
    return {stream: _position(name, text, position) for stream, position in value.items()}


class Options:
    """Hold the options of a read. Raises MosqPipelineError for the first wrong one.

    batch: True for `read`, False for `readStream`, None for both.
    """

    def __init__(self, given: "Mapping[str, str]", batch: bool | None = None) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            if name not in KNOWN:
                known = ", ".join(KNOWN.values())
                raise MosqPipelineError(f'format("mosq") has no option {name}; expected one of {known}')
        if batch is not None:
            for name in OF_STREAM if batch else OF_BATCH:
                if name.lower() in self._given:
                    raise MosqPipelineError(
                        f'format("mosq"): option {name} is for {"readStream" if batch else "read"}, not for '
                        f"{'read' if batch else 'readStream'}"
                    )
        self.sources = self._sources()
        self.starting = _positions("startingOffsets", self._text("startingOffsets", "earliest"))
        self.ending = _positions("endingOffsets", self._text("endingOffsets", "latest"))
        self.fail_on_loss = self._bool("failOnDataLoss", True)
        self.partition_records = self._count("maxRecordsPerPartition", 500_000)
        self.trigger_records = self._count("maxRecordsPerTrigger", 0)
        self.trigger_bytes = self._count("maxBytesPerTrigger", 0)
        self.consumer = self._consumer()

    def _text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def _sources(self) -> list[Source]:
        """Return the folders to read: several of the option `sources`, or the one of `path`."""
        text = self._text("sources", "")
        if not text:
            return [Source("", self._path(self._text("path", "")), self._streams(self._text("streams", "")))]
        wanted = 'JSON: {"NODE": {"path": FOLDER, "streams": "NAME,..."}}, and no options path and streams'
        try:
            found = [
                Source(node, self._path(one["path"]), self._streams(one.get("streams", "")))
                for node, one in json.loads(text).items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _wrong("sources", text, wanted) from None
        names = {source.node for source in found}
        if not found or not all(map(NODE.fullmatch, names)) or self._text("path", "") or self._text("streams", ""):
            raise _wrong("sources", text, wanted)
        return found

    @property
    def with_node(self) -> bool:
        """Return whether the rows have the column `node`."""
        return bool(self.sources[0].node)

    @staticmethod
    def _path(text: str) -> Path:
        if not text:
            raise MosqPipelineError(
                'format("mosq") needs a path, the folder of the streams: '
                '.load("/var/lib/mosquitto/mosquitto.db.store/streams")'
            )
        path = text.removeprefix("file://").removeprefix("file:")
        if "://" in path:
            raise _wrong("path", text, "a folder of this machine or of mounted storage")
        return Path(path)

    @staticmethod
    def _streams(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if not NAME.fullmatch(name):
                raise _wrong("streams", name, "names of streams, separated by commas")
        return sorted(set(names))

    def _bool(self, name: str, default: bool) -> bool:
        text = self._text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise _wrong(name, text, "true or false")
        return text == "true"

    def _count(self, name: str, default: int) -> int:
        text = self._text(name, str(default))
        found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)b?", text.strip().lower())
        if not found or (name.lower() in self._given and not int(found[1])):
            raise _wrong(name, text, "a number above 0, optionally followed by k, m or g")
        return int(found[1]) * UNITS[found[2]]

    def _consumer(self) -> str:
        from mosq.journal.stream import CONSUMER

        name = self._text("consumer", "")
        if name and not CONSUMER.fullmatch(name):
            raise _wrong("consumer", name, "1 to 64 letters, digits, '-', '_', '.' (not first)")
        return name
