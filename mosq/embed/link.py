"""A socket into the broker and the steps of a conversation over it, written once for threads and for asyncio: a step is
a generator that yields what it waits for (READ or WRITE), and whoever drives it knows how to wait.

Cost: two descriptors a link; no thread.
"""

import os
import socket

from mosq.embed.errors import BrokerError, BrokerStopped, Disconnected, PublishError, SubscribeError, SubscriptionClosed
from mosq.embed.message import Message
from mosq.embed.protocol import SHUTTING_DOWN, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    T = TypeVar("T")
    Steps = Generator[int, None, T]

READ, WRITE = 1, 4              # POLLIN, POLLOUT
RECEIVE_BYTES = 256 * 1024
RECEIVE_MAXIMUM = 100           # the broker's max_inflight_messages may be smaller


class Link:
    """One client of the broker inside its own process. One conversation at a time."""

    def __init__(self, adopt: "Callable[[int], None]", receive_maximum: int = RECEIVE_MAXIMUM) -> None:
        """`adopt` gives a descriptor to the broker; raises BrokerStopped when it does not run."""
        # unguessable, so that no client from outside can take the session over
        self.client_id = f"in-process-{os.urandom(12).hex()}"
        self.protocol = Protocol(self.client_id, receive_maximum)
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        theirs.setblocking(False)
        self.closed = False
        try:
            adopt(theirs.fileno())
        except BaseException as error:
            theirs.close()
            self.close()
            if isinstance(error, RuntimeError):
                raise BrokerStopped("the broker is not running") from None
            raise
        theirs.detach()

    def close(self) -> None:
        self.closed = True
        self.socket.close()

    def hang_up(self) -> None:
        """Ends the conversation from any thread: whoever waits in it is woken."""
        self.closed = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass                # it is gone already

    def alive(self) -> bool:
        """Between conversations: does the broker still listen here?"""
        try:
            return not self.closed and not self._receive()
        except BrokerError:
            self.close()
            return False

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()     # a forgotten subscription is no reason for a ResourceWarning

    # ------------------------------------------------------------ bytes

    def _flush(self) -> bool:
        """Sends what can be sent now; True: that was all."""
        out = self.protocol.out
        while out:
            try:
                sent = self.socket.send(out)
            except BlockingIOError:
                return False
            except OSError:
                raise BrokerStopped("the broker has closed the connection") from None
            del out[:sent]
        return True

    def _receive(self) -> bool:
        """Takes what is there; False: nothing yet."""
        try:
            received = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if received:
            self.protocol.feed(received)
            return True
        if self.protocol.ended is not None and self.protocol.ended != SHUTTING_DOWN and not self.closed:
            raise Disconnected("the broker ended the connection", self.protocol.ended)
        raise BrokerStopped("the broker has closed the connection")

    def _send(self) -> "Steps[None]":
        while not self._flush():
            yield WRITE

    # ------------------------------------------------------------ conversations

    def open(self) -> "Steps[None]":
        yield from self._send()
        while self.protocol.connected is None:
            if not self._receive():
                yield READ
        if self.protocol.connected:
            raise Disconnected("the broker refused the connection", self.protocol.connected)

    def publish(self, message: Message) -> "Steps[None]":
        """Ends when the message is sent, at QoS 1 and 2 when it is acknowledged."""
        reason = self.protocol.publish(message)
        if reason:
            raise PublishError(f"cannot publish to {message.topic!r}", reason)
        try:
            yield from self._answered()
        except BaseException:
            self.close()        # given up half-way: what comes after would be taken for its rest
            raise
        assert self.protocol.answer is not None
        if self.protocol.answer[0] >= 0x80:
            raise PublishError(f"cannot publish to {message.topic!r}", self.protocol.answer[0])

    def subscribe(self, filters: tuple[str, ...], options: int) -> "Steps[None]":
        self.protocol.subscribe(filters, options)
        yield from self._answered()
        for filter, reason in zip(filters, self.protocol.answer or (), strict=True):
            if reason >= 0x80:
                raise SubscribeError(f"cannot subscribe to {filter!r}", reason)

    def _answered(self) -> "Steps[None]":
        while True:
            yield from self._send()         # PUBREL comes out of what was received
            if self.protocol.answer is not None:
                return
            if not self._receive():
                yield READ

    def next_message(self) -> "Steps[Message]":
        """Raises SubscriptionClosed at the end, Disconnected when the broker ended this link alone. May be given up
        at any step: nothing is lost."""
        while True:
            if self.closed:
                raise SubscriptionClosed("the subscription is closed")
            message = self.protocol.take()
            try:
                self._flush()               # what does not fit now goes with the next one
            except BrokerStopped:
                pass                        # what came before the end can still be taken
            if message is not None:
                return message
            try:
                received = self._receive()
            except BrokerStopped:
                self.close()
                raise SubscriptionClosed("the subscription has ended") from None
            if not received:
                yield WRITE | READ if self.protocol.out else READ
