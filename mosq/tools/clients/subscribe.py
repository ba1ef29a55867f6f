"""`mosq sub`: prints the messages of its subscriptions until a count, a time limit or a signal ends it.

One thread reads a packet, prints it, and reads the next, so a slow reader of the output slows the broker down and
takes no memory here. A lost connection is opened again every second, as mosquitto_sub does.
"""

import random
import sys
import time

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from mosq.tools.clients.errors import EXIT_OK, EXIT_TIMED_OUT, ClientError
from mosq.tools.clients.output import BadPayloadError, topic_of
from mosq.tools.clients.session import CONNECT_TIMEOUT_S, Plan, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.reasoncodes import ReasonCode

    from mosq.tools.ctl.connection import Connection

RECONNECT_S = 1.0
TURN_S = 1.0


class Reading:
    """The subscriptions, and the messages that are printed."""

    def __init__(self) -> None:
        self.filters: list[str] = []
        self.left_out: list[str] = []
        self.unsubscribed: list[str] = []
        self.qos = 0
        self.retain_handling = 0
        self.retain_as_published = False
        self.count: int | None = None
        self.timeout_s: int | None = None
        self.is_verbose = False
        self.no_newline = False
        self.no_retained = False
        self.retained_only = False
        self.remove_retained = False
        self.exits_after_subscribing = False
        self.percent = 100.0
        self.formatted: Callable[[paho.MQTTMessage], bytes] | None = None
        self.is_quiet = False


class Subscriber(Session):
    """Subscribes at each connection, and prints."""

    def __init__(self, connection: "Connection", plan: Plan, reading: Reading) -> None:
        super().__init__(connection, plan)
        self.reading = reading
        self._printed = 0
        self._has_ended = False         # no further message is printed
        self._removing: set[int] = set()    # packet ids of PUBLISH packets that remove retained messages
        self._status = EXIT_OK
        self.client.on_subscribe = self._subscribed
        self.client.on_message = self._message
        self.client.on_publish = lambda c, u, mid, reason, props: self._removing.discard(mid)

    def run(self) -> int:
        """Print messages until the end; return the exit status. Raises ClientError."""
        self.connect()
        give_up = time.monotonic() + CONNECT_TIMEOUT_S
        deadline: float | None = None
        was_connected = False
        while not (self._has_ended and not self._removing):
            rc = self.client.loop(self._turn_s(deadline))
            sys.stdout.flush()
            self.raise_refusal()
            now = time.monotonic()
            if self.is_connected and not was_connected:
                was_connected = True
                if self.reading.timeout_s is not None:
                    deadline = now + self.reading.timeout_s
            if deadline is not None and now >= deadline:
                return self._timed_out()
            if rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                if self._has_ended:
                    break
                if not was_connected:
                    raise self.lost()
                self._return(deadline)
            elif not was_connected and now > give_up:
                raise self.unanswered()
        self.disconnect()
        return self._status

    def _turn_s(self, deadline: float | None) -> float:
        return TURN_S if deadline is None else min(TURN_S, max(0.0, deadline - time.monotonic()))

    def _timed_out(self) -> int:
        if not self.reading.is_quiet:
            print("Timed out", file=sys.stderr)
        if self.is_connected:
            self.disconnect()
        return EXIT_TIMED_OUT

    def _return(self, deadline: float | None) -> None:
        """Connect again, with a second between two tries, until the time limit. Raises ClientError."""
        while True:
            pause = RECONNECT_S if deadline is None else min(RECONNECT_S, max(0.0, deadline - time.monotonic()))
            time.sleep(pause)
            if self.reconnect() or (deadline is not None and time.monotonic() >= deadline):
                return

    # ------------------------------------------------------------ callbacks, called by `loop`

    def on_connect(self) -> None:
        """Subscribe, also after a lost connection: the broker may have ended the session."""
        reading, properties = self.reading, self.plan.properties
        self._removing.clear()
        if self.is_v5:
            options = SubscribeOptions(reading.qos, retainAsPublished=reading.retain_as_published,
                                       retainHandling=reading.retain_handling)
            self.client.subscribe([(one, options) for one in reading.filters], properties=properties.get("SUBSCRIBE"))
        else:
            self.client.subscribe([(one, reading.qos) for one in reading.filters])
        if reading.unsubscribed:
            self.client.unsubscribe(reading.unsubscribed, properties=properties.get("UNSUBSCRIBE"))

    def _subscribed(                    # parameters: those of paho's callback
            self, client: paho.Client, userdata: object, mid: int, reasons: "list[ReasonCode]",
            properties: object) -> None:
        if self.connection.debug:
            print(f"Subscribed (mid: {mid}): {', '.join(str(one.value) for one in reasons)}", flush=True)
        if all(one.is_failure for one in reasons):
            if not self.reading.is_quiet:
                print("All subscription requests were denied.", file=sys.stderr, flush=True)
            self._has_ended = True
        elif self.reading.exits_after_subscribing:
            self._has_ended = True

    def _message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        reading = self.reading
        try:
            topic = message.topic
        except UnicodeDecodeError:
            raise ClientError("Error: The broker has sent a topic that is not UTF-8.") from None
        if self._has_ended:
            return
        if reading.retained_only and not message.retain:
            self._has_ended = True
            return
        if any(paho.topic_matches_sub(one, topic) for one in reading.left_out):
            return
        if reading.remove_retained and message.retain and message.payload:
            self._removing.add(client.publish(topic, b"", 1, retain=True).mid)
        if message.retain and reading.no_retained:
            return
        if reading.percent < 100 and random.random() * 100 >= reading.percent:
            return
        self._print(message)
        self._printed += 1
        self._has_ended = self._printed == reading.count

    def _print(self, message: paho.MQTTMessage) -> None:
        reading, out = self.reading, sys.stdout.buffer
        if reading.formatted is not None:
            try:
                out.write(reading.formatted(message))
            except BadPayloadError as error:
                out.flush()
                if not reading.is_quiet:
                    print(error, file=sys.stderr, flush=True)
        elif reading.is_verbose:
            out.write(b"%s %s" % (topic_of(message), message.payload or b"(null)"))
        else:
            out.write(message.payload)
        if not reading.no_newline and (message.payload or reading.is_verbose or reading.formatted is not None):
            out.write(b"\n")
