"""An MQTT 5 client without a socket: `feed` takes received bytes, `out` holds bytes to send. The other end is this
process's broker. Knows neither threads nor asyncio.

  sending   QoS 1: PUBLISH -> PUBACK            QoS 2: PUBLISH -> PUBREC, PUBREL -> PUBCOMP      one at a time
  receiving QoS 1: PUBLISH, take() -> PUBACK    QoS 2: PUBLISH, take() -> PUBREC, PUBREL -> PUBCOMP

Invariant: take() acknowledges a message, so a program that takes none holds the broker back at receive maximum. The
client keeps at most the messages of one `feed`.
"""

from collections import deque

from mosq.embed import wire
from mosq.embed.message import Message
from mosq.reason_codes import PACKET_TOO_LARGE, RETAIN_NOT_SUPPORTED, UNSPECIFIED

PACKET_ID = 1           # there is one publish or subscribe at a time


class Protocol:
    """The state of one connection."""

    def __init__(self, client_id: str, receive_maximum: int, username: str | None = None,
                 password: str | None = None) -> None:
        self.out = bytearray(wire.connect(client_id, receive_maximum, username, password))
        self.connected: int | None = None       # the reason code of CONNACK
        self.answer: list[int] | None = None    # reason codes of the last publish or subscribe; None: not yet answered
        self.ended: int | None = None           # the reason code of DISCONNECT
        self.packet_max = wire.VARINT_MAX + 5
        self.retain_available = True
        self.max_qos = 2
        self._messages: deque[tuple[Message, int]] = deque()
        self._in = bytearray()

    # ------------------------------------------------------------ sending

    def publish(self, message: Message) -> int:
        """Queue a PUBLISH; `answer` is set later at QoS 1 and 2. Return 0, or the reason code why it cannot be sent."""
        packet = wire.publish(message, PACKET_ID)
        if len(packet) > self.packet_max:
            return PACKET_TOO_LARGE             # [v5 3.2.2-15]
        if message.retain and not self.retain_available:
            return RETAIN_NOT_SUPPORTED         # [v5 3.2.2-14]
        self.answer = None if message.qos else [0]
        self.out += packet
        return 0

    def subscribe(self, filters: tuple[str, ...], options: int) -> None:
        """Queue a SUBSCRIBE; `answer` is set when SUBACK arrives."""
        self.answer = None
        self.out += wire.subscribe(PACKET_ID, filters, options)

    def take(self) -> Message | None:
        """Return and acknowledge the next message; None if there is none."""
        if not self._messages:
            return None
        message, pid = self._messages.popleft()
        if message.qos:
            self.out += wire.acknowledge(wire.PUBACK if message.qos == 1 else wire.PUBREC, pid)
        return message

    def disconnect(self) -> None:
        """Queue a DISCONNECT."""
        self.out += wire.disconnect()

    # ------------------------------------------------------------ receiving

    def feed(self, received: bytes) -> None:
        """Handle received bytes. Raises wire.Malformed."""
        buffer = self._in
        buffer += received
        at = 0
        while at < len(buffer):
            found = wire.head(buffer, at)
            if found is None or at + found[0] + found[1] > len(buffer):
                break
            start = at + found[0]
            first = buffer[at]
            at = start + found[1]
            self._packet(first, bytes(buffer[start:at]))
        del buffer[:at]

    def _packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == wire.PUBLISH:
            self._messages.append(wire.read_publish(first & 15, body))
        elif kind == wire.CONNACK:
            self._connack(wire.Cursor(body))
        elif kind == wire.SUBACK:
            cursor = wire.Cursor(body)
            cursor.u16()
            cursor.properties()
            self.answer = list(cursor.take(cursor.left()))
        elif kind in (wire.PUBACK, wire.PUBREC, wire.PUBREL, wire.PUBCOMP):
            self._acknowledged(kind, wire.Cursor(body))
        elif kind == wire.DISCONNECT:
            self.ended = body[0] if body else 0
        else:
            raise wire.Malformed(f"a packet of type {kind}")

    def _connack(self, cursor: wire.Cursor) -> None:
        cursor.byte()
        self.connected = cursor.byte()
        found = cursor.properties()
        self.packet_max = found.get(wire.MAXIMUM_PACKET_SIZE, self.packet_max)
        self.retain_available = bool(found.get(wire.RETAIN_AVAILABLE, 1))
        self.max_qos = found.get(wire.MAXIMUM_QOS, 2)

    def _acknowledged(self, kind: int, cursor: wire.Cursor) -> None:
        pid = cursor.u16()
        reason = cursor.byte() if cursor.left() else 0
        if kind == wire.PUBREL:
            self.out += wire.acknowledge(wire.PUBCOMP, pid)
        elif kind == wire.PUBREC and reason < UNSPECIFIED:
            self.out += wire.acknowledge(wire.PUBREL, pid)
        else:
            self.answer = [reason]
