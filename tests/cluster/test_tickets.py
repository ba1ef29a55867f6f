"""Test the tickets of relayed clients: peers in Python that have the secret, and relay clients to a worker or take those that it relays."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
from collections.abc import Iterator

import pytest

from cext.testing import net_api
from mosq.cluster import wires
from mosq.cluster.reach import prepare
from mosq.engine import worker_place
from tests.cluster.pair import KEY, SECRET, WIRES_HOST, Node, cluster, id_of, introduce
from tests.cluster.test_reach import proved, stranger
from tests.harness.broker import free_port
from tests.harness.packets import Connect
from tests.harness.wire import Wire
from tests.net.test_relay_head import FIELDS
from tests.workers.case import accepted, until
from tests.workers.test_links import NO_RETAINED, subscribe

N, PEER = 3, 2                  # two workers are real; the third one is a peer of this process
CALLERS = 256                   # WIRES_CALLERS of the engine
CONNECT = bytes.fromhex("10" "0f" "0004" "4d515454" "04" "02" "003c" "0003")     # MQTT 3.1.1, a client id of 3 bytes follows
CONNACK = bytes.fromhex("20020000")
WINDOW = 1 << 16


@contextlib.contextmanager
def two_of_three() -> Iterator[list[Node]]:
    """Run two workers of three, which know the routes of the third one. Its process has ended; the next one has token 2 or a higher one."""
    with cluster(N, "route_timeout 3600\n") as nodes:
        nodes[PEER].die()
        for node in nodes[:PEER]:
            node.know({PEER: None})
            client = node.connect(id_of(node.slot, N))
            subscribe(client, "ended", qos=NO_RETAINED)         # it waits until the node knows that the process has ended
            client.close()
        yield nodes[:PEER]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with two_of_three() as running:
        yield running


# ---------------------------------------------------------------- a peer that relays clients

class Peer:
    """A process of the third worker that has proved itself to a node, and has a key."""

    tokens = 1                  # of the last process

    def __init__(self, node: Node, again: bool = False) -> None:
        """Prove it; again: the process of the peer before has proved itself already."""
        Peer.tokens += not again
        self.node, self.last = node, 0
        self.echoes, side = proved(node, wires.ECHO, PEER, Peer.tokens)
        self.key = side.key()
        self.echoes.sendall(b"?")
        assert self.echoes.recv(1) == b"?"          # the engine has the key

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.echoes.close()

    def ticket(self, number: int = 0, **fields: object) -> bytes:
        """Return a ticket, by default with the next number."""
        self.last = number or self.last + 1
        made = net_api.ticket_made(self.key, self.last, PEER, FIELDS | {"listener_port": self.node.port} | fields)
        assert made is not None
        return made


def hello(node: Node) -> bytes:
    """Return CONNECT of a client that belongs to the node."""
    return CONNECT + next(name for i in range(100, 1000) if worker_place(KEY, name := b"%d" % i, N) == node.slot)


@contextlib.contextmanager
def sent(node: Node, *parts: bytes) -> Iterator[socket.socket]:
    """Send parts on a connection of a stranger."""
    with stranger(node) as sock:
        prepare(sock)
        for part in parts:
            sock.sendall(part)
        yield sock


def serves(node: Node, *parts: bytes) -> bool:
    """Return whether the node makes a client of a connection with these bytes and CONNECT; otherwise it must close it."""
    with sent(node, b"".join(parts) + hello(node)) as sock:
        got = end_of(sock)
        assert got in (b"", CONNACK)
        return got == CONNACK


def end_of(sock: socket.socket) -> bytes:
    """Return the first bytes that come; b"": the connection ends."""
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(4)
    return b""


def test_a_client_with_a_ticket_is_served(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        assert all(serves(nodes[0], peer.ticket()) for _ in range(3))


def test_a_ticket_may_come_in_parts(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        one = peer.ticket(name=b"a name", family=socket.AF_INET) + hello(nodes[0])
        with sent(nodes[0], *(one[i:i + 1] for i in range(len(one)))) as sock:
            assert end_of(sock) == CONNACK


def test_the_last_bytes_of_connect_may_come_later(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer, sent(nodes[0], peer.ticket() + hello(nodes[0])[:4]) as sock:
        sock.sendall(hello(nodes[0])[4:])
        assert end_of(sock) == CONNACK


def test_a_forged_ticket_is_refused(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        for at in (8, 16 + 20, -1):                 # its number, the address of the client, the proof
            one = bytearray(peer.ticket())
            one[at] ^= 0x40
            assert not serves(nodes[0], bytes(one))
        nodes[0].wait_log("a connection from 127.0.0.9 for a client that worker 3 relays is closed: its ticket is wrong")
        assert serves(nodes[0], peer.ticket())


@pytest.mark.parametrize("slot", [0, 1, N, 0xFFFF], ids=["itself", "another", "none", "highest"])
def test_the_ticket_of_another_worker_is_refused(nodes: list[Node], slot: int) -> None:
    with Peer(nodes[0]) as peer:
        one = net_api.ticket_made(peer.key, 1, slot, FIELDS | {"listener_port": nodes[0].port})
        assert one is not None and not serves(nodes[0], one)


def test_a_ticket_is_good_for_one_process(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        assert not serves(nodes[1], peer.ticket(listener_port=nodes[1].port))


def test_a_ticket_is_taken_once(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        one = peer.ticket()
        assert serves(nodes[0], one)
        assert not serves(nodes[0], one)
        nodes[0].wait_log("its ticket was used before")


def test_tickets_overtake_each_other_and_have_an_end(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        assert all(serves(nodes[0], peer.ticket(number)) for number in (3, 1, WINDOW + 1, 2))
        assert not serves(nodes[0], peer.ticket(1))
        nodes[0].wait_log("its ticket is too old")


def test_the_key_of_an_earlier_process_is_refused(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer, Peer(nodes[0]) as later:
        assert not serves(nodes[0], peer.ticket())
        assert serves(nodes[0], later.ticket())


def test_the_key_before_is_good_until_the_next_but_one(nodes: list[Node]) -> None:
    """Its tickets may be on their way when the process proves itself again."""
    with Peer(nodes[0]) as one, Peer(nodes[0], again=True) as two:
        assert serves(nodes[0], one.ticket()) and serves(nodes[0], two.ticket()) and serves(nodes[0], one.ticket())
        with Peer(nodes[0], again=True) as three:
            assert serves(nodes[0], two.ticket()) and serves(nodes[0], three.ticket())
            assert not serves(nodes[0], one.ticket())


def test_a_key_ends_when_the_table_reports_the_end_of_its_process(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        port = free_port()
        nodes[0].know({PEER: (WIRES_HOST, port, Peer.tokens)})
        nodes[0].wait_log(f"cannot connect to worker 3 at {WIRES_HOST}:{port}")
        assert serves(nodes[0], peer.ticket())
        nodes[0].know({PEER: None})
        until(lambda: not serves(nodes[0], peer.ticket()), nodes[0].log)


def test_a_wrong_description_is_refused(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer:
        one = bytearray(peer.ticket())
        one[16 + 4] = 0                             # the version of the description
        assert not serves(nodes[0], bytes(one))
        nodes[0].wait_log("the description of its client is wrong")


def test_refusals_are_logged_once_for_each_reason() -> None:
    with two_of_three() as nodes, Peer(nodes[0]) as peer:
        one = peer.ticket()
        assert serves(nodes[0], one)
        for _ in range(20):
            assert not serves(nodes[0], one)
            assert not serves(nodes[0], one[:-1] + bytes([one[-1] ^ 1]))
        assert nodes[0].log().count("its ticket was used before") == 1
        assert nodes[0].log().count("its ticket is wrong") == 1


def test_a_part_of_a_ticket_has_a_deadline(nodes: list[Node]) -> None:
    with Peer(nodes[0]) as peer, sent(nodes[0], peer.ticket()[:-1]) as part, sent(nodes[0]) as nothing:
        assert end_of(part) == end_of(nothing) == b""


def test_strangers_that_begin_a_ticket_are_bounded_and_stop_no_client() -> None:
    with two_of_three() as nodes, contextlib.ExitStack() as open_ones:
        first = open_ones.enter_context(sent(nodes[0], b"t"))
        for _ in range(CALLERS):
            open_ones.enter_context(sent(nodes[0], b"t"))
        assert end_of(first) == b""
        nodes[0].wait_log("too many connections from other machines have not proved themselves, and some of them are closed. One is from 127.0.0.9")
        nodes[1].connect(id_of(0, N, "relayed")).close()


# ---------------------------------------------------------------- a peer to which clients are relayed

class Taker:
    """A process of the third worker that a node reaches. It takes connections when it is asked to."""

    def __init__(self, node: Node, open_ones: contextlib.ExitStack) -> None:
        Peer.tokens += 1
        self.open_ones = open_ones
        self.own = wires.Own("one", SECRET, PEER, Peer.tokens, versions=(1, 1))     # it takes no connection for questions
        self.listening = open_ones.enter_context(socket.create_server((WIRES_HOST, 0), backlog=1))
        self.listening.settimeout(20)
        node.know({PEER: (WIRES_HOST, self.listening.getsockname()[1], Peer.tokens)})
        kinds = {}
        while kinds.keys() != {wires.LINK, wires.ECHO}:
            side = wires.Accepting(self.own, os.urandom(wires.NONCE_BYTES), lambda _: 0)
            sock = self.accept()
            while side.wants:
                sock.sendall(side.take(sock.recv(side.wants)))
            kinds[side.kind] = sock, side
        self.echoes, side = kinds[wires.ECHO]
        self.tickets = net_api.Tickets(side.key())

    def accept(self) -> socket.socket:
        sock = self.open_ones.enter_context(self.listening.accept()[0])
        sock.settimeout(20)
        return sock

    def echo(self) -> None:
        """Answer, so that the node uses its key."""
        self.echoes.sendall(self.echoes.recv(1))

    def take(self) -> socket.socket:
        """Return the next connection, which must begin with a right ticket, and then CONNECT; it is answered."""
        sock = self.accept()
        data = b""
        while True:
            data += sock.recv(4096)
            found, size, slot, judged = self.tickets.take(data)
            if found == 1 and len(data) > size:
                break
        assert (slot, judged) == (0, 0)
        assert data[size] == 0x10
        sock.sendall(CONNACK)
        return sock


def waiting(node: Node, name: str = "waits") -> Wire:
    """Return a client of the third worker that has sent CONNECT to the node."""
    client = node.wire(level=4)
    client.send(Connect(id_of(PEER, N, name)))
    return client


def test_a_client_waits_for_the_first_echo_and_then_has_a_ticket(nodes: list[Node]) -> None:
    with contextlib.ExitStack() as open_ones:
        taker = Taker(nodes[0], open_ones)
        client = waiting(nodes[0])
        nodes[0].connect(id_of(0, N, "behind")).close()         # the node has read the CONNECT of the first client
        assert not select.select([taker.listening], [], [], 0)[0]
        taker.echo()
        taker.take()
        accepted(client)


def test_a_client_waits_while_the_connection_for_echoes_is_away(nodes: list[Node]) -> None:
    with contextlib.ExitStack() as open_ones:
        taker = Taker(nodes[0], open_ones)
        taker.echo()
        client = waiting(nodes[0])
        taker.take()
        accepted(client)
        taker.echoes.close()
        taker.listening.close()
        nodes[0].wait_log("cannot connect to worker 3")         # the connection for echoes
        second = waiting(nodes[0], "second")
        later = Taker(nodes[0], open_ones)
        later.echo()
        later.take()
        accepted(second)


def test_a_connect_that_hangs_is_tried_again(nodes: list[Node]) -> None:
    """The queue of the listening socket is full, so the kernel does not answer."""
    with contextlib.ExitStack() as open_ones:
        taker = Taker(nodes[0], open_ones)
        taker.echo()
        address = taker.listening.getsockname()
        blockers = [open_ones.enter_context(socket.socket()) for _ in range(8)]
        for one in blockers:
            one.setblocking(False)
            one.connect_ex(address)
        client = waiting(nodes[0])
        nodes[0].wait_log("Warning: cannot connect to worker 3 for a client: Connection timed out")
        later = Taker(nodes[0], open_ones)
        later.echo()
        later.take()
        accepted(client)


def test_a_client_whose_connect_hangs_goes_to_the_next_process(nodes: list[Node]) -> None:
    with contextlib.ExitStack() as open_ones:
        taker = Taker(nodes[0], open_ones)
        taker.echo()
        address = taker.listening.getsockname()
        for _ in range(8):
            one = open_ones.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        client = waiting(nodes[0])
        later = Taker(nodes[0], open_ones)
        later.echo()
        later.take()
        accepted(client)


def test_a_client_that_finds_no_descriptor_is_closed() -> None:
    with two_of_three() as nodes:
        before = nodes[0].log().count("New connection from")
        client = nodes[0].wire(level=4)
        nodes[0].wait_log("New connection from", before + 1)
        assert nodes[0].process is not None
        pid = nodes[0].process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, hard))
        client.send(Connect(id_of(1, N, "relayed")))
        client.expect_closed()
        nodes[0].wait_log("system socket count has been exceeded")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        nodes[0].connect(id_of(1, N, "again")).close()


def test_a_client_waits_for_a_process_that_starts_again() -> None:
    with cluster(2) as nodes:
        nodes[1].die()
        client = nodes[0].wire()
        client.send(Connect(id_of(1, 2, "waits")))
        nodes[1].start()
        introduce(nodes)
        accepted(client)
