"""Decode payloads of Sparkplug B: metrics in protobuf.

This module knows only the fields that it needs, and skips the others, as protobuf does. Hostile bytes raise an error of
protobuf, and never give a wrong row.
"""

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
    "int_value": (10, "uint32"),
    "long_value": (11, "uint64"),
    "float_value": (12, "float"),
    "double_value": (13, "double"),
    "boolean_value": (14, "bool"),
    "string_value": (15, "string"),
    "bytes_value": (16, "bytes"),
}
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
}
REST = "_rescued"  # the text of a UInt64 that long_value cannot hold; double_value has the nearest number
TIME_MS_MAX = 253_402_300_799_999  # the year 9999: later times are invalid
LEVELS = (4, 5)


class UnreadableError(ValueError):
    """Explain why a message is not a payload of Sparkplug."""


@cache
def _message() -> Any:
    """Return the class that decodes payloads."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MosqPipelineError(
            f"Sparkplug needs protobuf, which is not installed: {install_advice('pipeline')}"
        ) from None
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="mosq/sparkplug.proto", package="mosq.sparkplug", syntax="proto2")
    for name, known in (("Metric", METRIC), ("Payload", PAYLOAD)):
        message = file.message_type.add(name=name)
        for key, (number, type) in known.items():
            message.field.add(
                name=key, number=number, label=field.LABEL_OPTIONAL, type=getattr(field, f"TYPE_{type.upper()}")
            )
    message.field.add(
        name="metrics",
        number=METRICS,
        label=field.LABEL_REPEATED,
        type=field.TYPE_MESSAGE,
        type_name=".mosq.sparkplug.Metric",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("mosq.sparkplug.Payload"))


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
    message = _message()()
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
        if (value := _value(metric)) is not None:
            row[value[0]] = value[1]
            if value[0] == "double_value" and metric.HasField("long_value"):
                row[REST] = f'{{"long_value":{metric.long_value}}}'
        for key in ("metric", "string_value"):
            if isinstance(row[key], bytes):  # the fast implementation returns bytes for a string that is not UTF-8
                raise ValueError(key)
        yield row
