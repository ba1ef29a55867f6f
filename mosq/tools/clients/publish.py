"""`mosq pub`: sends one message, one message several times, or a message for each line of the input.

paho's thread runs the connection; this thread reads the input. At most QUEUED_MAX messages wait for paho, so a long
input takes no memory.
"""

import sys
import threading
import time

import paho.mqtt.client as paho
from paho.mqtt import MQTTException

from mosq.tools.clients.errors import EXIT_OK, ClientError
from mosq.tools.clients.session import CONNECT_TIMEOUT_S, Plan, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from paho.mqtt.reasoncodes import ReasonCode

    from mosq.tools.ctl.connection import Connection

PAYLOAD_MAX = 268_435_455       # bytes [v5 1.5.5]
QUEUED_MAX = 1000               # messages that are handed to paho and not yet sent or acknowledged
QUEUED_BYTES_MAX = 16 << 20


class Message:
    """The topic and the flags of the messages."""

    def __init__(self, topic: str, qos: int, retain: bool) -> None:
        self.topic, self.qos, self.retain = topic, qos, retain


class Publisher(Session):
    """Sends messages and waits until each of them is sent, or acknowledged."""

    def __init__(self, connection: "Connection", plan: Plan, message: Message, is_quiet: bool) -> None:
        super().__init__(connection, plan)
        self.message, self.is_quiet = message, is_quiet
        self._changed = threading.Condition()
        self._open: dict[int, int] = {}         # messages on their way: bytes by packet id
        self._early: set[int] = set()           # acknowledged before `publish` returned their packet id
        self._bytes = 0
        self._has_ended = False
        self.client.on_publish = self._published
        self.client.max_queued_messages_set(QUEUED_MAX + 1)

    def run(self, payloads: "Iterable[bytes]", delay_s: float) -> int:
        """Connect, send all payloads, disconnect; return the exit status. Raises ClientError."""
        self.connect()
        self.client.loop_start()
        try:
            self._await(lambda: self.is_connected, CONNECT_TIMEOUT_S)
            for number, payload in enumerate(payloads):
                if delay_s and number:
                    time.sleep(delay_s)
                self._await(lambda: len(self._open) < QUEUED_MAX and self._bytes < QUEUED_BYTES_MAX)
                self._publish(payload)
            self._await(lambda: not self._open)
        finally:
            if self.is_connected:
                self.disconnect()
            self.client.loop_stop()
        return EXIT_OK

    def _publish(self, payload: bytes) -> None:
        properties = self.plan.properties.get("PUBLISH")
        try:
            info = self.client.publish(self.message.topic, payload, self.message.qos, self.message.retain, properties)
        except (ValueError, MQTTException) as error:
            raise ClientError(f"Error: {error}") from None
        if self._has_ended or info.rc == paho.MQTT_ERR_NO_CONN:
            raise self.lost()
        if info.rc != paho.MQTT_ERR_SUCCESS:
            raise ClientError(f"Error: {paho.error_string(info.rc)}")
        with self._changed:
            if info.mid in self._early:
                self._early.discard(info.mid)
            else:
                self._open[info.mid] = len(payload)
                self._bytes += len(payload)

    def _await(self, is_met: "Callable[[], bool]", timeout_s: float | None = None) -> None:
        """Wait until the condition is met. Raises ClientError if the connection ends before."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: is_met() or self.refusal or self._has_ended, timeout_s)
            if is_met():
                return
        self.raise_refusal()
        if not in_time:
            raise self.unanswered()
        raise self.lost()

    # ------------------------------------------------------------ callbacks, in paho's thread

    def _connected(                     # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, flags: object, reason: "ReasonCode",
            properties: object) -> None:
        with self._changed:
            super()._connected(client, userdata, flags, reason, properties)
            self._changed.notify_all()

    def _disconnected(                  # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, flags: object, reason: "ReasonCode",
            properties: object) -> None:
        with self._changed:
            super()._disconnected(client, userdata, flags, reason, properties)
            self._has_ended = True
            self._changed.notify_all()

    def _published(                     # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, mid: int, reason: "ReasonCode", properties: object) -> None:
        if reason.is_failure and not self.is_quiet:
            print(f"Warning: Publish {mid} failed: {reason}.", file=sys.stderr, flush=True)
        with self._changed:
            size = self._open.pop(mid, None)
            if size is None:
                self._early.add(mid)
            else:
                self._bytes -= size
            self._changed.notify_all()


def lines_of_input() -> "Iterable[bytes]":
    """Yield the lines of standard input without their end. Raises ClientError for a line that is no payload."""
    while line := sys.stdin.buffer.readline(PAYLOAD_MAX + 2):
        line = line.removesuffix(b"\n")
        if len(line) > PAYLOAD_MAX:
            raise ClientError(f"Error: A line of the input is longer than a payload. Expected at most {PAYLOAD_MAX} "
                              "bytes.")
        yield line


def whole(path: str | None) -> bytes:
    """Return the content of a file, or of standard input. Raises ClientError."""
    if path is None:
        content = sys.stdin.buffer.read(PAYLOAD_MAX + 1)
        if not content:
            raise ClientError("Error: Zero length input.\nError loading input from stdin.")
    else:
        try:
            with open(path, "rb") as file:
                content = file.read(PAYLOAD_MAX + 1)
        except OSError as error:
            raise ClientError(f'Error: Unable to open file "{path}": {error.strerror}.\nError loading input file '
                              f'"{path}".') from None
    if len(content) > PAYLOAD_MAX:
        raise ClientError(f"Error: The message is longer than a payload. Expected at most {PAYLOAD_MAX} bytes.")
    return content
