"""Receive messages from a broker into a spool, at least once.

The receiver acknowledges a message when it is on the disk, on the connection that it came from. The broker sends
unacknowledged messages again.

A lane is a connection with a persistent session; several lanes share the subscription. Paho's threads hand messages to
one thread, which spools and acknowledges them, many messages with one sync.
"""

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from paho.mqtt.subscribeoptions import SubscribeOptions

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.mqtt.connection import client, close, connect, refused
from mosq.pipeline.mqtt.spool import Received, Spool

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

    from mosq.pipeline.mqtt.options import ReadOptions

WAITING_MAX = 10_000  # messages between a connection and the disk; when it is full, the connection is not read
TOGETHER_MAX = 5_000  # messages for one sync
RETAIN_EVERY_S = 30
GONE = "the broker had lost the session of this lane: the number of messages that were published since is unknown"


class Lane:
    """Hold a connection and its generation: an acknowledgement must go to the connection that the message came from."""

    def __init__(self, receiver: "Receiver", number: int) -> None:
        self.receiver = receiver
        self.number = number
        self.ready = threading.Event()
        self.generation = 0
        self.lock = threading.Lock()
        options = receiver.options
        self.client: Client = client(options.access, options.client_id(number), keep_session=True)
        self.client.reconnect_delay_set(1, 30)
        self.client.on_connect = self._connected
        self.client.on_subscribe = self._subscribed
        self.client.on_disconnect = self._disconnected
        self.client.on_message = self._message

    def start(self) -> None:
        options = self.receiver.options
        connect(self.client, options.access, options.session_expiry_s, options.receive_maximum)
        self.client.loop_start()

    # ---- paho's thread calls these

    def _connected(self, paho: "Client", _: object, flags: Any, reason: Any, properties: object) -> None:
        if reason.is_failure:
            self.receiver.fail(refused(self.receiver.options.access, reason))
            return
        if not self.receiver.look(self.number, flags.session_present):
            return
        subscriptions = self.receiver.options.subscriptions()
        if self.receiver.options.access.version == 5:
            paho.subscribe([(topic, SubscribeOptions(qos=qos)) for topic, qos in subscriptions])
        else:
            paho.subscribe(subscriptions)

    def _subscribed(self, paho: "Client", _: object, mid: int, reasons: Any, properties: object) -> None:
        options = self.receiver.options
        for (topic, qos), reason in zip(options.subscriptions(), reasons, strict=False):
            if reason.is_failure or reason.value < qos:
                problem = reason if reason.is_failure else f"only QoS {reason.value} is granted"
                error = f"{options.access} does not grant the subscription {topic}: {problem}"
                self.receiver.fail(MosqPipelineError(error))
                return
        self.receiver.establish(self.number)
        self.ready.set()

    def _disconnected(self, paho: "Client", _: object, flags: object, reason: Any, properties: object) -> None:
        with self.lock:
            self.generation += 1
        if str(reason) == "Session taken over":
            self.receiver.fail(refused(self.receiver.options.access, reason))

    def _message(self, paho: "Client", _: object, message: "MQTTMessage") -> None:
        self.receiver.put((self, self.generation, message))

    # ---- the spooling thread calls this

    def acknowledge(self, generation: int, message: "MQTTMessage") -> None:
        with self.lock:
            if generation == self.generation:
                self.client.ack(message.mid, message.qos)


class Receiver:
    """Receive messages on all lanes. Only one Receiver may run for the same `options`.

    An error in a thread is kept; the next call of `check` raises it.
    """

    def __init__(self, options: "ReadOptions") -> None:
        self.options = options
        self._lanes = [Lane(self, number) for number in range(options.lanes)]
        self.spool = Spool(options.spool, options.name, options.lanes, options.window)
        self._established, self._lost = self.spool.sessions()
        self._sessions_lock = threading.Lock()
        self._queue: queue.Queue[Any] = queue.Queue(WAITING_MAX)
        self._failed: MosqPipelineError | None = None
        self._stopping = threading.Event()
        self.spooled_at = time.monotonic()
        self._spooling = threading.Thread(target=self._spool_all, name="mqtt-spool", daemon=True)

    def start(self) -> None:
        """Start all lanes; return when the broker has all sessions and subscriptions."""
        try:
            self._spooling.start()
            for lane in self._lanes:
                lane.start()
            end = time.monotonic() + self.options.access.connect_timeout_s
            for lane in self._lanes:
                while not lane.ready.wait(0.05):
                    self.check()
                    if time.monotonic() > end:
                        raise MosqPipelineError(
                            f"{self.options.access} does not answer for {self.options.access.connect_timeout_s:g} s; "
                            "see option connectTimeout"
                        )
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        """Close the connections. The sessions stay at the broker, which queues messages for them."""
        self._stopping.set()
        if self._spooling.is_alive():  # before the connections close, so that spooled messages are acknowledged
            self._spooling.join()
        for lane in self._lanes:
            close(lane.client)
        self.spool.close()

    def drain(self) -> None:
        """Wait until no message has come for `drain_s`: then all messages that the broker had queued are here."""
        self.spooled_at = time.monotonic()
        while time.monotonic() < self.spooled_at + self.options.drain_s:
            self.check()
            time.sleep(0.05)

    # ---- lanes call these

    def fail(self, error: MosqPipelineError) -> None:
        self._failed = self._failed or error

    def put(self, item: object) -> None:
        """Queue an item; wait while the queue is full. The broker waits too, because the connection is not read."""
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def look(self, lane: int, present: bool) -> bool:
        """Note whether the broker has the session of this lane; return whether the lane must subscribe."""
        with self._sessions_lock:
            if present and lane in self._established:
                self._lanes[lane].ready.set()
                return False
            if lane in self._established:  # recorded as lost: the session that follows is like one that never existed
                self._established.remove(lane)
                self._lost.add(lane)
                self.spool.put_sessions(self._established, self._lost)
            lost = lane in self._lost
        if lost and self.options.fail_on_loss:
            self.fail(
                MosqPipelineError(
                    f"{self.options.access} has no session {self.options.client_id(lane)} any more: it has expired "
                    "(option sessionExpiry, or the broker's own limit), or was removed; messages that were published "
                    "since are lost. Set failOnDataLoss=false to continue; a row of kind 10 (gap) marks the loss"
                )
            )
            return False
        if lost:
            self.put(lane)
        return True

    def establish(self, lane: int) -> None:
        with self._sessions_lock:
            self._established.add(lane)
            self._lost.discard(lane)
            self.spool.put_sessions(self._established, self._lost)

    # ---- the spooling thread

    def _take(self) -> list[Any]:
        items: list[Any] = []
        try:
            items.append(self._queue.get(timeout=0.1))
            while len(items) < TOGETHER_MAX:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def _spool_all(self) -> None:
        retained_at = time.monotonic()
        while not self._stopping.is_set() and self._failed is None:
            items = self._take()
            if not items:
                continue
            try:
                for item in items:
                    self._spool_one(item)
                self.spool.commit()
            except Exception as error:  # any exception: a query that continues without rows would hide it
                problem = f"received messages cannot be spooled: {type(error).__name__}: {error}"
                self.fail(error if isinstance(error, MosqPipelineError) else MosqPipelineError(problem))
                return
            self.spooled_at = time.monotonic()
            self.acknowledge(items)
            if time.monotonic() > retained_at + RETAIN_EVERY_S:
                self.spool.retain()
                retained_at = time.monotonic()

    def _spool_one(self, item: Any) -> None:
        if isinstance(item, int):
            self.spool.append_gap(item, GONE)
            return
        lane, _, message = item
        properties, key = _properties(message, self.options.key_property)
        self.spool.append(
            Received(
                lane.number,
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                message.dup,
                message.mid,
                properties,
                key,
            )
        )

    def acknowledge(self, items: list[Any]) -> None:
        for item in items:
            if not isinstance(item, int):
                lane, generation, message = item
                lane.acknowledge(generation, message)


def _properties(message: "MQTTMessage", key_property: str | None) -> tuple[bytes, str | None]:
    """Return the properties as in the packet, without their length, and the key that the publisher gave."""
    if message.properties is None or message.properties.isEmpty():  # type: ignore[no-untyped-call]
        return b"", None
    packed: bytes = message.properties.pack()  # type: ignore[no-untyped-call]
    at = next(i for i, byte in enumerate(packed) if byte < 128) + 1
    named = getattr(message.properties, "UserProperty", []) if key_property else []
    return packed[at:], next((value for name, value in named if name == key_property), None)
