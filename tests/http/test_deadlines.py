"""Test the deadlines and the places of HTTP connections, in this process, with short deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading

import pytest

from mosq.auth.networks import subscriber_of
from mosq.server.http import app, connections
from tests.harness.certificates import server_paths
from tests.http.serving import WAIT_S

GET = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTH = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTH_MAX = getattr(app, "HEALTH_MAX", 16)


def is_closed(sock):
    """Wait for the end of the connection, which must come without an answer."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("half", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1"], ids=["nothing", "head", "body"])
def test_an_unfinished_request_has_a_deadline(serve, monkeypatch, half):
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.1)
    with serve().connect(half) as sock:
        assert is_closed(sock)


def test_a_byte_now_and_then_does_not_move_the_deadline(serve, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.2)
    with serve().connect(b"GET /") as sock, contextlib.suppress(ConnectionError):
        sock.settimeout(0.05)
        for _ in range(int(WAIT_S / 0.05)):
            sock.send(b"a")
            with contextlib.suppress(TimeoutError):
                assert sock.recv(1) == b""
                return
        pytest.fail("the connection has no deadline")


def test_a_reader_that_takes_nothing_has_a_deadline(serve, monkeypatch):
    monkeypatch.setattr(connections, "DRAIN_WITHIN_S", 0.2)
    server = serve()
    with server.connect(GET, receive_bytes=4096) as sock:
        assert sock.recv(1)
        wait_for_no_connection(server)
        with contextlib.suppress(ConnectionResetError):
            size = 0
            while more := sock.recv(1 << 20):
                size += len(more)
            assert size < 20 << 20


def test_the_end_of_an_answer_has_a_deadline(serve, monkeypatch, tmp_path):
    """The answer fits into the buffers of the server, but the client does not take it."""
    monkeypatch.setattr(connections, "CLOSE_WITHIN_S", 0.2)
    monkeypatch.setattr(connections, "SEND_BYTES", 4096)
    (tmp_path / "small").write_bytes(bytes(100 << 10))
    server = serve()
    with server.connect(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n", receive_bytes=4096) as sock:
        assert sock.recv(1)
        wait_for_no_connection(server)


def wait_for_no_connection(server):
    give_up = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if server.listeners[0].n == 0:
            return
        give_up.wait(0.01)
    pytest.fail("the connection has no deadline")


def test_a_refused_client_that_sends_forever_has_a_deadline(serve, monkeypatch):
    monkeypatch.setattr(connections, "LINGER_WITHIN_S", 0.2)
    with serve().connect(b"nonsense\r\n\r\n") as sock, contextlib.suppress(ConnectionError):
        for _ in range(int(WAIT_S / 0.01)):
            sock.sendall(b"x")
            threading.Event().wait(0.01)
        pytest.fail("the connection has no deadline")


def test_a_handshake_has_a_deadline(serve, monkeypatch, tmp_path):
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.1)
    with serve(**server_paths(tmp_path)).connect(b"\x16\x03\x01\x02\x00") as sock:
        assert is_closed(sock)


def test_an_address_with_many_connections_makes_room_among_its_own(serve):
    server = serve()
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(server.connect(b"GET /api/v1/version HTTP/1.1\r\n", source="127.0.0.2"))
        others = [stack.enter_context(server.connect(b"GET / HT")) for _ in range(3 * connections.CONNECTIONS_MAX)]
        assert server.status() == 200
        assert is_closed(others[0])
        early.sendall(b"Host: x\r\n\r\n")
        assert early.recv(12) == b"HTTP/1.1 200"


def test_the_connection_that_waits_longest_makes_room(serve):
    server = serve()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(server.connect(b"GET /api/v1/version HTTP/1.1\r\n", source=f"127.0.0.{i // 8 + 2}"))
                 for i in range(connections.CONNECTIONS_MAX)]
        assert server.status() == 200
        assert is_closed(socks[0])
        socks[1].sendall(b"Host: x\r\n\r\n")
        assert socks[1].recv(12) == b"HTTP/1.1 200"


def test_max_connections_holds_for_one_listener_and_lets_the_next_client_in(serve):
    server = serve(max_connections=3)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(server.connect(b"GET / HT")) for _ in range(20)]
        assert server.status() == 200
        assert server.listeners[0].n <= 3
        assert is_closed(socks[0])


def test_a_listener_with_few_places_takes_the_next_client_soon(serve, monkeypatch):
    """The guaranteed time is shorter there."""
    monkeypatch.setattr(connections, "GUARANTEED_S", 2.0 * WAIT_S)
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 4.0 * WAIT_S)
    server = serve(max_connections=2)
    with contextlib.ExitStack() as stack:
        for i in range(2):
            stack.enter_context(server.connect(b"GET / HT", source=f"127.0.0.{i + 2}"))
        assert server.status() == 200


def test_max_connections_0_accepts_no_client(serve):
    with serve(max_connections=0).connect() as sock:
        assert is_closed(sock)


def test_new_clients_wait_their_turn_while_the_loop_answers_no_client(serve):
    """With all places at work for requests of few per network, no client is refused."""
    server = serve()
    server.release.clear()
    health = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(server.connect(health, source=f"127.0.0.{i // 8 + 2}")) for i in range(2 * connections.CONNECTIONS_MAX)]
        server.release.set()
        assert all(sock.recv(12) == b"HTTP/1.1 200" for sock in socks)


def test_health_requests_of_one_network_are_bounded(serve):
    server = serve()
    server.release.clear()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(server.connect(HEALTH, source="127.0.0.2")) for _ in range(HEALTH_MAX + 5)]
        refused = set()
        while len(refused) < 5:         # the loop does not answer, so nothing else can answer
            readable = select.select(set(socks) - refused, [], [], WAIT_S)[0]
            assert [sock.recv(12) for sock in readable] == [b"HTTP/1.1 503"] * len(readable) != []
            refused.update(readable)
        assert len(refused) == 5
        probe = stack.enter_context(server.connect(HEALTH, source="127.0.0.3"))
        server.release.set()
        assert probe.recv(12) == b"HTTP/1.1 200"


class SlowGate:
    """Let clients in without a user; check the passwords of others for ever."""

    async def may_use(self, *question):
        return True

    async def logs_in(self, listener, user, *question):
        if user is not None:
            await asyncio.get_running_loop().create_future()
        return True


def test_clients_whose_password_is_checked_make_room(serve):
    server = serve(gate=SlowGate())
    guess = HEALTH.removesuffix(b"\r\n") + b"Authorization: Basic YW5uOmd1ZXNz\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for i in range(2 * connections.CONNECTIONS_MAX):
            stack.enter_context(server.connect(guess, source=f"127.0.1.{i // 8 + 1}"))
        for _ in range(3):
            with server.connect(HEALTH, source="127.0.0.2") as probe:
                assert probe.recv(12) == b"HTTP/1.1 200"


def test_addresses_of_one_ipv6_network_make_room_among_their_own(serve, monkeypatch):
    def network_of(address):
        return subscriber_of(address.replace("127.0.1.", "2001:db8::"))

    monkeypatch.setattr(connections, "subscriber_of", network_of)
    server = serve()
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(server.connect(b"GET /api/v1/version HTTP/1.1\r\n", source="127.0.0.2"))
        for i in range(3 * connections.CONNECTIONS_MAX):
            stack.enter_context(server.connect(b"GET / HT", source=f"127.0.1.{i + 1}"))
        assert server.status() == 200
        early.sendall(b"Host: x\r\n\r\n")
        assert early.recv(12) == b"HTTP/1.1 200"


def test_the_network_with_most_connections_makes_room(serve):
    server = serve()
    with contextlib.ExitStack() as stack:
        few = [stack.enter_context(server.connect(b"GET /api/v1/version HTTP/1.1\r\n", source=f"127.0.0.{i + 2}"))
               for i in range(connections.CONNECTIONS_MAX - 5)]
        many = [stack.enter_context(server.connect(b"GET / HT", source="127.0.1.1")) for _ in range(5)]
        assert server.status() == 200
        assert is_closed(many[0])
        few[0].sendall(b"Host: x\r\n\r\n")
        assert few[0].recv(12) == b"HTTP/1.1 200"


def test_a_flood_from_many_networks_ends_no_new_request(serve, monkeypatch):
    monkeypatch.setattr(connections, "GUARANTEED_S", 2.0 * WAIT_S, raising=False)
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 2.0 * WAIT_S)
    server = serve()
    with contextlib.ExitStack() as stack:
        early = [stack.enter_context(server.connect(b"GET /api/v1/version HTTP/1.1\r\n", source=f"127.0.0.{i + 2}"))
                 for i in range(connections.CONNECTIONS_MAX)]
        for i in range(connections.CONNECTIONS_MAX // 2):
            stack.enter_context(server.connect(b"GET / HT", source=f"127.0.1.{i + 1}"))
        for sock in reversed(early):
            sock.sendall(b"Host: x\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 200"


def test_other_pages_are_refused_while_many_are_at_work_and_health_is_not(serve):
    server = serve()
    server.release.clear()
    tree = b"GET /api/v1/systree HTTP/1.1\r\nHost: x\r\n\r\n"
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(server.connect(tree)) for _ in range(33)]
        assert 503 in [int(sock.recv(12).split()[1]) for sock in socks[-1:]]
        probe = stack.enter_context(server.connect(b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"))
        server.release.set()
        assert probe.recv(12) == b"HTTP/1.1 200"


def test_a_stop_ends_answers_at_once_and_reports_nothing(serve):
    for _ in range(5):
        server = serve()
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(server.connect(GET, receive_bytes=4096))
            server.api.stop()
            assert not server.api._thread.is_alive()
            assert server.lines == []


def test_an_answer_on_its_way_ends_after_another_server_took_its_place(serve, monkeypatch):
    monkeypatch.setattr("mosq.server.http.server.FINISH_WITHIN_S", 60)
    server, systree = serve(), GET.replace(b"/big", b"/api/v1/systree")
    server.release.clear()
    with server.connect(systree) as asked, server.connect(GET, receive_bytes=4096) as reads:
        assert server.asked.wait(WAIT_S)
        assert reads.recv(1)
        server.api.retire()
        assert server.api.listeners == []
        with socket.socket() as late, pytest.raises(ConnectionRefusedError):
            late.connect(("127.0.0.1", server.port))
        server.release.set()
        assert asked.recv(12) == b"HTTP/1.1 200"
        size = 0
        while more := reads.recv(1 << 20):
            size += len(more)
        assert size > 20 << 20
    server.api._thread.join(WAIT_S)
    assert not server.api._thread.is_alive()


def test_answers_after_another_server_took_the_place_have_a_deadline(serve, monkeypatch):
    monkeypatch.setattr("mosq.server.http.server.FINISH_WITHIN_S", 0.05)
    server = serve()
    with server.connect(GET, receive_bytes=4096):
        server.api.retire()
        server.api._thread.join(WAIT_S)
        assert not server.api._thread.is_alive()
