"""Read the filters and topics to be matched.

This module reads all filters, because every worker needs all of them. Spark reads the topics in parts. Both come from
files of users: a line that is not a filter or topic is left out and reported with its number; a file of another kind is
an error at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq._core import PROBLEMS, Column, problems
from mosq.pipeline import MosqPipelineError, frames
from mosq.pipeline.subscriptions import subscribed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

FILTER, CLIENT, TOPIC = "filter", "client_id", "topic"
BYTES_MAX = 1 << 30                 # largest file of filters: each worker holds it, and an index of it
URLS = ("mqtt://", "mqtts://", "ws://", "wss://")
CONTROL, GONE = "$CONTROL/mosq/broker/v1", "Client not found"
SHOWN_MAX = 100                     # bad lines that are valid_filters for the report


@dataclass
class Bad:
    """Count the lines that were left out, and keep the first of them as (line, text, reason)."""

    path: str
    unit: str = "line"
    count: int = 0
    first: list[tuple[int, str, str]] = field(default_factory=list)

    def lines(self, most: int = 10) -> Iterator[str]:
        """Yield the first bad lines with their numbers and reasons, and the total if there are more."""
        for line, text, why in self.first[:most]:
            yield f"{self.path}:{line}: {text[:80]!r} is {why}"
        if self.count > most:
            yield f"{self.path}: {self.count:,} bad {self.unit}s in all"


@dataclass
class Filters:
    """Hold distinct valid filters: the column filter and, if known, client_id."""

    rows: pa.Table
    bad: Bad


def column(texts: Any) -> Column:
    """Return an Arrow array of texts in the form that the matcher takes, without a copy."""
    if pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type):
        texts = texts.cast(pa.string())
    _, offsets, text = texts.buffers()
    if offsets is None or not len(texts):
        return Column(b"\0\0\0\0", b"", 0, 0)
    return Column(offsets, text or b"", texts.offset, len(texts))


def why(problem: int, what: str) -> str:
    """Explain a code of cext's check of topics and filters; `what` is the kind of text."""
    return f"not a valid {what}" if PROBLEMS[problem] == "not valid" else PROBLEMS[problem]


# ---------------------------------------------------------------- filters

def read_filters(spark: SparkSession, path: str, clients: bool) -> Filters:
    """Read filters from a file (.txt, .csv, .parquet), from the subscriptions in a bronze table, or from a broker (a
    URL).

    `clients`: keep the client id of each filter.
    """
    if path.startswith(URLS):
        return _of_broker(path, clients)
    if (bronze := frames.of_path(spark, path)) is not None:
        return valid_filters(subscribed(bronze).toArrow(), path, "row", clients)
    place = Path(path)
    try:
        size = place.stat().st_size
    except OSError as error:
        raise MosqPipelineError(f"cannot read {path}: {error.strerror}") from None
    if place.is_dir() and place.suffix != ".parquet":
        raise MosqPipelineError(f"{path} is a folder: expected a file of filters, or a bronze table of the pipeline")
    if size > BYTES_MAX:
        raise MosqPipelineError(f"{path} has {size / 1e6:,.0f} MB: at most {BYTES_MAX / 1e6:,.0f} MB of filters, since "
                                "each worker holds all of them; split them and match each part")
    read = {".parquet": _parquet, ".csv": _csv}.get(place.suffix, _text)
    try:
        table = read(place, clients)
    except OSError as error:
        raise MosqPipelineError(f"cannot read {path}: {error.strerror or error}") from None
    except pa.ArrowInvalid as error:
        raise MosqPipelineError(f"cannot read {path}: {error}") from None
    return valid_filters(table, path, "line" if read is _text else "row", clients)


def _of_broker(url: str, clients: bool) -> Filters:
    """Return the subscriptions of all sessions of a running broker, with the same commands that `mosq ctl` sends."""
    from mosq.tools.ctl.connection import Connection, ConnectionProblemError
    from mosq.tools.ctl.conversation import Conversation, NoAnswerError

    connection = Connection()
    found: dict[str, list[str]] = {FILTER: [], CLIENT: []}
    try:
        connection.take_url(url)
        address = f"{connection.host} port {connection.port_used}"  # the URL may contain a password
        conversation = Conversation(connection)
    except ConnectionProblemError as error:
        raise MosqPipelineError(f"{error}") from None
    except NoAnswerError as error:
        raise MosqPipelineError(f"{address}: {error}") from None
    try:
        for client in _pages(conversation, {"command": "listClients", "count": 1000}, "clients", "cursor"):
            for one in _pages(conversation, {"command": "listSubscriptions", "clientid": client["clientid"]},
                              "subscriptions", "offset") if client["subscriptions"] else ():
                found[FILTER].append(one["topic"])
                found[CLIENT].append(client["clientid"])
    except NoAnswerError as error:
        raise MosqPipelineError(f"{address}: {error}") from None
    finally:
        conversation.close()
    table = pa.table({name: pa.array(values, pa.string()) for name, values in found.items()})
    return valid_filters(table, address, "row", clients)


def _pages(conversation: Any, command: dict[str, Any], of: str, place: str) -> Iterator[dict[str, Any]]:
    """Yield all elements of a list that comes in pages; a client that has left in between yields none."""
    at = 0
    while True:
        answer = conversation.send(CONTROL, {**command, place: at})
        if "error" in answer:
            if answer["error"] == GONE:
                return
            raise MosqPipelineError(f"the broker answers: {answer['error']}")
        rows = answer["data"][of]
        yield from rows
        at = answer["data"]["cursor"] if place == "cursor" else at + len(rows) if answer["data"]["more"] and rows else 0
        if not at:
            return


def _text(path: Path, clients: bool) -> pa.Table:
    """Read one filter per line; with `clients`, read client id, tab, filter."""
    lines = [line.removesuffix(b"\r") for line in path.read_bytes().split(b"\n")]
    if not clients:
        return pa.table({FILTER: pa.array(lines, pa.binary())})
    pairs = [line.partition(b"\t") for line in lines]
    for number, (pair, line) in enumerate(zip(pairs, lines, strict=True), 1):
        if line and not pair[1]:
            raise MosqPipelineError(f"{path}:{number}: expected a client id, a tab, and a filter; got {line[:80]!r}")
    return pa.table({FILTER: pa.array([pair[2] for pair in pairs], pa.binary()),
                     CLIENT: pa.array([pair[0].decode(errors="replace") for pair in pairs])})


def _csv(path: Path, clients: bool) -> pa.Table:
    from pyarrow import csv

    table = csv.read_csv(path, convert_options=csv.ConvertOptions(
        column_types={FILTER: pa.binary(), CLIENT: pa.string()}, strings_can_be_null=False))
    return _columns(table, path, clients)


def _parquet(path: Path, clients: bool) -> pa.Table:
    from pyarrow import parquet

    return _columns(parquet.read_table(path), path, clients)


def _columns(table: pa.Table, path: Path, clients: bool) -> pa.Table:
    wanted = [FILTER, CLIENT] if clients else [FILTER]
    for name in wanted:
        if name not in table.column_names:
            raise MosqPipelineError(f"{path}: expected a column {name!r}; its columns are "
                                    f"{', '.join(table.column_names)}")
    return table.select(wanted)


def valid_filters(table: pa.Table, path: str, unit: str, clients: bool) -> Filters:
    """Return the distinct valid filters of a table; count the others as bad."""
    texts = table[FILTER].combine_chunks().cast(pa.binary())
    texts = texts.fill_null(b"")
    found = pa.array(problems(column(texts), True), pa.uint8()) if len(texts) else pa.array([], pa.uint8())
    empty = pc.equal(pc.binary_length(texts), 0)
    wrong = pc.and_(pc.greater(found, 0), pc.invert(empty))
    bad = Bad(path, unit, pc.sum(wrong).as_py() or 0)
    for row in pc.indices_nonzero(wrong)[:SHOWN_MAX].to_pylist():
        text = texts[row].as_py().decode(errors="replace")
        bad.first.append((row + 1, text, why(found[row].as_py(), "filter")))
    good = pc.equal(found, 0)
    keys = {FILTER: texts.filter(good).cast(pa.string())}
    if clients:
        keys[CLIENT] = table[CLIENT].combine_chunks().cast(pa.string()).fill_null("").filter(good)
    rows = pa.table(keys)
    return Filters(rows.group_by(rows.column_names).aggregate([]).combine_chunks(), bad)


# ---------------------------------------------------------------- topics

def read_topics(spark: SparkSession, path: str) -> DataFrame:
    """Return a column `topic` without empty lines; from a bronze table the distinct topics of its messages."""
    from pyspark.sql import functions as f

    place = Path(path)
    if (rows := frames.of_path(spark, path)) is not None:
        messages = rows.where("kind = 1") if "kind" in rows.columns else rows
        return _topic_of(messages, path).where("topic is not null").distinct()
    if not place.exists():
        raise MosqPipelineError(f"there is no {path}: expected a file of topics, or a bronze table of the pipeline")
    if place.suffix == ".parquet":
        frame = _topic_of(spark.read.parquet(str(place)), path)
    elif place.suffix == ".csv":
        frame = _topic_of(spark.read.option("header", True).csv(str(place)), path)
    else:
        frame = spark.read.text(str(place)).withColumnRenamed("value", TOPIC)
    return frame.where(f.octet_length(TOPIC) > 0)


def _topic_of(frame: DataFrame, path: str) -> DataFrame:
    if TOPIC not in frame.columns:
        raise MosqPipelineError(f"{path}: expected a column 'topic'; its columns are {', '.join(frame.columns)}")
    return frame.select(frame[TOPIC].cast("string").alias(TOPIC))


def write_csv(rows: DataFrame, out: str) -> None:
    """Write a folder of CSV with Spark; texts are guarded so that a spreadsheet does not run them as formulas."""
    from pyspark.sql import functions as f

    from mosq.tools.bench.html.csv_files import FORMULA, GUARD

    def safe(name: str) -> Any:
        bare = f.col(name)
        return f.when(f.substring(bare, 1, 1).isin(*FORMULA), f.concat(f.lit(GUARD), bare)).otherwise(bare).alias(name)

    columns = [safe(name) if type == "string" else f.col(name) for name, type in rows.dtypes]
    rows.select(columns).write.options(header=True, escape='"').csv(out)


def bad_topics(spark: SparkSession, path: str) -> Bad:
    """Read the topics once more to find the lines of bad ones. Callers use it only if there are bad topics."""
    place = Path(path)
    unit = "line" if place.suffix not in (".parquet", ".csv") and not place.is_dir() else "row"
    bad = Bad(path, unit)
    if frames.of_path(spark, path) is not None:
        frame = read_topics(spark, path).selectExpr("topic", "'' as file", "0L as block")
    else:
        if place.suffix == ".parquet":
            source = spark.read.parquet(str(place))
        elif place.suffix == ".csv":
            source = spark.read.option("header", True).csv(str(place))
        else:
            source = spark.read.text(str(place)).withColumnRenamed("value", TOPIC)
        frame = source.selectExpr("cast(topic as string) as topic", "_metadata.file_path as file",
                                  "_metadata.file_block_start as block")
    found = frame.mapInArrow(_located, "file string, block bigint, rows bigint, row bigint, topic binary, problem int"
                             ).collect()
    before: dict[tuple[str, int], int] = {}
    at: dict[str, int] = {}
    for one in sorted((one for one in found if one.row is None), key=lambda one: (one.file, one.block)):
        before[one.file, one.block] = at.get(one.file, 0)
        at[one.file] = at.get(one.file, 0) + one.rows
        bad.count += one.problem
    bad_rows = sorted((one for one in found if one.row is not None), key=lambda one: (one.file, one.block, one.row))
    for one in bad_rows[:SHOWN_MAX]:
        bad.first.append((before[one.file, one.block] + one.row + 1, bytes(one.topic).decode(errors="replace"),
                          why(one.problem, "topic")))
    return bad


def _located(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield, in a worker, for each block of a file its rows and the number of bad ones (row null), and the first bad
    ones.
    """
    seen: dict[tuple[str, int], list[int]] = {}
    bad_rows: list[tuple[str, int, None, int, bytes, int]] = []
    for batch in batches:
        texts = batch.column(0).cast(pa.binary()).fill_null(b"")
        found = problems(column(texts), False)
        runs = pc.run_end_encode(batch.column(2))
        first = 0
        for end, block in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            # a block at the same offset of another file is a different block
            for start, stop in _files(batch.column(1), first, end):
                file = batch.column(1)[start].as_py()
                count = seen.setdefault((file, block), [0, 0])
                for i in range(start, stop):
                    if found[i] and len(texts[i].as_py()):
                        count[1] += 1
                        if count[1] <= SHOWN_MAX:
                            bad_rows.append((file, block, None, count[0] + i - start, texts[i].as_py(), found[i]))
                count[0] += stop - start
            first = end
    rows = [(file, block, n, None, None, bad) for (file, block), (n, bad) in seen.items()] + bad_rows
    columns = {"file": pa.string(), "block": pa.int64(), "rows": pa.int64(), "row": pa.int64(), "topic": pa.binary(),
               "problem": pa.int32()}
    yield pa.RecordBatch.from_pydict({name: pa.array([row[i] for row in rows], type)
                                      for i, (name, type) in enumerate(columns.items())})


def _files(names: Any, first: int, end: int) -> Iterator[tuple[int, int]]:
    part = names.slice(first, end - first)
    for name in pc.unique(part).to_pylist():
        at = pc.indices_nonzero(pc.equal(part, name))
        yield first + at[0].as_py(), first + at[-1].as_py() + 1
