"""Accepts HTTP connections and bounds them. uvicorn reads the requests and writes the answers; this module adds what
uvicorn lacks: deadlines, a maximum of connections, and room for the next client when slow clients hold all places.

  accepted -> request -> work -> answer -> closed
              client    server   client    client      the side that the connection waits for

While a connection waits for its client it has a deadline, and the one that has waited longest without progress makes
room for a new one. Bytes of an unfinished request are no progress; an answer that drains is. A connection is not
evicted while the server works for it, nor in the first turns of a wait, in which its request is read or its answer
sent. If no connection can go, accepting pauses: new clients wait in the kernel's queue, in their order. app.py bounds
the number of connections for which the server works a long time. A check of a password counts as a wait.

The network with most connections loses one; an IPv6 /64 is one network. The first GUARANTEED_PART of the places that a
network holds are not taken before GUARANTEED_S, so a flood from other networks cannot end a request on its way.

Memory: HEAD_BYTES_MAX of a request; WRITE_BUFFER_BYTES of an answer plus one piece of it; SEND_BYTES in the kernel.
"""

import asyncio
import socket
import ssl
import struct
import sys
from collections import Counter
from email.utils import formatdate
from http import HTTPStatus
from time import time

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mosq.auth.networks import subscriber_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable
    from typing import Any

    from starlette.responses import Response
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from mosq.server.http.listeners import HttpListener

CONNECTIONS_MAX = 64
NETWORK_MAX = CONNECTIONS_MAX // 4      # a network with more connections makes room among its own
GUARANTEED_PART = 1 / 16                # of the places; at least one for each network
GUARANTEED_S = 0.5                      # since accept or the last progress; less on a listener with fewer places
HEAD_BYTES_MAX = 16 << 10               # request line and headers
CHUNKED_BYTES_MAX = 32 << 10            # a request with a body in chunks: each chunk costs CPU, however short it is
REQUEST_WITHIN_S = 10.0                 # TLS handshake, head and body
DRAIN_WITHIN_S = 15.0                   # until the client has taken a piece of the answer
CLOSE_WITHIN_S = 15.0                   # until the client has taken the rest of it
LINGER_WITHIN_S = 2.0                   # for a client that still sends after its request was refused
LINGER_BYTES_MAX = 1 << 20
WRITE_BUFFER_BYTES = 64 << 10
SEND_BYTES = 128 << 10                  # the kernel takes twice as much
ACCEPTS_PER_TURN = 8
TURNS_MIN = 4                           # of accepting, until a connection that waits may be evicted
ACCEPT_AGAIN_S = 0.01                   # longest pause if there is no room or no descriptor
RESET = struct.pack("ii", 1, 0)         # SO_LINGER: close discards unsent data


class Connection(H11Protocol):
    """One connection, from accept to close."""

    def __init__(self, owner: "Connections", listener: "HttpListener", sock: socket.socket, address: str, port: int,
                 config: "Config", state: "ServerState") -> None:
        super().__init__(config, state, {"connection": self})
        self.owner, self.listener, self.sock = owner, listener, sock
        self.address, self.port = address, port     # of the client; "" and 0 for a unix socket
        self.network = subscriber_of(address)
        self.opening: asyncio.Task[None] | None = None
        self.login: asyncio.Future[bool] | None = None     # its place among the logins, while it waits for one
        self.accepted_s = self.progress_s = owner.loop.time()
        self.waits_since = 0                # turn of accepting
        self.opened = self.refused = self.ended = False
        self.asked = False                  # the request is complete
        self.endless = False                # the answer goes on until the client or the server ends it
        self._received_bytes = self._discarded = 0
        self._head_end = b""                # the last bytes of the head that have arrived
        self._timer: asyncio.TimerHandle | None = None

    # ---- bounds

    def expect_client(self, within_s: float | None = None) -> None:
        """Wait for the client from now on, at most `within_s` seconds; None if only the maximum of connections
        bounds the wait."""
        self._deadline(within_s)
        self.owner.waits(self)

    def work(self) -> None:
        """The server works for this connection, so its client has no deadline."""
        self.asked = True
        self._deadline(None)
        self.owner.works(self)

    def _deadline(self, within_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if within_s is None else self.loop.call_later(within_s, self.end)

    def end(self) -> None:
        """Close the connection now, and discard the output that was not sent."""
        self.ended = True
        self.owner.forget(self)
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            pass                        # it is closed already
        if self.opened:
            self._disconnect()
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def _disconnect(self) -> None:
        """Let the application notice the end and send nothing more, as uvicorn does after the end of a connection."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()

    def forgotten(self) -> None:
        self._deadline(None)
        if self.login is not None and not self.login.done():
            self.login.set_result(False)

    def wait_for_login(self, login: "asyncio.Future[bool]") -> None:
        """Give up the place among the logins when the connection ends."""
        self.login = login
        if self not in self.owner.open:
            login.set_result(False)

    # ---- events of the transport

    def opening_done(self, opening: "asyncio.Task[None]") -> None:
        """Free the place if the connection did not open: the handshake failed, or another client got the place."""
        if not self.opened:
            self.owner.forget(self)
            self.sock.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened = True
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self.ended or not _is_current(transport, self.listener):
            self.end()                  # data that has already arrived is discarded

    def connection_lost(self, exc: Exception | None) -> None:
        self.owner.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        if self.refused:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self.end()
            return
        if self.conn.their_state is h11.IDLE and self._has_bare_line_feed(data):
            self.refuse(self.owner.bad_request)
            return
        room = HEAD_BYTES_MAX + 1 - self._received_bytes
        self._received_bytes += len(data)
        if self.conn.their_state is h11.IDLE and len(data) > room:
            # h11 looks at the size of incomplete heads only, and a read may be larger than a head may be
            super().data_received(data[:room])
            if self.refused:
                return
            data = data[room:]
        if self._received_bytes > CHUNKED_BYTES_MAX and self.conn.their_state is h11.SEND_BODY and self._is_chunked():
            self.refuse(self.owner.body_too_large)
            return
        super().data_received(data)

    def _is_chunked(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def _has_bare_line_feed(self, data: bytes) -> bool:
        """Return whether a line of the head ends without CR. h11 accepts that, but a proxy in front may see other
        lines [RFC 9112 2.2]."""
        n = len(self._head_end)
        head = self._head_end + data
        end = head.find(b"\r\n\r\n")
        new = head[max(n - 1, 0):len(head) if end < 0 else end]
        self._head_end = head[-3:]
        return new.count(b"\n", min(n, 1)) != new.count(b"\r\n")

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep a connection whose client only reads from now on; close it if the request is incomplete."""
        complete = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        return (complete and not self.refused and self.transport.can_write_eof()) or None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deadline(DRAIN_WITHIN_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing():
            self.expect_client()

    # ---- refusals

    def send_400_response(self, msg: str) -> None:
        """Answer a request that h11 does not accept. uvicorn calls this where it handles the exception."""
        hint = getattr(sys.exception(), "error_status_hint", 400)
        self.refuse(self.owner.too_large if hint == 431 else self.owner.bad_request)

    def refuse(self, page: "Response") -> None:
        """Answer without the application, and close. What the client still sends is read for a moment, because
        otherwise the system would discard the answer."""
        if self.refused or self.transport.is_closing():
            return
        self.refused = True
        if self.cycle is not None and self.cycle.response_started:
            self.end()
            return
        self._disconnect()
        self.transport.write(message_of(page))
        self.flow.resume_reading()
        self.expect_client(LINGER_WITHIN_S)
        if self.transport.can_write_eof():
            self.transport.write_eof()


class Connections:
    """All HTTP connections of a broker."""

    def __init__(self, config: "Config", state: "ServerState", bad_request: "Response", too_large: "Response",
                 body_too_large: "Response") -> None:
        self.config, self.state = config, state
        self.bad_request, self.too_large, self.body_too_large = bad_request, too_large, body_too_large
        self.open: set[Connection] = set()
        self.networks: Counter[bytes] = Counter()
        self.waiting: dict[Connection, None] = {}   # for their clients; in front the one that waits longest
        self.loop = asyncio.get_running_loop()
        self.turn = 0                               # of accepting
        self.served: list[_socket.socket] = []
        self.paused: list[tuple[HttpListener, _socket.socket, asyncio.TimerHandle]] = []
        self.finished: Callable[[], None] | None = None     # called when the last connection has ended

    # ---- accept

    def serve(self, listener: "HttpListener") -> None:
        for one in listener.sockets:
            self.served.append(one)
            self.loop.add_reader(one.fileno(), self._accept, listener, one)

    def stop_accepting(self) -> None:
        for _, _, timer in self.paused:
            timer.cancel()
        for one in self.served:
            self.loop.remove_reader(one.fileno())
        self.served, self.paused = [], []

    def finish(self, finished: "Callable[[], None]") -> None:
        """Accept no more, answer the complete requests, end the other connections and the answers without an end, and
        then call `finished`."""
        self.stop_accepting()
        self.finished = finished
        for connection in [one for one in self.open if one.endless or not one.asked]:
            connection.end()
        if not self.open:
            finished()

    def close(self) -> None:
        self.finished = None
        self.stop_accepting()
        for connection in list(self.open):
            connection.end()

    def _accept(self, listener: "HttpListener", bound: "_socket.socket") -> None:
        self.turn += 1
        for _ in range(ACCEPTS_PER_TURN):
            if not self._can_admit(listener):
                self._pause(listener, bound)
                return
            try:
                fd, peer = bound._accept()  # type: ignore[attr-defined] # the sockets are of the base class
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:                 # no descriptor or no memory is left
                self._evict(self._largest(self.open))
                self._pause(listener, bound)
                return
            self._admit(listener, socket.socket(bound.family, bound.type, bound.proto, fd), peer)

    def _pause(self, listener: "HttpListener", bound: "_socket.socket") -> None:
        self.loop.remove_reader(bound.fileno())
        self.paused.append((listener, bound, self.loop.call_later(ACCEPT_AGAIN_S, self._accept_again)))

    def _accept_again(self) -> None:
        paused, self.paused = self.paused, []
        for listener, bound, timer in paused:
            timer.cancel()
            self.loop.add_reader(bound.fileno(), self._accept, listener, bound)

    def _admit(self, listener: "HttpListener", sock: socket.socket, peer: "Any") -> None:
        address, port = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("", 0)
        if not self._make_room(listener, subscriber_of(address)):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        if sock.family != socket.AF_UNIX:   # also bounds what the kernel keeps for a closed connection
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * CLOSE_WITHIN_S))
        connection = Connection(self, listener, sock, address, port, self.config, self.state)
        self.open.add(connection)
        self.networks[connection.network] += 1
        listener.n += 1
        connection.expect_client(REQUEST_WITHIN_S)
        connection.opening = self.loop.create_task(self._open(connection))
        connection.opening.add_done_callback(connection.opening_done)

    async def _open(self, connection: Connection) -> None:
        tls = connection.listener.tls
        within = {} if tls is None else {"ssl_handshake_timeout": REQUEST_WITHIN_S,
                                         "ssl_shutdown_timeout": CLOSE_WITHIN_S}
        try:
            await self.loop.connect_accepted_socket(lambda: connection, connection.sock, ssl=tls, **within)
        except OSError:
            pass                            # a failed handshake

    # ---- bounds

    def _can_admit(self, listener: "HttpListener") -> bool:
        full = self._full(listener)
        return full is None or self._largest(*full) is not None

    def _make_room(self, listener: "HttpListener", network: bytes) -> bool:
        """Return whether one more connection may be open; evict another one for it if need be."""
        if listener.config.max_connections == 0:
            return False
        full = self._full(listener)
        if full is None:
            return True
        among, most = full
        if among is self.open and self.networks[network] > NETWORK_MAX:
            return self._evict(self._largest({one for one in among if one.network == network}, most))
        return self._evict(self._largest(among, most))

    def _full(self, listener: "HttpListener") -> "tuple[set[Connection], int] | None":
        """Return the connections of which one must go for a new one, and how many may be open; None: there is room."""
        most = listener.config.max_connections
        if 0 < most <= listener.n:
            return {one for one in self.open if one.listener is listener}, most
        return None if len(self.open) < CONNECTIONS_MAX else (self.open, CONNECTIONS_MAX)

    def _largest(self, among: "set[Connection]", most: int = CONNECTIONS_MAX) -> Connection | None:
        """Return the connection that may go: of the network with most, the one that waits longest for its client."""
        n = self.networks if among is self.open else Counter(one.network for one in among)
        guaranteed, now_s = max(1, int(most * GUARANTEED_PART)), self.loop.time()
        guaranteed_s = GUARANTEED_S * most / CONNECTIONS_MAX

        def may_go(one: Connection) -> bool:
            until_s = min(one.progress_s + guaranteed_s, one.accepted_s + REQUEST_WITHIN_S)
            return one in among and self.turn - one.waits_since >= TURNS_MIN and (
                n[one.network] > guaranteed or now_s >= until_s)

        return max(filter(may_go, self.waiting), key=lambda one: n[one.network], default=None)

    def _evict(self, connection: Connection | None) -> bool:
        if connection is not None:
            connection.end()
        return connection is not None

    def waits(self, connection: Connection) -> None:
        """Put the connection behind all others that wait for their clients."""
        if connection in self.open:
            self.waiting.pop(connection, None)
            self.waiting[connection] = None
            connection.waits_since, connection.progress_s = self.turn, self.loop.time()

    def works(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """Free the place of a connection that ends. May be called twice."""
        if connection not in self.open:
            return
        self.open.discard(connection)
        self.waiting.pop(connection, None)
        connection.listener.n -= 1
        self.networks[connection.network] -= 1
        if not self.networks[connection.network]:
            del self.networks[connection.network]
        connection.forgotten()
        if self.paused:
            self._accept_again()
        if self.finished is not None and not self.open:
            self.finished()


def _is_current(transport: asyncio.Transport, listener: "HttpListener") -> bool:
    """Return False if the client resumed a TLS session after its certificate has expired: a resumption does not check
    the certificate again."""
    layer = transport.get_extra_info("ssl_object")
    if layer is None or not layer.session_reused or listener.config.disable_client_cert_date_checks:
        return True
    until = (layer.getpeercert() or {}).get("notAfter")
    return until is None or ssl.cert_time_to_seconds(until) > time()


def message_of(page: "Response") -> bytes:
    """Return a whole response in bytes, for requests that the application does not see."""
    lines = [b"HTTP/1.1 %d %s" % (page.status_code, HTTPStatus(page.status_code).phrase.encode()),
             *(b"%s: %s" % header for header in (*closing_headers(), *page.raw_headers)), b"", bytes(page.body)]
    return b"\r\n".join(lines)


def closing_headers() -> "list[tuple[bytes, bytes]]":
    """Return the headers of every response. A connection carries one request, as in Mosquitto."""
    return [(b"date", formatdate(usegmt=True).encode()), (b"connection", b"close")]
