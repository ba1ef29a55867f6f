"""The connections of one worker to the workers on other machines: a thread that dials, does the handshakes (wires.py)
of its own connections and of those of the others, and gives the descriptors of links to the engine
(cext/broker/lifecycle/wires.pyx). No byte of a client or of a link passes through it.

    places(...)       where each worker is; it may change at any time
    engine.wires_fd   a link is needed -> dial
    strangers         connections that the engine has accepted and that begin without a ticket -> handshake -> engine

For each worker, a link is kept open, a connection for echoes, and one for questions (questions/asker.py), unless its
version does not know them. A failed attempt is repeated after a pause that grows and is drawn, so that nodes which
start at the same time spread.

The engine opens the connections for clients itself, to the same port, with tickets (cext/net/ticket.pyx). The handshake
of the connection for echoes gives their key. The side that has dialled lets its engine use the key after the first
echo, because then the other engine has it, and takes it away when the connection ends: clients wait then. A key ends
with one of its processes, because the next process proves itself with another token and another nonce.

Bounds: HANDSHAKES_MAX connections of others without a proof, PER_ADDRESS of one address, HANDSHAKE_S for each, and
those that fit into the socket from the engine; DIALS_MAX own attempts at once for each worker. A log line of one kind
about one worker or address comes once in LINE_S, and OTHERS_MAX lines about connections of others in all.

One connection to each worker is for echoes: a byte each second, which the other thread sends back. A worker that does
not answer for SILENT_S is silent: its process is stopped, or the network carries nothing. All connections with it are
closed then and opened again, and relayed clients are disconnected, so that they come again. TCP alone does not notice
this: the kernel of a stopped process acknowledges, and so does a tunnel. TCP_USER_TIMEOUT would end connections whose
receiver is slow, because it also counts the time without a window.

Others may refuse this worker as a process that was replaced, although it is the one of the table: Redis has lost a
claim that they had seen, and the next token is drawn below that one. After OLD_MAX refusals `end` is called, so that
the next process gets a higher token.

An address is a number, not a name: a name server must not delay the other connections.
"""

import contextlib
import os
import random
import select
import socket
import threading
import time
from typing import NamedTuple

from mosq.cluster import wires
from mosq.cluster.wires import ECHO, LINK, QUESTIONS, QUESTIONS_FROM, Accepting, Dialling, Own, WireError
from mosq.log_types import ERROR, INFORMATION, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mosq.cluster.questions.asker import Asker
    from mosq.engine import Engine

HANDSHAKES_MAX, PER_ADDRESS = 128, 32
HANDSHAKE_S = 5.0
DIALS_MAX = 8
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 5.0
LINE_S, LINES_MAX, OTHERS_MAX = 30.0, 1024, 32
OLD_MAX = 8                                 # refusals as a replaced process, without a connection in between
TURN_S = 1.0
BACKLOG = 1024                              # connections that the engine accepts in its next turns
EARLY_BYTES = 2048                          # more than the engine has read of a connection
IDLE_S, PROBE_S, PROBES = 2, 1, 3           # a dead machine is noticed within 5 s where nothing is sent
ECHO_S, SILENT_S = 1.0, 6.0
LATE_S = 3.0                                # a turn that begins later after the one before judges no worker
WIRE_OUT, WIRE_IN, WIRE_CLOSE, WIRE_LISTEN, WIRE_TAKE, WIRE_GIVE = range(1, 7)      # of cext/broker/lifecycle/wires.pxd


class Place(NamedTuple):
    """The address of a worker's process with this token. `host`: a number, not a name."""

    host: str
    port: int
    token: int


class _Peer:
    """One other worker. `place`: None while it has no process."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self.least = 0                  # the lowest token that it may have
        self.token = 0                  # of the process whose connections are open; 0: none was there yet
        self.version = 0                # of its handshakes; 0: not known
        self.echo: _Echo | None = None  # the own one; None: it must be dialled
        self.linked = False             # the engine has its link, or had it and has not asked for another one
        self.failures = 0
        self.due_s = 0.0                # no attempt begins before

    def pause(self, now_s: float) -> None:
        """Let the next attempt wait."""
        pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** min(self.failures, 16))
        self.failures += 1
        self.due_s = now_s + pause_s * random.uniform(0.5, 1.0)


class _Shake:
    """A connection whose handshake is not over. `peer`: the slot that is dialled; -1: it was accepted."""

    def __init__(self, sock: socket.socket, side: "Dialling | Accepting", until_s: float, peer: int, name: str) -> None:
        self.sock, self.side, self.until_s, self.peer, self.name = sock, side, until_s, peer, name
        self.connecting = peer >= 0
        self.early = b""                # bytes that the engine has read

    def receive(self) -> bytes:
        """Return the next bytes, as many as the handshake wants; b"": the end. Raises OSError."""
        data, self.early = self.early[:self.side.wants], self.early[self.side.wants:]
        return data or self.sock.recv(self.side.wants)


class _Echo:
    """A connection for echoes. `own`: this side has dialled, and asks; `key`: of its tickets, which the engine does not
    have yet."""

    def __init__(self, sock: socket.socket, slot: int, name: str, own: bool, key: bytes) -> None:
        self.sock, self.slot, self.name, self.own, self.key = sock, slot, name, own, key
        self.asked_s = 0.0              # when the byte was sent that is not answered yet; 0: all are
        self.due_s = 0.0                # of the next byte


class Lines:
    """Warnings about workers or addresses: one of a kind about one of them in LINE_S, and `most` in all in that time.
    One more line says that there are others. `report`: takes a type of log lines and a text."""

    def __init__(self, report: "Callable[[int, str], None]", most: int = LINES_MAX,
                 clock: "Callable[[], float]" = time.monotonic) -> None:
        self._report, self._most, self._clock = report, most, clock
        self._came: dict[tuple[str, int], float] = {}       # when a line came, the oldest first

    def put(self, name: str, reason: int, text: str) -> None:
        """Report a text about a worker or an address, unless there were too many lines."""
        now_s, came = self._clock(), self._came
        while came and now_s - next(iter(came.values())) >= LINE_S:
            del came[next(iter(came))]
        if len(came) >= self._most and (name, reason) not in came:
            name, reason, text = "", 0, "more connections have failed or were refused, which have no lines of their own"
        if (name, reason) not in came:
            came[name, reason] = now_s
            self._report(WARNING, f"Warning: {text}.")


class Reach:
    """The thread and its connections. `listening`: a listening socket, which belongs to the engine then; `report`:
    takes a type of log lines and a text, from this thread; `end`: ends this process; `asker`: has the connections for
    questions."""

    def __init__(self, engine: "Engine", own: Own, listening: socket.socket, asker: "Asker",   # parameters: see above
                 report: "Callable[[int, str], None]", end: "Callable[[], object]") -> None:
        self._engine, self._own, self._listening, self._report, self._end_process = engine, own, listening, report, end
        self._asker = asker
        self._peers = {slot: _Peer() for slot in range(asker.n) if slot != own.slot}
        self._shakes: dict[int, _Shake] = {}
        self._echoes: dict[int, _Echo] = {}
        self._judged_s = time.monotonic()
        self._olds = 0                          # refusals as a replaced process, since the last connection
        self._accepted: dict[str, int] = {}     # connections without a proof, by address
        self._lines = Lines(report)
        self._about_others = Lines(report, OTHERS_MAX)      # others that have no proof choose their addresses
        self._new: dict[int, Place | None] | None = None
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        listening.setblocking(False)
        self._strangers, self._engines = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._strangers.setblocking(False)
        self._notices = (self._wake, engine.wires_fd())
        for fd in (self._strangers.fileno(), *self._notices):
            self._poll.register(fd, select.EPOLLIN)
        asker.watch(self._poll, self._wake_up)
        self._thread = threading.Thread(target=self._run, name="wires", daemon=True)

    # ---- from any thread

    def start(self) -> None:
        """Begin. The engine must run."""
        self._thread.start()

    def places(self, places: "Mapping[int, Place | None]") -> None:
        """Take where the workers are now. None: the process of the worker has ended for sure, and nothing waits for it
        until it has a place again. A worker that is missing keeps its place."""
        with self._lock:
            self._new = {**(self._new or {}), **places}
        self._wake_up()

    def _wake_up(self) -> None:
        os.eventfd_write(self._wake, 1)

    # ---- the thread

    def _run(self) -> None:
        try:
            self._engine.wire(self._own.slot, WIRE_LISTEN, self._listening.detach(), self._engines.detach())
            while True:
                self._turn()
        except RuntimeError:
            pass                        # the engine has ended
        except BaseException as error:
            self._report(ERROR, f"Error: The connections to other workers have failed: {error!r}. The worker ends.")
            self._end_process()

    def _turn(self) -> None:
        now_s = time.monotonic()
        for fd, events in self._poll.poll(self._wait_s(now_s)):
            if fd in self._shakes:
                self._go_on(self._shakes[fd])
            elif fd in self._echoes:
                self._echo_read(self._echoes[fd])
            elif self._asker.has_line(fd):
                self._asked(fd, events)
            elif fd == self._strangers.fileno():
                self._meet()
            elif fd in self._notices:
                os.eventfd_read(fd)     # another event of this turn may have closed any other descriptor
        now_s = time.monotonic()
        self._judge(now_s)
        self._move()
        self._asker.turn(now_s)
        for slot in self._engine.links_wanted():
            self._peers[slot].linked = False
        for shake in [one for one in self._shakes.values() if one.until_s <= now_s]:
            self._failed(shake, WireError(wires.LATE))
        for slot, peer in self._peers.items():
            if peer.place is not None and peer.due_s <= now_s:
                self._dial_missing(slot, peer)

    def _wait_s(self, now_s: float) -> float:
        due = [peer.due_s - now_s for peer in self._peers.values() if peer.place is not None and peer.due_s > now_s]
        due += [shake.until_s - now_s for shake in self._shakes.values()]
        return max(0.001, min([TURN_S, *due]))

    def _move(self) -> None:
        """Close the connections to a worker that has another place, and let the next ones begin at once."""
        with self._lock:
            new, self._new = self._new, None
        for slot, place in (new or {}).items():
            peer = self._peers.get(slot)
            if peer is None or peer.place == place or (place is not None and place.token < peer.least):
                continue
            # its process may have come before its place
            known = place is not None and place.token == peer.token \
                and (peer.place is None or peer.place.token < place.token)
            if place is not None:
                peer.least = place.token
            elif peer.place is not None:        # a later process may have proved itself already
                peer.least = max(peer.least, peer.place.token + 1)
            peer.place, peer.failures, peer.due_s = place, 0, 0.0
            if not known:
                self._part(slot, peer)
                peer.token = place.token if place is not None else peer.token
            if place is None:
                self._engine.link(slot, -1, -1)

    def _part(self, slot: int, peer: _Peer) -> None:
        """Close all connections with a worker, also those that the engine has."""
        for shake in [one for one in self._shakes.values() if one.peer == slot]:
            self._end(shake)
        for echo in [one for one in self._echoes.values() if one.slot == slot]:
            self._echo_end(echo)
        self._asker.part(slot)
        peer.linked, peer.version = False, 0
        self._engine.wire(slot, WIRE_CLOSE)

    # ---- own connections

    def _dial_missing(self, slot: int, peer: _Peer) -> None:
        dialled = [shake.side.kind for shake in self._shakes.values() if shake.peer == slot]
        missing = [LINK] * (not peer.linked and LINK not in dialled)
        missing += [ECHO] * (peer.echo is None and ECHO not in dialled)
        if peer.version >= QUESTIONS_FROM and not self._asker.has(slot) and QUESTIONS not in dialled:
            missing.append(QUESTIONS)
        for kind in missing[:max(0, DIALS_MAX - len(dialled))]:
            if peer.due_s <= time.monotonic():          # an attempt may have failed at once
                self._dial(slot, peer, kind)

    def _dial(self, slot: int, peer: _Peer, kind: int) -> None:
        assert peer.place is not None
        host, port = peer.place.host, peer.place.port
        name = f"worker {slot + 1} at {host}:{port}"
        if not is_number(host):
            self._lines.put(name, 0, f"worker {slot + 1} cannot be reached: its node announces {host[:80]!a}, "
                            "which is no address. It is tried again")
            peer.pause(time.monotonic())
            return
        try:
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:        # no descriptor is left
            self._lines.put(name, 0, f"cannot connect to {name}: {error.strerror}. It is tried again")
            peer.pause(time.monotonic())
            return
        side = Dialling(self._own, os.urandom(wires.NONCE_BYTES), kind, slot, peer.least)
        shake = _Shake(sock, side, time.monotonic() + HANDSHAKE_S, slot, name)
        self._shakes[sock.fileno()] = shake
        try:
            sock.setblocking(False)
            prepare(sock)
            sock.connect((host, port))
        except BlockingIOError:
            pass
        except OSError as error:
            self._unreachable(shake, error)
            return
        self._poll.register(sock.fileno(), select.EPOLLOUT)

    def _connected(self, shake: _Shake) -> None:
        number = shake.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._unreachable(shake, OSError(number, os.strerror(number)))
            return
        assert isinstance(shake.side, Dialling)
        shake.connecting = False
        self._poll.modify(shake.sock.fileno(), select.EPOLLIN)
        self._send(shake, shake.side.begin())

    def _unreachable(self, shake: _Shake, error: OSError) -> None:
        self._lines.put(shake.name, 0, f"cannot connect to {shake.name}: {error.strerror}. It is tried again; if "
                        "this line returns, check that the node runs, and that no firewall is between")
        self._peers[shake.peer].pause(time.monotonic())
        self._end(shake)

    # ---- connections of the others

    def _meet(self) -> None:
        """Take the connections of others from the engine. One that finds no descriptor is closed."""
        for _ in range(HANDSHAKES_MAX):
            try:
                early, fds, _, _ = socket.recv_fds(self._strangers, EARLY_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
            except OSError:
                return
            for fd in fds:
                self._begin(socket.socket(fileno=fd), early)

    def _begin(self, sock: socket.socket, early: bytes) -> None:
        """Begin the handshake of a connection."""
        try:
            host = sock.getpeername()[0]
        except OSError:                 # it has ended
            sock.close()
            return
        if sum(self._accepted.values()) >= HANDSHAKES_MAX or self._accepted.get(host, 0) >= PER_ADDRESS:
            self._refuse(sock, host)
            return
        sock.setblocking(False)
        side = Accepting(self._own, os.urandom(wires.NONCE_BYTES), self._least)
        shake = _Shake(sock, side, time.monotonic() + HANDSHAKE_S, -1, host)
        shake.early = early
        self._shakes[sock.fileno()] = shake
        self._accepted[host] = self._accepted.get(host, 0) + 1
        self._poll.register(sock.fileno(), select.EPOLLIN)
        self._go_on(shake)

    def _refuse(self, sock: socket.socket, host: str) -> None:
        self._about_others.put(host, wires.BUSY, f"a connection from {host} is refused: {WireError(wires.BUSY)}")
        try:
            sock.send(wires.refusal(wires.BUSY), socket.MSG_DONTWAIT)
        except OSError:
            pass
        sock.close()

    def _least(self, slot: int) -> int | None:
        peer = self._peers.get(slot)
        return None if peer is None else peer.least

    # ---- both

    def _go_on(self, shake: _Shake) -> None:
        if shake.connecting:
            self._connected(shake)
            return
        try:
            while shake.side.wants:
                data = shake.receive()
                if not data:
                    raise WireError(wires.CLOSED)
                self._send(shake, shake.side.take(data))
        except BlockingIOError:
            return
        except OSError:
            self._failed(shake, WireError(wires.CLOSED))
            return
        except WireError as error:
            self._failed(shake, error)
            return
        self._over(shake)

    def _send(self, shake: _Shake, data: bytes) -> None:
        """Send a message, which fits into the empty buffer of a socket."""
        if data:
            try:
                sent = shake.sock.send(data)
            except OSError:
                sent = 0                # the end of the connection comes as an event
            if sent < len(data):
                shake.until_s = 0.0

    def _failed(self, shake: _Shake, error: WireError) -> None:
        if isinstance(shake.side, Accepting):
            self._send(shake, shake.side.refusal(error))
            if error.reason not in (wires.CLOSED, wires.LATE) or shake.side.slot:
                self._about_others.put(shake.name, error.reason, f"a connection from {shake.name} is refused: {error}")
        else:
            what = "has refused a connection" if error.reported else "is not connected"
            self._lines.put(shake.name, error.reason, f"{shake.name} {what}: {error}")
            self._peers[shake.peer].pause(time.monotonic())
            if error.reported and error.reason == wires.OLD:
                self._replaced()
        self._end(shake)

    def _replaced(self) -> None:
        self._olds += 1
        if self._olds == OLD_MAX:
            self._report(ERROR, "Error: Other workers refuse this process, because they know a later one of its "
                                "worker. It ends, and the next one gets a higher token.")
            self._end_process()

    def _over(self, shake: _Shake) -> None:
        """Give the descriptor to the engine."""
        side = shake.side
        peer = self._peers[side.slot]
        self._leave(shake)
        self._olds = 0
        if side.token > peer.token and peer.token:
            self._part(side.slot, peer)                 # a new process has proved that the one before has ended
        peer.token = max(peer.token, side.token)
        peer.least = max(peer.least, side.token)        # an older process of this worker gets no link any more
        if shake.peer >= 0:
            peer.failures, peer.due_s = 0, 0.0
        peer.version = side.version
        if side.kind == QUESTIONS:
            self._asker.open(side.slot, shake.sock, shake.peer >= 0)
        elif side.kind == ECHO:
            if shake.peer < 0:
                self._engine.wire(side.slot, WIRE_TAKE, key=side.key())
            self._echo_begin(_Echo(shake.sock, side.slot, shake.name, shake.peer >= 0, side.key()))
        elif shake.peer < 0:
            self._engine.wire(side.slot, WIRE_IN, shake.sock.detach())
        else:
            peer.linked = True
            self._engine.wire(side.slot, WIRE_OUT, shake.sock.detach())
            self._report(INFORMATION, f"The link to {shake.name} is open.")

    def _asked(self, fd: int, events: int) -> None:
        """Read and write a connection for questions."""
        slot = self._asker.event(fd, events)
        if slot is not None:            # the end of a connection does not mean that the others have ended
            self._peers[slot].pause(time.monotonic())

    def _end(self, shake: _Shake) -> None:
        self._leave(shake)
        shake.sock.close()

    def _leave(self, shake: _Shake) -> None:
        """Forget a handshake; its socket belongs to the caller."""
        fd = shake.sock.fileno()
        if self._shakes.pop(fd, None) is not None and shake.peer < 0:
            self._accepted[shake.name] -= 1
            if not self._accepted[shake.name]:
                del self._accepted[shake.name]
        try:
            self._poll.unregister(fd)
        except OSError:
            pass                        # it was never connected

    # ---- echoes

    def _echo_begin(self, echo: _Echo) -> None:
        """Take a connection for echoes, in place of the one before."""
        for other in [one for one in self._echoes.values() if (one.slot, one.own) == (echo.slot, echo.own)]:
            self._echo_end(other)
        self._echoes[echo.sock.fileno()] = echo
        self._poll.register(echo.sock.fileno(), select.EPOLLIN)
        if echo.own:
            self._peers[echo.slot].echo = echo

    def _echo_end(self, echo: _Echo) -> None:
        self._poll.unregister(echo.sock.fileno())
        del self._echoes[echo.sock.fileno()]
        echo.sock.close()
        if echo.own:
            self._peers[echo.slot].echo = None
            self._engine.wire(echo.slot, WIRE_GIVE)

    def _echo_read(self, echo: _Echo) -> None:
        """Send the bytes of another worker back, or take an answer."""
        try:
            data = echo.sock.recv(64)
            if data and not echo.own:
                echo.sock.send(data)
            elif data and echo.key:
                self._give(echo)
        except BlockingIOError:
            return                      # there is nothing, or the other side does not read its answers
        except OSError:
            data = b""
        echo.asked_s = 0.0
        if not data:
            self._echo_end(echo)        # the end of a connection does not mean that the others have ended
            if echo.own:
                self._peers[echo.slot].pause(time.monotonic())

    def _give(self, echo: _Echo) -> None:
        """Let the engine relay clients to a worker, at the address of its connection for echoes. Raises OSError."""
        host, port, *more = echo.sock.getpeername()
        ip = socket.inet_pton(echo.sock.family, host.partition("%")[0])
        self._engine.wire(echo.slot, WIRE_GIVE, key=echo.key, ip=ip, port=port, scope=more[1] if more else 0)
        echo.key = b""

    def _judge(self, now_s: float) -> None:
        """Ask each worker once in ECHO_S, and part from those that are silent."""
        late, self._judged_s = now_s - self._judged_s > LATE_S, now_s
        for echo in [one for one in self._echoes.values() if one.own]:
            if echo.asked_s and late:
                echo.asked_s = now_s    # this process was stopped itself
            elif echo.asked_s and now_s - echo.asked_s >= SILENT_S:
                self._silent(echo)
            elif not echo.asked_s and now_s >= echo.due_s:
                echo.asked_s, echo.due_s = now_s, now_s + ECHO_S
                with contextlib.suppress(OSError):      # the end of the connection comes as an event
                    echo.sock.send(b"?")

    def _silent(self, echo: _Echo) -> None:
        self._lines.put(echo.name, wires.LATE, f"{echo.name} has not answered for {SILENT_S:.0f} s. The connections "
                        "with it are opened again, and clients that are relayed to or from it are disconnected. If "
                        "this line returns, check that its machine is not overloaded, and the network")
        self._part(echo.slot, self._peers[echo.slot])


def is_number(host: str) -> bool:
    """Return whether a host is an address, perhaps with a scope, and not a name."""
    if not (host.isascii() and host.isprintable()):
        return False
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    except OSError:
        return False
    return True


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket for the connections of the other workers, which have its options. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    prepare(listening)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)    # the dialler sends first
    return listening


def prepare(sock: socket.socket) -> None:
    """Send at once, and notice a dead machine within seconds if nothing is sent. Raises OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
