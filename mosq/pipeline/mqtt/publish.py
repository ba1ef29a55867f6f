"""Publish rows: `df.writeStream.format("mqtt")`, at least once.

A batch is done when the broker has acknowledged all of its messages. A task or batch that Spark runs again publishes
again.
"""

import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.mqtt.connection import client, close, connect, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from mosq.pipeline.mqtt.options import WriteOptions

TYPES = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "qos": ("tinyint", "smallint", "int"),
    "retain": ("boolean",),
}
IN_FLIGHT = 200


class Published(WriterCommitMessage):
    """Report the number of messages that a task published."""

    def __init__(self, messages: int) -> None:
        self.messages = messages


def check_columns(schema: "StructType", options: "WriteOptions") -> None:
    """Check that the columns of the rows can be published. Raises MosqPipelineError if not."""
    for field in schema.fields:
        if field.dataType.simpleString() not in TYPES.get(field.name, ()):
            raise MosqPipelineError(
                f'format("mqtt") cannot write the column {field.name} {field.dataType.simpleString()}: the columns are '
                "topic string, payload binary or string, and optionally qos int and retain boolean; select these"
            )
    for name in ("payload",) if options.topic else ("topic", "payload"):
        if name not in schema.fieldNames():
            raise MosqPipelineError(
                f'format("mqtt") needs a column {name}' + (", or the option topic" if name == "topic" else "")
            )


class _Sending:
    """Publish the rows of one task over one connection."""

    def __init__(self, options: "WriteOptions") -> None:
        self.options = options
        self.connected = threading.Event()
        self.error: MosqPipelineError | None = None
        self.room = threading.Semaphore(IN_FLIGHT)
        self.client = client(options.access, "", keep_session=False)
        self.client.max_inflight_messages_set(IN_FLIGHT)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_publish = self._on_publish

    def _on_connect(self, paho: object, _: object, flags: object, reason: Any, properties: object) -> None:
        if reason.is_failure:
            self.error = refused(self.options.access, reason)
        self.connected.set()

    def _on_disconnect(self, paho: object, _: object, flags: object, reason: Any, properties: object) -> None:
        if reason.is_failure:
            self.error = self.error or MosqPipelineError(f"{self.options.access} has closed the connection: {reason}")

    def _on_publish(self, paho: object, _: object, mid: int, reason: Any, properties: object) -> None:
        if reason.is_failure:
            self.error = self.error or MosqPipelineError(f"{self.options.access} refuses a message: {reason}")
        self.room.release()

    def _wait(self, semaphore: threading.Semaphore, what: str) -> None:
        end = time.monotonic() + self.options.ack_timeout_s
        while not semaphore.acquire(timeout=0.1):
            self._check()
            if time.monotonic() > end:
                raise MosqPipelineError(
                    f"{self.options.access} has not acknowledged {what} for {self.options.ack_timeout_s:g} s; see "
                    "option ackTimeout"
                )
        self._check()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def send(self, rows: "Iterator[Any]") -> int:
        """Publish all rows; return their number when all are acknowledged. Raises MosqPipelineError."""
        access, sent = self.options.access, 0
        connect(self.client, access)
        self.client.loop_start()
        try:
            if not self.connected.wait(access.connect_timeout_s):
                late = f"{access} does not answer for {access.connect_timeout_s:g} s; see option connectTimeout"
                raise MosqPipelineError(late)
            self._check()
            for row in rows:
                self._wait(self.room, "a message")
                self._publish(row)
                sent += 1
            for _ in range(IN_FLIGHT):
                self._wait(self.room, "the last messages")
        finally:
            close(self.client)
        return sent

    def _publish(self, row: Any) -> None:
        options = self.options
        values = {name: value for name, value in row.asDict().items() if value is not None}
        topic, payload = values.get("topic", options.topic), values.get("payload", b"")
        qos, retain = values.get("qos", options.qos), values.get("retain", options.retain)
        if not topic:
            raise MosqPipelineError("a row has no topic: filter such rows out, or set the option topic")
        try:
            self.client.publish(topic, bytes(payload) if isinstance(payload, bytearray) else payload, qos, retain)
        except (ValueError, TypeError) as error:
            raise MosqPipelineError(f"a row cannot be published to the topic {topic!r}, QoS {qos}: {error}") from error


class MqttWriter(DataSourceWriter):
    """Write a batch."""

    def __init__(self, options: "WriteOptions") -> None:
        self.options = options

    def write(self, iterator: "Iterator[Any]") -> Published:
        return Published(_Sending(self.options).send(iterator))


class MqttStreamWriter(DataSourceStreamWriter):
    """Write the micro-batches of a stream."""

    def __init__(self, options: "WriteOptions") -> None:
        self.options = options

    def write(self, iterator: "Iterator[Any]") -> Published:
        return Published(_Sending(self.options).send(iterator))
