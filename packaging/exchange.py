"""Checks a broker on this machine with the standard library alone: for dev/install-matrix and for the health check of
the container.

    python3 exchange.py health [PORT]       connect, and expect any CONNACK
    python3 exchange.py leave N [PORT]      leave a session, publish N messages for it and a retained one
    python3 exchange.py fetch N [PORT]      expect that session, its N messages and the retained one
"""

import socket
import sys

WAIT_S = 10
CONNACK, PUBLISH, PUBACK, SUBACK = 2, 3, 4, 9


def text(value: str) -> bytes:
    """Return a string as MQTT has it [v3.1.1 1.5.3]."""
    return len(value).to_bytes(2, "big") + value.encode()


class Client:
    """A client of MQTT 3.1.1 that sends small packets one after the other."""

    def __init__(self, port: int, name: str, clean: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket.settimeout(WAIT_S)
        self.stream = self.socket.makefile("rb")
        self.send(0x10, text("MQTT") + bytes([4, 2 if clean else 0, 0, 60]) + text(name))
        kind, body = self.receive()
        if kind != CONNACK:
            raise SystemExit("the program on this port is no broker")
        self.present, self.code = bool(body[0]), body[1]

    def send(self, first: int, body: bytes) -> None:
        """Send a packet of fewer than 128 bytes."""
        self.socket.sendall(bytes([first, len(body)]) + body)

    def receive(self) -> tuple[int, bytes]:
        """Return the type and the body of the next packet."""
        head = self.stream.read(2)
        if len(head) < 2:
            raise SystemExit("the broker closed the connection")
        return head[0] >> 4, self.stream.read(head[1])

    def subscribe(self, topic: str) -> None:
        """Subscribe with QoS 1."""
        self.send(0x82, b"\0\1" + text(topic) + b"\1")
        while self.receive()[0] != SUBACK:
            pass

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Publish with QoS 1 and await the acknowledgement."""
        self.send(0x32 + retain, text(topic) + b"\0\2" + payload)
        while self.receive()[0] != PUBACK:
            pass

    def messages(self, count: int) -> list[bytes]:
        """Await messages of QoS 1, acknowledge each, and return their payloads."""
        found: list[bytes] = []
        while len(found) < count:
            kind, body = self.receive()
            if kind == PUBLISH:
                start = 2 + int.from_bytes(body[:2], "big")
                self.send(0x40, body[start:start + 2])
                found.append(body[start + 2:])
        return found

    def close(self) -> None:
        """Send DISCONNECT."""
        self.send(0xE0, b"")
        self.socket.close()


def leave(port: int, count: int) -> None:
    """Leave a session with `count` messages, and a retained message."""
    stays = Client(port, "stays", clean=False)
    if stays.code:
        raise SystemExit(f"the broker refuses the client with code {stays.code}")
    stays.subscribe("install/queue/#")
    stays.close()
    other = Client(port, "other", clean=True)
    for number in range(count):
        other.publish(f"install/queue/{number}", b"%d" % number)
    other.publish("install/retained", b"kept", retain=True)
    other.close()


def fetch(port: int, count: int) -> None:
    """Check what `leave` has left. Ends the program with a reason if something is missing."""
    stays = Client(port, "stays", clean=False)
    if not stays.present:
        raise SystemExit("the session is lost")
    found = stays.messages(count)
    if found != [b"%d" % number for number in range(count)]:
        raise SystemExit(f"messages are lost or in another order: {found}")
    stays.subscribe("install/retained")
    if stays.messages(1) != [b"kept"]:
        raise SystemExit("the retained message is lost")
    stays.close()


def main(words: list[str]) -> None:
    """Run a command line."""
    if words[0] == "health":
        Client(int(words[1]) if len(words) > 1 else 1883, "", clean=True).close()
        return
    {"leave": leave, "fetch": fetch}[words[0]](int(words[2]) if len(words) > 2 else 1883, int(words[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
