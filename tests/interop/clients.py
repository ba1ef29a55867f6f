"""Wrap real client libraries in one small blocking interface, so that each scenario is written once.

A client counts as connected, subscribed or done publishing when the library has seen the broker's acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import aiomqtt
import gmqtt  # type: ignore[import-untyped]
import paho.mqtt.client as paho
from gmqtt.mqtt.constants import MQTTv50, MQTTv311  # type: ignore[import-untyped]
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.harness.effort import TIMEOUT_S

LONG_S = 3600


@dataclass(frozen=True)
class Message:
    topic: str
    payload: str
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True)
class Setup:
    """Describe the connection of a client. `version` is the MQTT level, 4 or 5; `reconnects`: MQTT.js connects again, as paho and
    mosquitto_sub always do."""

    port: int
    client_id: str
    version: int
    persistent: bool = False
    will: Message | None = None
    websocket: bool = False
    reconnects: bool = False


class Client(ABC):
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.inbox: queue.Queue[Message] = queue.Queue()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def subscribe(self, pattern: str, qos: int) -> None: ...

    @abstractmethod
    def publish(self, message: Message) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Send DISCONNECT and stop."""

    @abstractmethod
    def drop(self) -> None:
        """Close without DISCONNECT."""

    def settle(self) -> None:
        """Make sure that all received messages are acknowledged: acknowledgements leave before this round trip."""
        self.subscribe("unused/" + self.setup.client_id, 0)

    def take(self, count: int) -> list[Message]:
        return [self.inbox.get(timeout=TIMEOUT_S) for _ in range(count)]

    def left_over(self) -> list[Message]:
        return list(self.inbox.queue)


class Paho(Client):
    def start(self) -> None:
        s = self.setup
        v5 = s.version == 5
        self.done: queue.Queue[str] = queue.Queue()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            s.client_id,
            clean_session=None if v5 else not s.persistent,
            protocol=MQTTProtocolVersion.MQTTv5 if v5 else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if s.websocket else "tcp",
        )
        self.client.on_message = lambda _c, _u, m: self.inbox.put(Message(m.topic, m.payload.decode(), m.qos, m.retain))
        self.client.on_connect = lambda _c, _u, _f, rc, _p: self.done.put(f"connect {rc}")
        self.client.on_subscribe = lambda *_: self.done.put("subscribe")
        if s.will is not None:
            self.client.will_set(s.will.topic, s.will.payload, s.will.qos, s.will.retain)
        if v5:
            props = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            props.SessionExpiryInterval = LONG_S if s.persistent else 0
            self.client.connect("127.0.0.1", s.port, clean_start=not s.persistent, properties=props)
        else:
            self.client.connect("127.0.0.1", s.port)
        self.client.loop_start()
        assert self.done.get(timeout=TIMEOUT_S) == "connect Success"

    def subscribe(self, pattern: str, qos: int) -> None:
        self.client.subscribe(pattern, qos)
        assert self.done.get(timeout=TIMEOUT_S) == "subscribe"

    def publish(self, message: Message) -> None:
        info = self.client.publish(message.topic, message.payload, message.qos, message.retain)
        if info.rc == paho.MQTT_ERR_NO_CONN and message.qos:        # paho keeps it, and sends it when it is connected again
            info.rc = paho.MQTT_ERR_SUCCESS
        info.wait_for_publish(TIMEOUT_S)
        assert info.is_published()

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        self.client.loop_stop()
        sock: Any = self.client.socket()
        _cut(getattr(sock, "_socket", sock))  # below its WebSocket


class Looping(Client):
    """A client for asyncio, with its own event loop and thread."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT_S)

    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.run(self.connect())

    def end(self) -> None:
        self.run(self.cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(TIMEOUT_S)
        self.loop.close()

    async def cancel(self) -> None:
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @abstractmethod
    async def connect(self) -> None: ...


class Aiomqtt(Looping):
    async def connect(self) -> None:
        s = self.setup
        will = aiomqtt.Will(s.will.topic, s.will.payload, s.will.qos, s.will.retain) if s.will else None
        more: dict[str, Any] = {"clean_session": not s.persistent}
        if s.version == 5:
            props = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            props.SessionExpiryInterval = LONG_S if s.persistent else 0
            more = {"clean_start": not s.persistent, "properties": props}
        version = aiomqtt.ProtocolVersion.V5 if s.version == 5 else aiomqtt.ProtocolVersion.V311
        self.client = aiomqtt.Client("127.0.0.1", s.port, identifier=s.client_id, protocol=version, will=will, **more)
        await self.client.__aenter__()
        self.reader = asyncio.create_task(self.read())

    async def read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):        # the connection is closed. A task with an unread error would log at any later time
            async for m in self.client.messages:
                assert isinstance(m.payload, bytes)
                self.inbox.put(Message(str(m.topic), m.payload.decode(), m.qos, m.retain))

    def subscribe(self, pattern: str, qos: int) -> None:
        self.run(self.client.subscribe(pattern, qos))

    def publish(self, message: Message) -> None:
        self.run(self.client.publish(message.topic, message.payload, message.qos, message.retain))

    def stop(self) -> None:
        self.run(self.leave())
        self.end()

    async def leave(self) -> None:
        self.reader.cancel()
        await self.client.__aexit__(None, None, None)

    def drop(self) -> None:
        _cut(self.client._client.socket())
        self.end()


class Gmqtt(Looping):
    async def connect(self) -> None:
        s = self.setup
        will = gmqtt.Message(s.will.topic, s.will.payload, qos=s.will.qos, retain=s.will.retain) if s.will else None
        more = {"session_expiry_interval": LONG_S} if s.persistent and s.version == 5 else {}
        self.client = gmqtt.Client(s.client_id, clean_session=not s.persistent, will_message=will, **more)
        self.client.set_config({"reconnect_retries": 0})
        self.subscribed = asyncio.Event()
        self.client.on_message = self.on_message
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        await self.client.connect("127.0.0.1", s.port, version=MQTTv50 if s.version == 5 else MQTTv311)

    def on_message(self, _client: object, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        self.inbox.put(Message(topic, payload.decode(), qos, bool(properties["retain"])))
        return 0

    def subscribe(self, pattern: str, qos: int) -> None:
        async def work() -> None:
            self.subscribed.clear()
            self.client.subscribe(pattern, qos)
            await self.subscribed.wait()

        self.run(work())

    def publish(self, message: Message) -> None:
        async def work() -> None:
            self.client.publish(message.topic, message.payload, qos=message.qos, retain=message.retain)
            while not self.client._persistent_storage.is_empty:  # the library shows the acknowledgement in no other way
                await asyncio.sleep(0.002)

        self.run(work())

    def stop(self) -> None:
        self.run(self.client.disconnect())
        self.end()

    def drop(self) -> None:
        self.loop.call_soon_threadsafe(self.client._connection._transport.abort)
        self.end()


def _cut(sock: Any) -> None:
    if isinstance(sock, socket.socket):
        sock.shutdown(socket.SHUT_RDWR)
