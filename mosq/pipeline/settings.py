"""Read the settings of the pipeline, one file in TOML.

An error names the file, the key and the expected value. Paths are relative to the file. This module does not use Spark:
a schema is checked where it is used.
"""

import json
import re
import socket
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.journal.folders import NAME
from mosq.pipeline import MosqPipelineError, filters
from mosq.pipeline.lake import places
from mosq.pipeline.rows.declared import FORMATS as WITH_EVENTS
from mosq.pipeline.rows.declared import TIME_UNITS, Event, Unique

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS = ("json", "csv", "number", "sparkplug")
UNITS_US = {
    "ms": 1000,
    "millisecond": 1000,
    "s": 10**6,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86_400 * 10**6,
}
FILE = "pipeline.toml"
DAYS_MAX = 36_500  # so that a date which is so much earlier or later is possible
JOURNAL = "the folder of the broker's streams"
RULE_KEYS = (
    "name, topic, format, schema or json_schema, time_column, time_unit, time_behind, time_ahead, values, key,"
    " key_horizon or key_limit"
)
TIME_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class Silver:
    """Name the table and format of the messages that match a filter; the first matching rule applies."""

    name: str
    topic: str
    format: str
    schema: str | None
    event: Event | None = None
    unique: Unique | None = None


@dataclass(frozen=True)
class Source:
    """Name the folder of a broker's streams, and the broker: each row has the name of its node."""

    node: str
    journal: Path
    streams: tuple[str, ...]  # (): all streams


def read_options(sources: "Sequence[Source]") -> dict[str, str]:
    """Return the options of format("mosq") that name these sources.

    Of one source the rows have no column `node`, which costs less; the tasks know the one node.
    """
    if len(sources) == 1:
        return {"path": str(sources[0].journal), "streams": ",".join(sources[0].streams)}
    content = {one.node: {"path": str(one.journal), "streams": ",".join(one.streams)} for one in sources}
    return {"sources": json.dumps(content)}


@dataclass(frozen=True)
class Settings:
    """Hold the settings. Times are in microseconds."""

    file: Path
    sources: tuple[Source, ...]  # at least one
    tables: str  # absolute path of a folder, or a URI (lake/places.py)
    checkpoints: Path
    trigger_us: int
    window_us: int
    watermark_us: int
    prefix_levels: int
    batch_rows: int
    consumer: str  # consumer whose mark holds back retention; "": none
    stop_on_loss: bool
    master: str
    silver: tuple[Silver, ...]
    spark: dict[str, str]
    storage: dict[str, str]  # options of the storage of tables, such as AWS_REGION
    retention: dict[str, int]  # table -> microseconds after which its rows are deleted; none: they stay


def duration_us(text: object) -> int | None:
    """Return a duration such as "5 seconds", "10 minutes", "500 ms" in microseconds, or None if it is not one."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*([a-z]+)\s*", text) if isinstance(text, str) else None
    if found is None:
        return None
    unit = UNITS_US.get(found[2]) or UNITS_US.get(found[2].removesuffix("s"))
    return int(found[1]) * unit or None if unit else None


class _Reading:
    """Read one table of the file. A key is removed when it is read, so that the remaining keys are unknown ones."""

    def __init__(self, file: Path, where: str, content: dict[str, Any]) -> None:
        self.file, self.where, self.content = file, where, dict(content)

    def wrong(self, key: str, expected: str, got: object) -> MosqPipelineError:
        return MosqPipelineError(f"{self.file}: {self.where} {key}: expected {expected}; got {got!r}")

    def take(self, key: str, kind: type, expected: str, default: Any = None) -> Any:
        """Return the value of a key; with `default` None the key is required."""
        if key not in self.content:
            if default is None:
                raise MosqPipelineError(f"{self.file}: {self.where} {key} is missing: expected {expected}")
            return default
        value = self.content.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(key, expected, value)
        return value

    def text(self, key: str, expected: str, default: str | None = None) -> str:
        value: str = self.take(key, str, expected, default)
        if not value.strip():
            raise self.wrong(key, expected, value)
        return value

    def path(self, key: str, expected: str, default: str | None = None) -> Path:
        return (self.file.parent / Path(self.text(key, expected, default)).expanduser()).absolute()

    def number(self, key: str, least: int, most: int, default: int) -> int:
        expected = f"a number from {least:,} to {most:,}"
        value: int = self.take(key, int, expected, default)
        if not least <= value <= most:
            raise self.wrong(key, expected, value)
        return value

    def duration_us(self, key: str, default: str) -> int:
        expected = f'a time such as "5 seconds", "10 minutes" or "1 day", at most "{DAYS_MAX} days"'
        text = self.text(key, expected, default)
        value = duration_us(text)
        if value is None or value > DAYS_MAX * UNITS_US["day"]:
            raise self.wrong(key, expected, text)
        return value

    def end(self, known: str) -> None:
        if self.content:
            raise MosqPipelineError(
                f"{self.file}: {self.where} {next(iter(self.content))} is unknown: expected {known}"
            )


def load(file: Path | str = FILE) -> Settings:
    """Read the settings from a file, or from pipeline.toml in a folder.

    Raises MosqPipelineError for the first error.
    """
    path = Path(file).absolute()
    if path.is_dir():
        path /= FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MosqPipelineError(
            f"{path}: there is no such file; `mosq pipeline init {path.parent}` makes one"
        ) from None
    except OSError as error:
        raise MosqPipelineError(f"{path}: {error.strerror}; expected the settings of the pipeline") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MosqPipelineError(f"{path}: this is not TOML: {error}") from None
    return _settings(path, content)


def _settings(path: Path, content: dict[str, Any]) -> Settings:
    top = _Reading(path, "at the top:", content)
    main = _Reading(path, "[pipeline]", top.take("pipeline", dict, "a table [pipeline]"))
    rules = top.take("silver", list, "tables [[silver]]", [])
    spark = top.take("spark", dict, "a table [spark] of Spark's own settings", {})
    storage = _texts(path, "[storage]", top.take("storage", dict, "a table [storage] of options of the storage", {}))
    retention = _retention(path, top.take("retention", dict, "a table [retention]", {}), rules)
    sources = _sources(main, top.take("source", list, "tables [[source]]", []))
    top.end("[pipeline], [[source]], [[silver]], [retention], [storage] and [spark]")
    settings = Settings(
        file=path,
        sources=sources,
        tables=_tables(main),
        checkpoints=main.path("checkpoints", "a folder for the state of the jobs", "checkpoints"),
        trigger_us=main.duration_us("trigger", "5 seconds"),
        window_us=main.duration_us("window", "1 minute"),
        watermark_us=main.duration_us("watermark", "10 minutes"),
        prefix_levels=main.number("prefix_levels", 1, 100, 1),
        batch_rows=main.number("batch_rows", 1, 100_000_000, 500_000),
        consumer=_consumer(main),
        stop_on_loss=main.take("stop_on_loss", bool, "true or false", True),
        master=main.text("master", 'a master of Spark, such as "local[2]"', "local[*]"),
        silver=_rules(path, rules),
        spark=_spark(path, spark),
        storage=storage,
        retention=retention,
    )
    main.end(
        "journal, streams, tables, checkpoints, node, trigger, window, watermark, prefix_levels, batch_rows, "
        "consumer, stop_on_loss or master"
    )
    folder = Path(settings.tables)
    inside = (
        folder in (settings.checkpoints, *settings.checkpoints.parents),
        settings.checkpoints in folder.parents,
    )
    if any(inside):
        raise MosqPipelineError(f"{path}: [pipeline] tables and checkpoints lie in one another: use two folders")
    return settings


def _tables(main: _Reading) -> str:
    text = main.text("tables", "a folder or a URI for the tables", "tables")
    try:
        return places.absolute(text, main.file.parent)
    except MosqPipelineError as error:
        raise MosqPipelineError(f"{main.file}: {main.where} tables: {error}") from None


def default_node() -> str:
    """Return the host's name, with `-` for characters that a node's name cannot have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64] or "node"


def _sources(main: _Reading, entries: list[Any]) -> tuple[Source, ...]:
    """Return the brokers: those of [[source]], or the one that [pipeline] journal and node describe."""
    if not entries:
        return (Source(_node(main, default_node()), main.path("journal", JOURNAL), _streams(main)),)
    for key in ("journal", "node", "streams"):
        if key in main.content:
            raise main.wrong(key, "no such key beside [[source]]: each source has its own", main.content[key])
    found: list[Source] = []
    for i, content in enumerate(entries, 1):
        if not isinstance(content, dict):
            raise MosqPipelineError(f"{main.file}: source: expected tables [[source]]; got {content!r}")
        one = _Reading(main.file, f"[[source]] number {i}", content)
        source = Source(_node(one), one.path("journal", JOURNAL), _streams(one))
        if source.node in (other.node for other in found):
            raise one.wrong("node", "a unique name: each source is another broker", source.node)
        if source.journal in (other.journal for other in found):
            raise one.wrong("journal", "a folder that no other source has", str(source.journal))
        one.end("node, journal or streams")
        found.append(source)
    return tuple(found)


def _node(main: _Reading, default: str | None = None) -> str:
    expected = "a name of 1 to 64 letters, digits, '_', '-', '.'"
    name = main.text("node", expected, default)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise main.wrong("node", expected, name)
    return name


def _retention(path: Path, content: dict[str, Any], rules: list[Any]) -> dict[str, int]:
    reading = _Reading(path, "[retention]", content)
    silver = [f"silver/{rule.get('name')}" for rule in rules if isinstance(rule, dict)]
    names = ("traffic", "latency", "drops", "churn", "late", "devices", "backlog", "telemetry")
    gold = [f"gold/{name}" for name in names]
    known = ("bronze", "quarantine", *silver, *gold)
    found = {name: reading.duration_us(name, "-") for name in known if name in content}
    reading.end(f"one of {', '.join(known)}")
    return found


def _streams(main: _Reading) -> tuple[str, ...]:
    expected = "a list of names of streams; empty: all streams"
    names = main.take("streams", list, expected, [])
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise main.wrong("streams", f"{expected}, each of 1 to 64 letters, digits, '_', '-'", name)
    if len(set(names)) < len(names):
        raise main.wrong("streams", "each name once", names)
    return tuple(names)


def _consumer(main: _Reading) -> str:
    expected = "a name of letters, digits, '_', '-'; \"\": retention does not wait for the pipeline"
    name: str = main.take("consumer", str, expected, "pipeline")
    if name and not NAME.fullmatch(name):
        raise main.wrong("consumer", expected, name)
    return name


def _rules(path: Path, rules: list[Any]) -> tuple[Silver, ...]:
    found: list[Silver] = []
    for i, content in enumerate(rules, 1):
        if not isinstance(content, dict):
            raise MosqPipelineError(f"{path}: silver: expected tables [[silver]]; got {content!r}")
        rule = _Reading(path, f"[[silver]] number {i}", content)
        name = rule.text("name", "a name for the table")
        if not NAME.fullmatch(name):
            raise rule.wrong("name", "1 to 64 letters, digits, '_', '-'", name)
        if name in (one.name for one in found):
            raise rule.wrong("name", "a unique name; two rules write two tables", name)
        topic = rule.text("topic", "a topic filter")
        if (why := filters.problem(topic)) is not None:
            raise rule.wrong("topic", f"a topic filter: {why}", topic)
        format = rule.text("format", f"one of {', '.join(FORMATS)}")
        if format not in FORMATS:
            raise rule.wrong("format", f"one of {', '.join(FORMATS)}", format)
        schema = _schema(rule, format)
        event = _event(rule, format, schema)
        unique = _unique(rule, format, schema)
        rule.end(RULE_KEYS)
        found.append(Silver(name, topic, format, schema, event, unique))
    return tuple(found)


def _event(rule: _Reading, format: str, schema: str | None) -> Event | None:
    """Return what a rule declares about the time and the values of its events, or None."""
    declared = [key for key in ("time_column", "values") if key in rule.content]
    if "time_column" not in rule.content:
        for key in ("time_unit", "time_behind", "time_ahead"):
            if key in rule.content:
                raise rule.wrong(key, "time_column beside it", rule.content[key])
    if not declared:
        return None
    if format not in WITH_EVENTS or (schema is None and format != "number"):
        got = rule.content[declared[0]]
        raise rule.wrong(declared[0], "a rule of format json or csv with a declared schema, or number", got)
    values = _names(rule, "values") if "values" in rule.content else ()
    if "time_column" not in rule.content:
        return Event(values=values)
    time = rule.text("time_column", "the column with the time of the event")
    unit = rule.text("time_unit", "a unit of time", "-")
    if unit not in (*TIME_UNITS, "-"):
        raise rule.wrong("time_unit", f"one of {', '.join(TIME_UNITS)}", unit)
    behind_us, ahead_us = rule.duration_us("time_behind", "1 day"), rule.duration_us("time_ahead", "5 minutes")
    return Event(time, unit.replace("-", ""), behind_us, ahead_us, values)


def _unique(rule: _Reading, format: str, schema: str | None) -> Unique | None:
    """Return the key that a rule declares, or None."""
    if "key" not in rule.content:
        for key in ("key_horizon", "key_limit"):
            if key in rule.content:
                raise rule.wrong(key, "key beside it", rule.content[key])
        return None
    if format not in WITH_EVENTS or (schema is None and format != "number"):
        got = rule.content["key"]
        raise rule.wrong("key", "a rule of format json or csv with a declared schema, or number", got)
    names, horizon_us = _names(rule, "key"), rule.duration_us("key_horizon", "1 hour")
    return Unique(names, horizon_us, rule.number("key_limit", 1, 1_000_000_000, 10_000_000))


def _names(rule: _Reading, key: str) -> tuple[str, ...]:
    expected = "a list of names of columns, each once"
    names = rule.take(key, list, expected)
    if not names or len(set(map(str, names))) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise rule.wrong(key, expected, names)
    return tuple(names)


def _schema(rule: _Reading, format: str) -> str | None:
    """Return the columns of a rule as text, or None if the settings declare none."""
    if "json_schema" in rule.content:
        if format != "json":
            raise rule.wrong("json_schema", 'none: only format = "json" has one', rule.content["json_schema"])
        if "schema" in rule.content:
            raise rule.wrong("json_schema", "either schema or json_schema", rule.content["json_schema"])
        return _of_json_schema(rule, rule.path("json_schema", "a file with a JSON Schema"))
    schema = rule.text("schema", 'columns, such as "temperature DOUBLE, unit STRING"', "-")
    if format == "csv" and schema == "-":
        raise MosqPipelineError(
            f'{rule.file}: {rule.where} schema is missing: expected columns, such as "id BIGINT, value DOUBLE"'
        )
    if format in ("number", "sparkplug") and schema != "-":
        raise rule.wrong("schema", f"none: the columns of {format} are known", schema)
    return None if schema == "-" else schema


def _of_json_schema(rule: _Reading, path: Path) -> str:
    """Return the columns that a file with a JSON Schema declares."""
    from mosq.pipeline.rows import types

    where = f"{rule.file}: {rule.where} json_schema: {path}"
    try:
        return types.ddl(types.from_json_schema(json.loads(path.read_bytes())))
    except OSError as error:
        raise MosqPipelineError(f"{where}: {error.strerror}") from None
    except types.SchemaError as error:
        raise MosqPipelineError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise MosqPipelineError(f"{where}: this is not JSON ({error})") from None


def _spark(path: Path, content: dict[str, Any]) -> dict[str, str]:
    for key, value in content.items():
        if key.lower() == TIME_ZONE.lower() and value != "UTC":
            raise MosqPipelineError(
                f'{path}: [spark] {key}: expected "UTC" or no such key, as times of the tables are UTC; got {value!r}'
            )
    return _texts(path, "[spark]", content)


def _texts(path: Path, where: str, content: dict[str, Any]) -> dict[str, str]:
    for key, value in content.items():
        if not isinstance(value, str | int | float | bool):
            example = '"spark.driver.memory" = "2g"' if where == "[spark]" else 'AWS_REGION = "eu-west-1"'
            raise MosqPipelineError(f"{path}: {where} {key}: expected a text, such as {example}; got {value!r}")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in content.items()}
