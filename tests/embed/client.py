"""Provide a plain socket client from outside, with the packets of the test harness."""

import socket

from mosq.embed import wire
from mosq.embed.message import Message


class Outside:
    """Connect an MQTT 5 client over TCP, blocking."""

    def __init__(self, port, client_id="outside"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.sendall(wire.connect(client_id, 100))
        assert self.packet()[0] >> 4 == wire.CONNACK

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.socket.close()

    def read(self, size):
        out = b""
        while len(out) < size:
            part = self.socket.recv(size - len(out))
            if not part:
                raise EOFError
            out += part
        return out

    def packet(self):
        """Return (first byte, body)."""
        head = bytearray(self.read(2))
        while wire.head(head, 0) is None:
            head += self.read(1)
        return head[0], self.read(wire.head(head, 0)[1])

    def subscribe(self, *filters, qos=0):
        self.socket.sendall(wire.subscribe(1, filters, qos))
        assert self.packet()[0] >> 4 == wire.SUBACK

    def publish(self, topic, payload=b"", **more):
        self.socket.sendall(wire.publish(Message(topic, payload, **more), 1))

    def message(self):
        first, body = self.packet()
        assert first >> 4 == wire.PUBLISH
        return wire.read_publish(first & 15, body)[0]
