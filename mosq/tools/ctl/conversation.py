"""Sends control commands to a broker over MQTT and receives the responses. Knows topics, payloads and time limits, not
the commands.

  connect -> subscribe to TOPIC/response (once) -> PUBLISH TOPIC -> the response with our correlationData

All subscribers of Mosquitto's control topics receive every response, so each command carries a unique correlationData,
and only the response with the same one is used. Responses on mosq's private topics (`$CONTROL/mosq/...`) need no
subscription.

The client is paho's, whose network loop runs in its own thread; this side waits on a queue.
"""

import json
import os
import queue
import time

from mosq.tools.ctl import paho_client
from mosq.tools.ctl.connection import Connection, ConnectionProblemError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import paho.mqtt.client as paho

    Response = dict[str, Any]

TIMEOUT_S = 10.0
KEEPALIVE_S = 60
PRIVATE = "$CONTROL/mosq/"
UNAVAILABLE = "endpoint not available"
NOT_AUTHORIZED = 0x87
HINT = (". The broker wants `enable_control_api true`, and a rule (`topic readwrite $CONTROL/mosq/#`) or, without "
        "rules, a unix socket (--unix PATH) or `control_loopback true` (docs/control.md)")


class NoAnswerError(Exception):
    """No response; the text says why."""


class Conversation:
    """One connection, until close()."""

    def __init__(self, connection: Connection) -> None:
        """Connect. Raises ConnectionProblemError, NoAnswerError."""
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._timeout_s, self._qos = TIMEOUT_S, connection.qos
        self._subscribed: set[str] = set()
        self._topic = ""                # of the last request
        self._token, self._sent = os.urandom(6).hex(), 0
        self.closed = False
        self._client = self._made(connection)
        try:
            self._connect(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect and end the network thread."""
        self.closed = True
        self._client.disconnect()
        self._client.loop_stop()

    # ------------------------------------------------------------ connecting

    def _made(self, connection: Connection) -> "paho.Client":
        name = connection.client_id or f"mosq-ctl-{self._token}"
        client = paho_client.made_for(connection, name, True, self._timeout_s)
        put = self._events.put
        client.on_connect = lambda c, u, flags, reason, props: put(("connect", reason))
        client.on_disconnect = lambda c, u, flags, reason, props: put(("disconnect", reason))
        client.on_subscribe = lambda c, u, mid, reasons, props: put(("subscribe", reasons[0]))
        client.on_publish = lambda c, u, mid, reason, props: put(("publish", reason))
        client.on_message = lambda c, u, message: put(("message", message))
        if connection.debug:
            client.on_log = lambda c, u, level, text: print(text)
        return client

    def _connect(self, connection: Connection) -> None:
        try:
            paho_client.connect(self._client, connection, KEEPALIVE_S)
        except (OSError, ValueError) as error:
            raise ConnectionProblemError(paho_client.why_not_connected(connection, error)) from None
        self._client.loop_start()
        reason = self._await("connect", "The broker has not answered CONNECT")
        if reason.is_failure:
            raise NoAnswerError(f"Connection error: {reason}")

    # ------------------------------------------------------------ commands

    def send(self, topic: str, command: "dict[str, Any]") -> "Response":
        """Return the response to one command, which may be an error. Raises NoAnswerError."""
        if not topic.startswith(PRIVATE):
            self._subscribe(f"{topic}/response")
        self._topic = topic
        self._sent += 1
        correlation = f"{self._token}-{self._sent}"
        payload = json.dumps({"commands": [{**command, "correlationData": correlation}]}, ensure_ascii=False)
        self._client.publish(topic, payload.encode(), self._qos)
        give_up = time.monotonic() + self._timeout_s
        while True:
            message = self._await("message", f"No response on {topic}/response", give_up)
            response = _response(message, topic, correlation)
            if response is not None:
                return response

    def _subscribe(self, topic: str) -> None:
        if topic in self._subscribed:
            return
        self._client.subscribe(topic, self._qos)
        reason = self._await("subscribe", "The broker has not answered SUBSCRIBE")
        if reason.is_failure:
            raise NoAnswerError(f"Subscribe error: {reason}")
        self._subscribed.add(topic)

    def _await(self, kind: str, otherwise: str, give_up: float | None = None) -> "Any":
        give_up = time.monotonic() + self._timeout_s if give_up is None else give_up
        while True:
            try:
                found, what = self._events.get(timeout=max(0.0, give_up - time.monotonic()))
            except queue.Empty:
                raise NoAnswerError(f"{otherwise} within {self._timeout_s:g} s.") from None
            if found == kind:
                return what
            if found == "disconnect":
                self.closed = True
                raise NoAnswerError(f"The broker has closed the connection: {what}.")
            if found == "publish" and what.is_failure:
                hint = HINT if self._topic.startswith(PRIVATE) and what.value == NOT_AUTHORIZED else ""
                raise NoAnswerError(f"Publish error: {what}{hint}")


def _response(message: "Any", topic: str, correlation: str) -> "Response | None":
    """Return our response in a message; None if the message belongs to another client."""
    if message.topic != f"{topic}/response":
        return None
    try:
        tree = json.loads(message.payload)
        if tree.get("error") == UNAVAILABLE:
            raise NoAnswerError(f"The broker does not serve {topic}: {_remedy(topic)}")
        for response in tree["responses"]:
            if response.get("correlationData") == correlation:
                return {name: value for name, value in response.items() if name != "correlationData"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass                    # other clients may publish on this topic too
    return None


def _remedy(topic: str) -> str:
    if topic.startswith(PRIVATE):
        return "this needs mosq with `enable_control_api true`."
    if topic == "$CONTROL/broker/v1":
        return "this needs mosq or Mosquitto 2.1 with `enable_control_api true`."
    return "check that the plugin is configured there."

