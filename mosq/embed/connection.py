"""A socket into the broker and the conversations over it, written once for threads and for asyncio: a conversation is a
generator that yields the events it waits for (READ or WRITE), and its driver waits for them.

Cost: two descriptors for each connection; no thread.
"""

import os
import socket

from mosq.embed.errors import BrokerError, BrokerStopped, Disconnected, PublishError, SubscribeError, SubscriptionClosed
from mosq.embed.message import Message
from mosq.embed.protocol import Protocol
from mosq.reason_codes import SERVER_SHUTTING_DOWN, UNSPECIFIED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    T = TypeVar("T")
    Steps = Generator[int, None, T]

READ, WRITE = 1, 4              # POLLIN, POLLOUT
RECEIVE_BYTES = 256 * 1024
RECEIVE_MAXIMUM = 100           # the broker's max_inflight_messages may be lower


class Connection:
    """A client of the broker inside its own process. Runs one conversation at a time."""

    def __init__(self, adopt: "Callable[[int, str], None]", receive_maximum: int = RECEIVE_MAXIMUM,
                 has_other_workers: "Callable[[], bool]" = bool) -> None:
        """`adopt` passes a descriptor and the client id to the broker, which owns the descriptor then.
        `has_other_workers`: whether the broker goes on if the process of this connection ends. Raises BrokerStopped if
        the broker is not running."""
        # random, so that no client outside can take the session over
        self.client_id = f"in-process-{os.urandom(12).hex()}"
        self.protocol = Protocol(self.client_id, receive_maximum)
        self._has_other_workers = has_other_workers
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        theirs.setblocking(False)
        self.closed = False
        try:
            adopt(theirs.fileno(), self.client_id)
        except BaseException as error:
            theirs.close()
            self.close()
            if isinstance(error, RuntimeError):
                raise BrokerStopped("the broker is not running") from None
            raise
        theirs.detach()

    def close(self) -> None:
        """Close the socket. Do not call it while another thread is in a conversation; use `hang_up` first."""
        self.closed = True
        self.socket.close()

    def hang_up(self) -> None:
        """End the conversation; any thread may call this. A thread that waits in it is woken."""
        self.closed = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass                # already closed

    def alive(self) -> bool:
        """Return whether the broker still serves this connection; call it between conversations."""
        try:
            return not self.closed and not self._receive()
        except BrokerError:
            self.close()
            return False

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()     # avoids a ResourceWarning for a subscription that was not closed

    # ------------------------------------------------------------ bytes

    def _flush(self) -> bool:
        """Send what the socket takes now; return True if nothing is left."""
        out = self.protocol.out
        while out:
            try:
                sent = self.socket.send(out)
            except BlockingIOError:
                return False
            except OSError:
                raise self._end() from None
            del out[:sent]
        return True

    def _receive(self) -> bool:
        """Read available bytes; return False if there are none yet. Raises Disconnected or BrokerStopped at the end."""
        try:
            received = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if received:
            self.protocol.feed(received)
            return True
        raise self._end()

    def _end(self) -> BrokerError:
        """Return the error for the end of the connection: whether the broker runs on."""
        ended = self.protocol.ended             # None without DISCONNECT
        if not self.closed and ended is None and self._has_other_workers():
            return Disconnected("the worker of this connection has ended", UNSPECIFIED)
        if not self.closed and ended is not None and ended != SERVER_SHUTTING_DOWN:
            return Disconnected("the broker ended the connection", ended)
        return BrokerStopped("the broker has closed the connection")

    def _send(self) -> "Steps[None]":
        while not self._flush():
            yield WRITE

    # ------------------------------------------------------------ conversations

    def open(self) -> "Steps[None]":
        """Wait for CONNACK. Raises Disconnected if the broker refuses."""
        yield from self._send()
        while self.protocol.connected is None:
            if not self._receive():
                yield READ
        if self.protocol.connected:
            raise Disconnected("the broker refused the connection", self.protocol.connected)

    def publish(self, message: Message) -> "Steps[None]":
        """Publish; ends when the message is sent, at QoS 1 and 2 when it is acknowledged. Raises PublishError."""
        reason = self.protocol.publish(message)
        if reason:
            raise PublishError(f"cannot publish to {message.topic!r}", reason)
        try:
            yield from self._answered()
        except BaseException:
            self.close()        # aborted: later bytes would be mistaken for its end
            raise
        assert self.protocol.answer is not None
        if self.protocol.answer[0] >= UNSPECIFIED:
            raise PublishError(f"cannot publish to {message.topic!r}", self.protocol.answer[0])

    def subscribe(self, filters: tuple[str, ...], options: int) -> "Steps[None]":
        """Subscribe; ends with the acknowledgement. Raises SubscribeError for the first refused filter."""
        self.protocol.subscribe(filters, options)
        yield from self._answered()
        for filter, reason in zip(filters, self.protocol.answer or (), strict=True):
            if reason >= UNSPECIFIED:
                raise SubscribeError(f"cannot subscribe to {filter!r}", reason)

    def _answered(self) -> "Steps[None]":
        while True:
            yield from self._send()         # a received PUBREC causes a PUBREL
            if self.protocol.answer is not None:
                return
            if not self._receive():
                yield READ

    def next_message(self) -> "Steps[Message]":
        """Return the next message. Raises SubscriptionClosed at the end, Disconnected if the broker ended only this
        connection. May be abandoned at any step: no message is lost."""
        while True:
            if self.closed:
                raise SubscriptionClosed("the subscription is closed")
            message = self.protocol.take()
            try:
                self._flush()               # the rest is sent with the next message
            except (BrokerStopped, Disconnected):
                pass                        # messages received before the end can still be taken
            if message is not None:
                return message
            try:
                received = self._receive()
            except BrokerStopped:
                self.close()
                raise SubscriptionClosed("the subscription has ended") from None
            if not received:
                yield WRITE | READ if self.protocol.out else READ
