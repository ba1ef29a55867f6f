"""Run one MQTT connection of a load test: paho under gevent, with its packets timed and recorded for locust.

paho's own threads do not scale under gevent (three descriptors and a select() for each client). So a greenlet waits for
the socket and calls paho's functions for a foreign loop. Errors are recorded as failures and never raised.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import AsyncResult
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perf.load.run import Run

READ, WRITE = 1, 2              # events of gevent's watchers
CHUNK_BYTES = 8192              # most bytes of one read; then other greenlets run
KEEPALIVE_S = 60
UNACKED = 1000                  # most unacknowledged messages of one client; further ones are not sent
EXPIRY_S = 3600                 # session expiry, in case that the sessions are not removed at the end
BLOCKED_S = 0.001               # pause between two attempts to write


class _Client(mqtt.Client):
    """Read as many packets as there are with one system call; paho itself needs three or more for a packet."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._chunk, self._at = b"", 0

    def _sock_recv(self, bufsize: int) -> bytes:
        piece = self._chunk[self._at:self._at + bufsize]
        if not piece:
            self._chunk = bytes(super()._sock_recv(max(bufsize, CHUNK_BYTES)))
            self._at, piece = 0, self._chunk[:bufsize]
        self._at += len(piece)
        return piece

    def begin(self) -> None:
        self._chunk, self._at = b"", 0

    def read(self) -> None:
        """Handle all received packets."""
        while self.loop_read() == mqtt.MQTT_ERR_SUCCESS:
            sock = self.socket()
            if sock is None or (self._at >= len(self._chunk) and not (hasattr(sock, "pending") and sock.pending())):
                return


class Link:
    """Represent a client of the scenario `name`.

    on_message(payload, qos) gets arriving messages; on_lost() is called when the connection breaks.
    """

    def __init__(self, run: Run, name: str, *, clean: bool = True,
                 on_message: Callable[[bytes, int], None], on_lost: Callable[[], None]) -> None:
        self.run, self.name, self.clean = run, name, clean
        self.number = number = run.next_number()
        self.id = f"{run.settings.prefix}-{run.ledger.mark:08x}-{number}"
        self.up = self.resumed = self._leaving = False
        self._v5 = run.settings.mqtt == "5"
        self._unacked: dict[int, tuple[int, int, int]] = {}     # packet id: (QoS, due time, bytes)
        self._connack: AsyncResult = AsyncResult()
        self._subacks: dict[int, tuple[AsyncResult, Callable[[], None]]] = {}
        self._reader: gevent.Greenlet | None = None
        self._watchers: list[Any] = []
        self._client, self._on_lost = self._made(number), on_lost
        self._client.on_message = lambda client, userdata, message: on_message(bytes(message.payload), message.qos)
        run.links.add(self)

    def _made(self, number: int) -> _Client:
        run = self.run
        client = _Client(CallbackAPIVersion.VERSION2, self.id, None if self._v5 else self.clean, None,
                         mqtt.MQTTv5 if self._v5 else mqtt.MQTTv311, run.target.transport, False)
        client.connect_timeout = run.settings.timeout_s
        client.max_inflight_messages = client.max_queued_messages = UNACKED
        if run.target.transport == "websockets":
            client.ws_set_options(run.target.path)
        if run.tls is not None:
            client.tls_set_context(run.tls)
        user, password = run.settings.login(number)
        if user:
            client.username_pw_set(user, password or None)
        client.on_connect = self._on_connack
        client.on_disconnect = self._on_end
        client.on_socket_close = self._on_close
        client.on_publish = self._on_ack
        client.on_subscribe = self._on_suback
        return client

    # ---------------------------------------------------------------- for users

    def connect(self) -> bool:
        """Connect; the time counts from the first packet of the connection to CONNACK."""
        began = time.monotonic_ns()
        error = self._connect()
        if not error and self._client.socket() is None:
            error = "connection lost"
        self.up = not error
        if error:
            self._drop()
        self.run.record("connect", self.name, began, error=error)
        return self.up

    def _connect(self) -> str:
        run = self.run
        self._leaving, self._connack = False, AsyncResult()
        self._client.begin()
        try:
            if self._v5:
                properties = Properties(PacketTypes.CONNECT)    # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = 0 if self.clean else EXPIRY_S
                self._client.connect(run.target.host, run.target.port, KEEPALIVE_S, clean_start=self.clean,
                                     properties=properties)
            else:
                self._client.connect(run.target.host, run.target.port, KEEPALIVE_S)
            self._reader = gevent.spawn(self._read)
            return str(self._connack.get(timeout=run.settings.timeout_s))
        except gevent.Timeout:
            return "timed out: no CONNACK"
        except (OSError, ValueError, mqtt.WebsocketConnectionError) as e:
            return f"no connection: {words(e)}"

    def subscribe(self, topics: Iterable[str], qos: int, begin: Callable[[], None]) -> bool:
        """Subscribe; the time counts to SUBACK. begin() is called at SUBACK, before messages of the same segment."""
        if not self.up:
            return False
        began = time.monotonic_ns()
        _, mid = self._client.subscribe([(topic, qos) for topic in topics])
        answer = AsyncResult()
        self._subacks[mid or 0] = answer, begin
        self._flush()
        try:
            error = str(answer.get(timeout=self.run.settings.timeout_s))
        except gevent.Timeout:
            error = "timed out: no SUBACK"
        finally:
            self._subacks.pop(mid or 0, None)
        self.run.record("subscribe", self.name, began, error=error)
        return not error

    def publish(self, topic: str, payload: bytes, qos: int, due_ns: int) -> bool:
        """Publish; return False if the message was not sent.

        The time counts from due_ns to the write at QoS 0, else to PUBACK or PUBCOMP.
        """
        info = self._client.publish(topic, payload, qos)
        if info.rc == mqtt.MQTT_ERR_QUEUE_SIZE:
            self.run.record(f"publish QoS {qos}", self.name, error=f"not sent: {UNACKED} messages are unacknowledged")
            return False
        if qos:
            self._unacked[info.mid] = qos, due_ns, len(payload)
        self._flush()
        if not qos:
            self.run.record(f"publish QoS {qos}", self.name, due_ns, len(payload), "connection lost" if info.rc else "")
        return True

    @property
    def unacked(self) -> int:
        return len(self._unacked)

    def settled(self) -> bool:
        """Return whether no acknowledgement can arrive any more."""
        return not (self.up and self._unacked)

    def give_up(self, older_than_ns: int) -> None:
        """Stop waiting for the acknowledgements of older messages."""
        while self._unacked:
            mid, (qos, due_ns, _) = next(iter(self._unacked.items()))
            if due_ns > older_than_ns:
                return
            del self._unacked[mid]
            self.run.record(f"publish QoS {qos}", self.name, due_ns, error="timed out: not acknowledged")

    def leave(self) -> None:
        """Send DISCONNECT."""
        if self.up:
            self._leaving = True
            self._client.disconnect()
            self._flush()
        self._drop()

    def end(self) -> None:
        """Disconnect for good; remove a session that the broker keeps."""
        self.leave()
        if not self.clean:
            self.clean = True
            self._client = self._made(self.number)
            self.up = not self._connect()
            self.leave()
        self.run.links.discard(self)

    def tick(self, now_ns: int) -> None:
        """Send PINGREQ, and give up late acknowledgements; called at intervals."""
        if self.up:
            self._client.loop_misc()
        self.give_up(now_ns - int(self.run.settings.timeout_s * 1e9))

    # ---------------------------------------------------------------- the socket

    def _read(self) -> None:
        client, hub = self._client, gevent.get_hub()
        sock = client.socket()
        if sock is None:
            return
        reading, both = (hub.loop.io(sock.fileno(), events) for events in (READ, READ | WRITE))
        self._watchers = [reading, both]
        while client.socket() is sock:
            hub.wait(both if client.want_write() else reading)
            if client.want_write():
                client.loop_write()
            client.read()

    def _flush(self) -> None:
        """Write the output; a client that sends faster than the broker reads waits here."""
        while self._client.want_write() and self._client.socket() is not None:
            self._client.loop_write()
            if self._client.want_write():
                gevent.sleep(BLOCKED_S)

    def _drop(self) -> None:
        self.up = False
        sock = self._client.socket()
        if sock is not None:
            self._on_close()
            sock.close()

    def _on_close(self, *_: object) -> None:
        """Stop the watchers before the kernel can reuse the descriptor."""
        for watcher in self._watchers:
            watcher.stop()
        self._watchers = []
        reader, self._reader = self._reader, None
        if reader is not None and reader is not gevent.getcurrent():
            reader.kill(block=False)

    # ---------------------------------------------------------------- callbacks of paho

    def _on_connack(self, client: object, userdata: object, flags: Any, reason: Any, properties: object) -> None:
        self.resumed = flags.session_present
        self._connack.set(f"refused: {reason}" if reason.is_failure else "")

    def _on_end(self, client: object, userdata: object, flags: Any, reason: Any, properties: object) -> None:
        why = f"connection lost: {reason}" if flags.is_disconnect_packet_from_server else "connection lost"
        lost, self.up = self.up and not self._leaving, False
        if lost:
            self.run.record("connection", self.name, error=why)
            self._on_lost()
        if not self._connack.ready():   # the reason of a refusal arrives first, and is more precise
            self._connack.set(why)
        for answer, _ in self._subacks.values():
            answer.set(why)

    def _on_ack(self, client: object, userdata: object, mid: int, reason: Any, properties: object) -> None:
        if (known := self._unacked.pop(mid, None)) is not None:
            qos, due_ns, size = known
            error = f"refused: {reason}" if reason.is_failure else ""
            self.run.record(f"publish QoS {qos}", self.name, due_ns, size, error)

    def _on_suback(self, client: object, userdata: object, mid: int, reasons: list[Any], properties: object) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        answer, begin = self._subacks.get(mid, (None, None))
        if answer is not None and begin is not None:
            if not refused:
                begin()
            answer.set(f"refused: {refused[0]}" if refused else "")


def words(error: BaseException) -> str:
    """Return the error without numbers and addresses, so that equal failures are one line in locust's table."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)
