"""A client of the broker inside its own process, on the server's loop: a socket pair, of which the broker adopts one
end. It speaks the few packets of MQTT 5 that the dashboard needs. The broker trusts such a client, so its users check
every right before they show anything (rights.py).

Bounds: a packet has at most PACKET_MAX bytes, because the broker knows that limit and sends no larger one; the client
asks only at QoS 0, so nothing waits for it in the broker but one output, which max_output_bytes bounds.
"""

import asyncio
import os
import socket

from mosq.varint import varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Message = tuple[str, bytes, int, bool]      # topic, payload, QoS, retain
    Take = Callable[[Message], None]

PACKET_MAX = 1 << 20
OPEN_WITHIN_S = 5.0
CONNECT, CONNACK, PUBLISH, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK = 1, 2, 3, 8, 9, 10, 11
NO_RETAINED = 0x20              # subscription option: send no retained messages [v5 3.8.3.1]
REFUSED = 0x80                  # reason codes from here on are errors


class ClosedError(Exception):
    """The broker has ended the connection, or does not answer."""


class Inside(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.take: Take = lambda message: None      # gets each message
        self._in = bytearray()
        self._answer: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    # ---- requests, one at a time

    async def open(self, adopt: "Callable[[int], None]") -> None:
        """Connect. `adopt` passes a descriptor to the broker, and may wait for it. Raises ClosedError."""
        loop = asyncio.get_running_loop()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise ClosedError(f"No connection to the broker: {error.strerror}.") from None
        for one in (ours, theirs):
            one.setblocking(False)
        try:
            await loop.run_in_executor(None, adopt, theirs.fileno())
            theirs.detach()             # the broker has it
            await loop.connect_accepted_socket(lambda: self, ours)
        except (OSError, RuntimeError):
            ours.close()
            theirs.close()
            raise ClosedError("The broker does not answer.") from None
        limit = b"\x27" + PACKET_MAX.to_bytes(4, "big")
        head = _text("MQTT") + bytes((5, 2, 0, 0)) + varint(len(limit)) + limit
        if await self._ask(_frame(CONNECT << 4, head + _text(f"dashboard-{os.urandom(12).hex()}"))) >= REFUSED:
            self.close()
            raise ClosedError("The broker refuses a connection of the dashboard.")

    async def subscribe(self, filter: str, options: int = 0) -> int:
        """Subscribe; return the reason code. Raises ClosedError."""
        return await self._ask(_frame(SUBSCRIBE << 4 | 2, b"\0\1\0" + _text(filter) + bytes((options,))))

    async def unsubscribe(self, filter: str) -> None:
        """Remove a subscription. Raises ClosedError."""
        await self._ask(_frame(UNSUBSCRIBE << 4 | 2, b"\0\1\0" + _text(filter)))

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message at QoS 0."""
        if self._transport is not None:
            self._transport.write(_frame(PUBLISH << 4, _text(topic) + b"\0" + payload))

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def _ask(self, packet: bytes) -> int:
        if self._transport is None or self.closed:
            raise ClosedError("The broker has ended the connection.")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(packet)
        try:
            return await asyncio.wait_for(self._answer, OPEN_WITHIN_S)
        except TimeoutError:
            self.close()
            raise ClosedError("The broker does not answer.") from None

    # ---- events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or transport is not None
        self._transport = transport     # type: ignore[assignment] # of uvloop

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ClosedError("The broker has ended the connection."))

    def data_received(self, data: bytes) -> None:
        buffer, at = self._in, 0
        buffer += data
        while (found := _size(buffer, at)) is not None:
            start, end = found
            self._packet(buffer[at], bytes(buffer[start:end]))
            at = end
        del buffer[:at]

    def _packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == PUBLISH:
            n = int.from_bytes(body[:2], "big")
            at = 2 + n + (2 if first & 6 else 0)
            size, at = _varint(body, at)
            self.take((body[2:2 + n].decode("utf-8", "replace"), body[at + size:], first >> 1 & 3, bool(first & 1)))
        elif kind in (CONNACK, SUBACK, UNSUBACK):
            code = body[1] if kind == CONNACK else body[-1]
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(code)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _frame(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


def _varint(data: "bytes | bytearray", at: int) -> tuple[int, int]:
    """Return the number at `at`, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _size(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Return begin and end of the body of the packet at `at`; None if it is incomplete."""
    for last in range(at + 1, min(at + 5, len(buffer))):
        if buffer[last] < 128:
            size, start = _varint(buffer, at + 1)
            return (start, start + size) if start + size <= len(buffer) else None
    return None
