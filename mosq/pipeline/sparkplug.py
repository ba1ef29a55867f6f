"""Decode payloads of Sparkplug B: metrics in protobuf.

This module knows only the fields that it needs, and skips the others, as protobuf does. Hostile bytes raise an error of
protobuf, and never give a wrong row.
"""

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.tools.extras import install_advice

if TYPE_CHECKING:
    from collections.abc import Iterator

# field: number, type of protobuf; the wire format has no names
PAYLOAD = {"timestamp": (1, "uint64"), "seq": (3, "uint64")}
METRICS = 2
METRIC = {
    "name": (1, "string"),
    "alias": (2, "uint64"),
    "timestamp": (3, "uint64"),
    "datatype": (4, "uint32"),
    "is_historical": (5, "bool"),
    "is_null": (7, "bool"),
    "properties": (9, "bytes"),  # a set of properties; decoded apart, so that a damaged one costs no value
    "int_value": (10, "uint32"),
    "long_value": (11, "uint64"),
    "float_value": (12, "float"),
    "double_value": (13, "double"),
    "boolean_value": (14, "bool"),
    "string_value": (15, "string"),
    "bytes_value": (16, "bytes"),
}
PROPERTY = {
    "is_null": (2, "bool"),
    "int_value": (3, "uint32"),
    "long_value": (4, "uint64"),
    "float_value": (5, "float"),
    "double_value": (6, "double"),
    "boolean_value": (7, "bool"),
    "string_value": (8, "string"),
}
PROPERTIES_MAX = 64 << 10  # bytes of a set of properties; a larger one is left out
UNITS = ("engUnit", "Engineering Units", "unit")  # names of the property with the unit
BIRTHS = ("NBIRTH", "DBIRTH")
TYPES = (
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double", "Boolean", "String"),
    *("DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template"),
)  # datatypes from 1 on
VALUES = ("int_value", "long_value", "float_value", "double_value", "boolean_value", "string_value", "bytes_value")
# datatypes with numbers in two's complement in an unsigned field: their bits
SIGNED = {1: 32, 2: 32, 3: 32, 4: 64}
UINT64_TYPE = 8
# the columns of a metric; at most one of the values is not null
COLUMNS = {
    "edge_group": "string",
    "message_type": "string",
    "edge_node": "string",
    "device": "string",
    "edge_seq": "bigint",
    "payload_time": "timestamp",
    "metric": "string",
    "alias": "bigint",
    "metric_time": "timestamp",
    "datatype": "int",
    "historical": "boolean",
    "long_value": "bigint",
    "double_value": "double",
    "boolean_value": "boolean",
    "string_value": "string",
    "bytes_value": "binary",
    "unit": "string",
    "properties": "string",
}
REST = "_rescued"  # as JSON: integers that their columns cannot hold. double_value has the number nearest to long_value
TWO_NAMES = "an alias with two names in one BIRTH: later rows with the alias have no name"
TIME_MS_MAX = 253_402_300_799_999  # the year 9999: later times are invalid
LEVELS = (4, 5)


class UnreadableError(ValueError):
    """Explain why a message is not a payload of Sparkplug."""


@cache
def _messages() -> dict[str, Any]:
    """Return the classes that decode payloads and sets of properties."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MosqPipelineError(
            f"Sparkplug needs protobuf, which is not installed: {install_advice('pipeline')}"
        ) from None
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="mosq/sparkplug.proto", package="mosq.sparkplug", syntax="proto2")
    for name, known in (("Metric", METRIC), ("Payload", PAYLOAD), ("Property", PROPERTY), ("Properties", {})):
        message = file.message_type.add(name=name)
        for key, (number, type) in known.items():
            message.field.add(
                name=key, number=number, label=field.LABEL_OPTIONAL, type=getattr(field, f"TYPE_{type.upper()}")
            )
    _, payload, _, properties = file.message_type
    many = {"label": field.LABEL_REPEATED, "type": field.TYPE_MESSAGE}
    payload.field.add(name="metrics", number=METRICS, type_name=".mosq.sparkplug.Metric", **many)
    properties.field.add(name="keys", number=1, label=field.LABEL_REPEATED, type=field.TYPE_STRING)
    properties.field.add(name="values", number=2, type_name=".mosq.sparkplug.Property", **many)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    names = ("Payload", "Properties")
    found = {name: pool.FindMessageTypeByName(f"mosq.sparkplug.{name}") for name in names}
    return {name: message_factory.GetMessageClass(one) for name, one in found.items()}


def properties(raw: bytes) -> dict[str, object]:
    """Return the properties of a metric that are plain values; {} if they cannot be read."""
    if not raw or len(raw) > PROPERTIES_MAX:
        return {}
    found: dict[str, object] = {}
    try:
        message = _messages()["Properties"]()
        message.ParseFromString(raw)
        for key, one in zip(message.keys, message.values, strict=False):
            name = next((name for name in PROPERTY if name != "is_null" and one.HasField(name)), None)
            if isinstance(key, str) and name is not None and not one.is_null:
                value = getattr(one, name)
                finite = not isinstance(value, float) or math.isfinite(value)
                if finite and not isinstance(value, bytes):
                    found[key] = value
    except Exception:  # as for payloads: some implementations of protobuf raise errors of their own
        return {}
    return found


def _time_us(ms: int) -> int | None:
    return ms * 1000 if 0 < ms <= TIME_MS_MAX else None


def _value(metric: Any) -> tuple[str, object] | None:
    if metric.is_null:
        return None
    name = next((name for name in VALUES if metric.HasField(name)), None)
    if name is None:
        return None
    value = getattr(metric, name)
    if name in ("int_value", "long_value"):
        bits = SIGNED.get(metric.datatype)
        if bits is not None and value >= 1 << bits - 1:
            value -= 1 << bits
        if value >= 1 << 63:  # a UInt64 that does not fit into a bigint
            return "double_value", float(value)
        return "long_value", value
    return ("double_value", float(value)) if name == "float_value" else (name, value)


def metrics(topic: str, payload: bytes | None) -> "list[dict[str, object]]":
    """Return a row of COLUMNS for each metric, with REST if something is left."""
    levels = topic.split("/")
    if len(levels) not in LEVELS:
        raise UnreadableError("sparkplug: not a topic of the form spBv1.0/GROUP/TYPE/NODE[/DEVICE]")
    if levels[2] == "STATE":
        raise UnreadableError("sparkplug: STATE is not protobuf")
    if not payload:
        raise UnreadableError("empty")
    message = _messages()["Payload"]()
    try:
        message.ParseFromString(payload)
        return list(_rows(levels, message))
    except Exception as error:  # DecodeError and UnicodeDecodeError; some implementations of protobuf raise others
        raise UnreadableError("sparkplug: not a payload of Sparkplug B") from error


def _rows(levels: list[str], message: Any) -> "Iterator[dict[str, object]]":
    of_payload = {
        "edge_group": levels[1],
        "message_type": levels[2],
        "edge_node": levels[3],
        "device": levels[4] if len(levels) > LEVELS[0] else None,
        "edge_seq": message.seq if message.HasField("seq") and message.seq < 1 << 63 else None,
        "payload_time": _time_us(message.timestamp),
    }
    for metric in message.metrics:
        row = (
            dict.fromkeys(COLUMNS) | of_payload | {
                "metric": metric.name if metric.HasField("name") else None,
                "alias": metric.alias if metric.HasField("alias") and metric.alias < 1 << 63 else None,
                "metric_time": _time_us(metric.timestamp),
                "datatype": metric.datatype if metric.HasField("datatype") and metric.datatype < 1 << 31 else None,
                "historical": metric.is_historical,
            }
        )
        if metric.HasField("properties") and (about := properties(metric.properties)):
            unit = next((about[name] for name in UNITS if name in about), None)
            row["unit"] = unit if isinstance(unit, str) else None
            row["properties"] = json.dumps(about, ensure_ascii=False)
        if (value := _value(metric)) is not None:
            row[value[0]] = value[1]
        if rest := _rest(message, metric, row):
            row[REST] = json.dumps(rest, separators=(",", ":"))
        for key in ("metric", "string_value"):
            if isinstance(row[key], bytes):  # the fast implementation returns bytes for a string that is not UTF-8
                raise ValueError(key)
        yield row


def _rest(message: Any, metric: Any, row: "dict[str, object]") -> dict[str, int]:
    """Return the integers of a metric that its columns cannot hold."""
    found = {}
    for column, one, name in (
        ("edge_seq", message, "seq"),
        ("payload_time", message, "timestamp"),
        ("alias", metric, "alias"),
        ("metric_time", metric, "timestamp"),
        ("datatype", metric, "datatype"),
    ):
        if row[column] is None and (value := getattr(one, name)):
            found[column] = value
    if row["double_value"] is not None and metric.HasField("long_value"):
        found["long_value"] = metric.long_value
    return found


def notes(rows: "list[dict[str, object]]") -> "Iterator[str]":
    """Yield what a user must know about the metrics of one message."""
    for row in rows:
        for column in json.loads(str(row[REST])) if REST in row else ():
            yield f"{column} beyond {COLUMNS[column].upper()}: in _rescued"
    if rows and rows[0]["message_type"] in BIRTHS:
        names: dict[object, set[object]] = {}
        for row in rows:
            alias = json.loads(str(row.get(REST, "{}"))).get("alias", row["alias"])
            if alias is not None and row["metric"] is not None:
                names.setdefault(alias, set()).add(row["metric"])
        yield from (TWO_NAMES for several in names.values() if len(several) > 1)
