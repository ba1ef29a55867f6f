"""`mosq.Broker`: a real broker in a thread of this process.

The program's own messages take the same way as those of other clients: over a socket pair, whose other end the data
plane adopts and trusts (no password, no ACL). All publishes share one such connection; each subscription has its own.
"""

import threading
import weakref

from mosq.config.embedded import embedded_config
from mosq.config.errors import ConfigError
from mosq.embed.arguments import ANSWER_TIMEOUT_S, octets, pairs, subscribe_options
from mosq.embed.connection import RECEIVE_MAXIMUM, Connection
from mosq.embed.errors import BrokerStopped
from mosq.embed.log import logger
from mosq.embed.message import Message, Properties
from mosq.embed.running import Running
from mosq.embed.subscription import Subscription, deadline, drive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from mosq.config.embedded import OptionValue, Source
    from mosq.embed.aio import AsyncBroker
    from mosq.embed.arguments import Payload, UserProperties
    from mosq.embed.workers import RunningWorkers


class Broker:
    """A broker to start and stop: `with Broker() as broker`, `async with Broker() as broker`, or `start()` and
    `stop()`.

    `config`: None (one listener on a free port of 127.0.0.1 that accepts all clients), the path of a mosquitto.conf, or
    the text of one (with at least one line break). `options`, by their names in mosquitto.conf, override it; `port=0`
    selects a free port for each TCP listener. `workers` is another name of `cluster_local`: the number of processes
    that serve the clients, which end with this one. Raises ConfigError at once for an error in them.
    """

    def __init__(self, config: "Source" = None, **options: "OptionValue") -> None:
        self._config = embedded_config(config, options)
        self._given = config, options
        self._running: Running | RunningWorkers | None = None
        self._finalizer: weakref.finalize[[], Broker] | None = None
        self._connection: Connection | None = None
        self._publishing = threading.Lock()

    # ------------------------------------------------------------ start and stop

    def start(self) -> "Self":
        """Start the broker; return when clients can connect. Raises ConfigError, OSError for a port that is not
        available, RuntimeError after an earlier start."""
        if self._running is not None:
            raise RuntimeError("the broker was started before; make another one")
        try:
            running = self._run()
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._running = running
        self._finalizer = weakref.finalize(self, running.stop)     # at collection or at the program's end
        for warning in self._config.warnings:
            logger.warning("%s", warning)
        return self

    def _run(self) -> "Running | RunningWorkers":
        if self._config.cluster_local == 1:
            return Running(self._config)
        from mosq.embed.workers import RunningWorkers  # subprocess takes 10 ms to load

        return RunningWorkers(self._config, *self._given)

    def stop(self) -> None:
        """Stop the broker: disconnect its clients and end subscriptions. Any thread may call this, any number of
        times."""
        if self._finalizer is not None:
            self._finalizer()
        if self._running is not None:
            self._running.stop()        # another thread may be stopping it: wait for that
        with self._publishing:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> "Self":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    async def __aenter__(self) -> "AsyncBroker":
        from mosq.embed.aio import AsyncBroker  # asyncio takes 50 ms to load

        self.start()
        self._aio = AsyncBroker(self)
        return self._aio

    async def __aexit__(self, *exception: object) -> None:
        await self._aio.stop()

    # ------------------------------------------------------------ addresses

    @property
    def ports(self) -> list[int]:
        """The port of each listener in the order of the configuration; 0 for a Unix socket."""
        return list(self._started().ports)

    @property
    def port(self) -> int:
        """The first TCP port."""
        return next((port for port in self.ports if port), 0)

    @property
    def url(self) -> str:
        """The URL of the first TCP listener, such as mqtt://127.0.0.1:43210; unix:///PATH if there is none."""
        for listener, port in zip(self._config.listeners, self.ports, strict=True):
            if port:
                host = listener.host or "127.0.0.1"
                host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
                return f"mqtt://[{host}]:{port}" if ":" in host else f"mqtt://{host}:{port}"
        return f"unix://{self._config.listeners[0].path}"

    # ------------------------------------------------------------ messages

    def publish(self,                    # parameters: one for each field and property of a PUBLISH
                topic: str, payload: "Payload" = b"", *, qos: int = 0, retain: bool = False,
                timeout: float | None = ANSWER_TIMEOUT_S, payload_format: int | None = None,
                message_expiry: int | None = None, content_type: str | None = None,
                response_topic: str | None = None, correlation_data: bytes | None = None,
                user_properties: "UserProperties" = ()) -> None:
        """Publish a message. Returns after the broker's acknowledgement at QoS 1 and 2, after sending at QoS 0.
        `message_expiry` is in seconds. Raises PublishError with the reason, ValueError for an invalid topic,
        BrokerStopped, TimeoutError after `timeout` seconds. Any thread may call this."""
        properties = Properties(payload_format, message_expiry, content_type, response_topic, correlation_data,
                                pairs(user_properties))
        message = Message(topic, octets(payload), qos, retain, properties)
        give_up = deadline(timeout)
        with self._publishing:
            connection = self._shared_connection(give_up)
            drive(connection.publish(message), connection, give_up)

    def subscribe(self, filter: str, *filters: str, qos: int = 0, retain_as_published: bool = False,
                  retain_handling: int = 0, receive_maximum: int = RECEIVE_MAXIMUM,
                  timeout: float | None = ANSWER_TIMEOUT_S) -> Subscription:
        """Subscribe; returns after the broker's acknowledgement, so all messages published after that are delivered.
        `retain_handling`: retained messages are sent (0, 1) or not (2). At QoS 1 and 2 the broker sends at most
        `receive_maximum` messages that the program has not taken, and queues up to max_queued_messages. Raises
        SubscribeError with the reason."""
        options = subscribe_options(qos, retain_as_published, retain_handling)
        give_up = deadline(timeout)
        connection = self._open(receive_maximum, give_up)
        try:
            drive(connection.subscribe((filter, *filters), options), connection, give_up)
        except BaseException:
            connection.close()
            raise
        return Subscription(connection)

    def _shared_connection(self, give_up: float | None) -> Connection:
        """Return the connection that all publishes share; the caller holds the lock."""
        if self._connection is None or not self._connection.alive():
            self._connection = self._open(RECEIVE_MAXIMUM, give_up)
        return self._connection

    def _open(self, receive_maximum: int, give_up: float | None) -> Connection:
        connection = self.new_connection(receive_maximum)
        try:
            drive(connection.open(), connection, give_up)
        except BaseException:
            connection.close()
            raise
        return connection

    # ------------------------------------------------------------ administration

    def clients(self) -> "list[dict[str, Any]]":
        """Return a dict for each connected client: id, username, address, port, version, keepalive, subscriptions,
        pending, unsent_bytes; with several workers also worker. This program's own connections are excluded."""
        return [client for client in self._call("clients") if client["address"] or not _is_own(client["id"])]

    def kick(self, client_id: str) -> bool:
        """Disconnect a client. Return False if no client with this id is connected."""
        return bool(self._call("kick", client_id))

    def stats(self) -> dict[str, int]:
        """Return counters and gauges by name. As in `$SYS`, this program's own connections count as clients."""
        found: dict[str, int] = self._call("stats")
        return found

    def explain(self, topic: str, *, timeout: float | None = ANSWER_TIMEOUT_S) -> "dict[str, Any]":
        """Return the filters that match a topic, their paths through the index, and the cost of the look-up;
        docs/index.md describes the result. Raises ValueError for an invalid topic, BrokerStopped, TimeoutError after
        `timeout` seconds."""
        from mosq.embed.explain import explain  # json is slow to load

        give_up = deadline(timeout)
        with self._publishing:
            connection = self._shared_connection(give_up)
            return drive(explain(connection, topic), connection, give_up)

    # ------------------------------------------------------------ internal

    def new_connection(self, receive_maximum: int) -> Connection:
        """Return a connection that is not open yet, for `mosq.embed.aio`."""
        if not 1 <= receive_maximum <= 65535:
            raise ValueError(f"receive_maximum is {receive_maximum}; it must be 1 to 65535")
        running = self._started()
        return Connection(running.adopt, receive_maximum, running.has_other_workers)

    def _started(self) -> "Running | RunningWorkers":
        if self._running is None:
            raise BrokerStopped("the broker is not running; start it by `with` or start()")
        return self._running

    def _call(self, method: str, *arguments: str) -> "Any":
        try:
            return self._started().call(method, *arguments)
        except RuntimeError:
            raise BrokerStopped("the broker is not running") from None


def _is_own(client_id: str) -> bool:
    return client_id.startswith("in-process-")
