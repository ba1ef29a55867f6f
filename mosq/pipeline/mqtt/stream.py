"""Implement `spark.readStream.format("mqtt")`: a receiver beside the driver, and the journal's source on its spool."""

import time
from typing import TYPE_CHECKING, Any

from mosq.pipeline.mqtt.receiver import Receiver
from mosq.pipeline.mqtt.spool import READER, SpoolError
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.stream import JournalStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

    from mosq.pipeline.mqtt.options import ReadOptions

# column: its name in the spool
COLUMNS = {
    "lane": "shard",
    "seq": "seq",
    "time": "time",
    "kind": "kind",
    "key": "client_id",
    "topic": "topic",
    "payload": "payload",
    "qos": "qos",
    "retain": "retain",
    "dup": "dup",
    "properties": "properties",
}
DDL = (
    "lane int, seq bigint, time timestamp, kind tinyint, key string, topic string, payload binary, qos tinyint, "
    "retain boolean, dup boolean, properties binary"
)
TRIES_S = 10


class MqttStreamReader(JournalStreamReader):
    """Read micro-batches from the spool, and run the receiver beside it."""

    def __init__(self, options: "ReadOptions", columns: "Sequence[str]") -> None:
        of_spool = {"path": str(options.spool), "consumer": READER, **options.of_journal}
        super().__init__(Options(of_spool, batch=False), [COLUMNS[name] for name in columns])
        self.names = list(columns)
        self.mqtt = options
        self.held_back = options.window  # records from which the spool recognises repeated messages
        self._receiver: Receiver | None = None

    def _receiving(self) -> Receiver:
        """Return the receiver; start it when Spark first asks for an offset.

        Spark also makes readers for other purposes.
        """
        if self._receiver is None:
            end = time.monotonic() + TRIES_S
            while True:
                try:
                    receiver = Receiver(self.mqtt)
                    break
                except SpoolError:  # the previous query may still be ending
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.2)
            receiver.start()
            self._receiver = receiver
        self._receiver.check()
        return self._receiver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._receiving()
        return super().initialOffset()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._receiving().drain()
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: "ReadLimit") -> dict[str, Any]:  # noqa: N802
        self._receiving()
        return super().latestOffset(start, limit)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        self._receiving()
        return super().reportLatestOffset()

    def read(self, partition: Any) -> "Iterator[Any]":
        for batch in super().read(partition):
            yield batch.rename_columns(self.names)

    def stop(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None}
