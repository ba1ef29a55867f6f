"""Provide `format("mqtt")`: any broker as a Spark source, at least once, and as a sink.

docs/pipeline-source.md lists the options. MQTT cannot seek, and acknowledgements belong to a connection. So the
receiver spools a message, syncs the spool and then acknowledges; Spark's offset is the position in the spool.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from mosq.pipeline.mqtt.options import ReadOptions, WriteOptions
from mosq.pipeline.mqtt.stream import DDL, MqttStreamReader
from mosq.pipeline.source import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from mosq.pipeline.mqtt.publish import MqttStreamWriter, MqttWriter


class MqttSource(DataSource):
    """Implement the data source `mqtt`."""

    @classmethod
    def name(cls) -> str:
        return "mqtt"

    def schema(self) -> str:
        ReadOptions(self.options)  # raises errors at load(), not when the query runs
        return DDL

    def streamReader(self, schema: "StructType") -> MqttStreamReader:  # noqa: N802
        return MqttStreamReader(ReadOptions(self.options), columns_of("mqtt", schema, DDL))

    def writer(self, schema: "StructType", overwrite: bool) -> "MqttWriter":
        from mosq.pipeline.mqtt.publish import MqttWriter, check_columns

        options = WriteOptions(self.options)
        check_columns(schema, options)
        return MqttWriter(options)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "MqttStreamWriter":  # noqa: N802
        from mosq.pipeline.mqtt.publish import MqttStreamWriter, check_columns

        options = WriteOptions(self.options)
        check_columns(schema, options)
        return MqttStreamWriter(options)


def create_sessions(options: "Mapping[str, str]") -> None:
    """Create the sessions and subscriptions of a read, so that the broker queues messages from now on.

    Messages that were published before the first SUBSCRIBE are never received, nor those that the broker drops
    because the queue of a session has `max_queued_messages`.
    """
    from mosq.pipeline.mqtt.receiver import Receiver

    receiver = Receiver(ReadOptions(options))
    receiver.start()
    receiver.stop()
