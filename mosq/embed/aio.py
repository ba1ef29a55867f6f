"""The embedding API for asyncio: the conversations of `mosq.embed.connection`, for which the event loop waits. Only
this module of the package imports asyncio."""

import asyncio

from mosq.embed.arguments import ANSWER_TIMEOUT_S, octets, pairs, subscribe_options
from mosq.embed.connection import READ, RECEIVE_MAXIMUM, WRITE, Connection
from mosq.embed.errors import SubscriptionClosed
from mosq.embed.message import Message, Properties

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Self, TypeVar

    from mosq.embed.arguments import Payload, UserProperties
    from mosq.embed.broker import Broker
    from mosq.embed.connection import Steps

    T = TypeVar("T")


async def drive(steps: "Steps[T]", connection: Connection) -> "T":
    """Run a conversation; return its result. May be cancelled: bytes are read only if no wait follows."""
    try:
        while True:
            await _ready(connection, next(steps))
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        steps.close()


async def _ready(connection: Connection, wait_for: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    fd = connection.socket.fileno()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    if wait_for & READ:
        loop.add_reader(fd, wake)
    if wait_for & WRITE:
        loop.add_writer(fd, wake)
    try:
        await ready
    finally:
        if wait_for & READ:
            loop.remove_reader(fd)
        if wait_for & WRITE:
            loop.remove_writer(fd)


class AsyncSubscription:
    """An async iterator of messages; iteration ends when it is closed or the broker stops. Begins with `async with` or
    `await`. One task at a time waits for a message; the others queue."""

    def __init__(self, broker: "Broker", filters: tuple[str, ...], options: int, receive_maximum: int,
                 timeout: float | None) -> None:
        self._broker, self._filters, self._options = broker, filters, options
        self._receive_maximum, self._timeout = receive_maximum, timeout
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def _open(self) -> "Self":
        if self._connection is not None:
            return self
        connection = self._broker.new_connection(self._receive_maximum)
        try:
            async with asyncio.timeout(self._timeout):
                await drive(connection.open(), connection)
                await drive(connection.subscribe(self._filters, self._options), connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return self

    async def get(self, timeout: float | None = None) -> Message:
        """Return the next message. Raises TimeoutError after `timeout` seconds, SubscriptionClosed at the end,
        Disconnected if the broker ended only this subscription. May be cancelled: no message is lost."""
        if self._connection is None:
            raise SubscriptionClosed("not subscribed: `await` it, or enter it by `async with`")
        async with asyncio.timeout(timeout), self._lock:
            return await drive(self._connection.next_message(), self._connection)

    async def close(self) -> None:
        """End the subscription; a task that waits for a message is woken."""
        if self._connection is not None:
            self._connection.hang_up()
            async with self._lock:
                self._connection.close()

    def __await__(self) -> "Generator[Any, None, Self]":
        return self._open().__await__()

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.get()
        except SubscriptionClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "Self":
        return await self._open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class AsyncBroker:
    """The result of `async with mosq.Broker() as broker`: the methods of Broker as coroutines."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._connection: Connection | None = None
        self._publishing = asyncio.Lock()

    @property
    def port(self) -> int:
        """The first TCP port."""
        return self._broker.port

    @property
    def ports(self) -> list[int]:
        """The port of each listener in the order of the configuration; 0 for a Unix socket."""
        return self._broker.ports

    @property
    def url(self) -> str:
        """See Broker.url."""
        return self._broker.url

    async def publish(self,                    # parameters: one for each field and property of a PUBLISH
                topic: str, payload: "Payload" = b"", *, qos: int = 0, retain: bool = False,
                      timeout: float | None = ANSWER_TIMEOUT_S, payload_format: int | None = None,
                      message_expiry: int | None = None, content_type: str | None = None,
                      response_topic: str | None = None, correlation_data: bytes | None = None,
                      user_properties: "UserProperties" = ()) -> None:
        """See Broker.publish."""
        properties = Properties(payload_format, message_expiry, content_type, response_topic, correlation_data,
                                pairs(user_properties))
        message = Message(topic, octets(payload), qos, retain, properties)
        async with asyncio.timeout(timeout), self._publishing:
            connection = self._connection
            if connection is None or not connection.alive():
                self._connection = connection = await self._open()
            await drive(connection.publish(message), connection)

    async def _open(self) -> Connection:
        connection = self._broker.new_connection(RECEIVE_MAXIMUM)
        try:
            await drive(connection.open(), connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def subscribe(self, filter: str, *filters: str, qos: int = 0, retain_as_published: bool = False,
                  retain_handling: int = 0, receive_maximum: int = RECEIVE_MAXIMUM,
                  timeout: float | None = ANSWER_TIMEOUT_S) -> AsyncSubscription:
        """See Broker.subscribe; the subscription begins with `async with` or `await`."""
        return AsyncSubscription(self._broker, (filter, *filters),
                                 subscribe_options(qos, retain_as_published, retain_handling), receive_maximum, timeout)

    async def clients(self) -> "list[dict[str, Any]]":
        """See Broker.clients."""
        return await asyncio.to_thread(self._broker.clients)

    async def kick(self, client_id: str) -> bool:
        """See Broker.kick."""
        return await asyncio.to_thread(self._broker.kick, client_id)

    async def stats(self) -> dict[str, int]:
        """See Broker.stats."""
        return await asyncio.to_thread(self._broker.stats)

    async def explain(self, topic: str, *, timeout: float | None = ANSWER_TIMEOUT_S) -> "dict[str, Any]":
        """See Broker.explain."""
        return await asyncio.to_thread(self._broker.explain, topic, timeout=timeout)

    async def stop(self) -> None:
        """See Broker.stop. Uses no thread, because it must end the broker even while this task is being cancelled."""
        self._broker.stop()
        if self._connection is not None:
            self._connection.hang_up()
            async with self._publishing:
                self._connection.close()
