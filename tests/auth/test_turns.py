"""Test the order, the number and the memory of the logins that wait: in the queue alone, for hashes and for plugins."""

import gc
import random
import sys
import threading
from contextlib import ExitStack, closing

import pytest

import mosq
from mosq.auth.checks import Check
from mosq.auth.hashes import Hash
from mosq.auth.networks import network_of
from mosq.auth.turns import TURNS_OF_KNOWN, Turns, bytes_of
from mosq.records import ExchangeRequest, LoginRequest
from mosq.server import access
from tests.harness.faults import until
from tests.harness.packets import Connect
from tests.harness.wire import Wire

from . import plugins_of_tests as ours
from .conftest import write_users
from .engine import config_of, plugin_line

LET_IN, REFUSED, BUSY = 0, 0x87, 0x89
SLOW = f"python:{ours.__name__}:Slow"
EMOJI = "\U0001f600"                    # makes Python use four bytes for each character


def drained(turns):
    out = []
    while (login := turns.take()) is not None:
        out.append(login)
    return out


# ---------------------------------------------------------------- the queue

def test_networks_get_their_turns_one_after_the_other():
    turns = Turns(100)
    for i in range(5):
        assert turns.put(b"flood", f"f{i}") == []
    turns.put(b"a", "a0")
    turns.put(b"b", "b0")
    turns.put(b"a", "a1")
    assert drained(turns) == ["f0", "a0", "b0", "f1", "a1", "f2", "f3", "f4"]
    assert (len(turns), turns.bytes) == (0, 0)


def test_known_logins_come_first_and_leave_turns_to_the_others():
    turns = Turns(100)
    for i in range(4):
        turns.put(b"a", f"new{i}")
    for i in range(7):
        turns.put(b"b", f"known{i}", known=True)
    order = drained(turns)
    assert order[:TURNS_OF_KNOWN + 1] == ["known0", "known1", "known2", "new0"]
    assert order[-2:] == ["new2", "new3"]


def test_a_login_that_does_not_fit_keeps_its_turn():
    turns = Turns(100)
    turns.put(b"a", "a0")
    turns.put(b"b", "b0")
    assert turns.take(lambda login: login == "b0") is None
    assert drained(turns) == ["a0", "b0"]


def test_a_full_queue_refuses_the_network_that_holds_most():
    turns = Turns(waiting_max=4)
    assert [turns.put(b"flood", f"f{i}") for i in range(6)] == [[], [], [], [], ["f4"], ["f5"]]
    assert turns.put(b"a", "a0") == ["f3"]
    assert turns.put(b"b", "b0") == ["f2"]
    assert turns.put(b"flood", "f6") == ["f6"]
    assert drained(turns) == ["f0", "a0", "b0", "f1"]


def test_bytes_are_bounded_and_known_logins_lose_last():
    turns = Turns(100, bytes_max=1000)
    assert turns.put(b"a", "known", 900, known=True) == []
    assert turns.put(b"b", "small", 100) == []
    assert turns.put(b"c", "large", 600) == ["large"]
    assert turns.put(b"d", "known too", 50, known=True) == ["small"]
    assert turns.put(b"d", "too large", 2000, known=True) == ["too large"]
    assert turns.bytes == 950


def test_a_network_may_have_a_maximum_of_its_own():
    turns = Turns(100, network_max=2)
    assert [turns.put(b"a", i) for i in range(4)] == [[], [], [2], [3]]
    assert turns.put(b"b", 4) == []


def test_logins_that_are_given_up_or_late_free_their_room():
    turns = Turns(100)
    for i in range(4):
        turns.put(b"a", i, 10)
        turns.put(b"b", i + 10, 10)
    assert turns.give_up(b"a", 2) and not turns.give_up(b"a", 2) and not turns.give_up(b"c", 0)
    assert turns.take_late(lambda login: login in (0, 1, 10, 12)) == [0, 1, 10]
    assert (len(turns), turns.bytes) == (4, 40)
    assert drained(turns) == [3, 11, 12, 13]


def test_number_and_bytes_are_those_of_the_logins_that_wait():
    chance, turns, waiting = random.Random(7), Turns(40, 9, 3000), {}
    for i in range(20_000):
        network, known, size = bytes([chance.randrange(12)]), chance.random() < 0.2, chance.choice((1, 30, 400))
        kind = chance.random()
        if kind < 0.6:
            waiting[i] = network, known, size
            for lost in turns.put(network, i, size, known):
                del waiting[lost]
        elif kind < 0.9:
            taken = turns.take()
            assert (taken is None) == (not waiting)
            waiting.pop(taken, None)
        elif waiting:
            gone = chance.choice(list(waiting))
            network, known, _ = waiting.pop(gone)
            assert turns.give_up(network, gone, known)
        assert (len(turns), turns.bytes) == (len(waiting), sum(size for _, _, size in waiting.values()))
        assert len(turns) <= 40 and turns.bytes <= 3000
    assert sorted(drained(turns)) == sorted(waiting)
    assert (turns._lines, turns._sizes) == ({False: {}, True: {}}, {})


@pytest.mark.parametrize(("one", "other", "same"), [
    ("192.0.2.1", "192.0.2.250", True), ("192.0.2.1", "192.0.3.1", False), ("::ffff:192.0.2.1", "192.0.2.7", True),
    ("2001:db8::1", "2001:db8:0:ff::1", True), ("2001:db8::1", "2001:db8:0:100::1", False), ("fe80::1%eth0", "fe80::2", True),
    ("", "/run/sock", True),
])
def test_networks(one, other, same):
    assert (network_of(one) == network_of(other)) is same


def test_the_memory_of_a_login_counts_wide_characters():
    assert bytes_of(["x" * 1000]) < 2 * bytes_of([]) + 1000 < 4000 < bytes_of([EMOJI + "x" * 1000])
    assert bytes_of([{"certificate_pem": "x" * 9000}, None]) > 9000


# ---------------------------------------------------------------- logins that wait for a hash

class Gate:
    """Let one hash after the other go on; record their passwords."""

    def __init__(self, monkeypatch):
        self.passwords, self.begun, self.go = [], threading.Semaphore(0), threading.Semaphore(0)
        matches = Hash.matches

        def wait(hash, password):
            self.passwords.append(password)
            self.begun.release()
            assert self.go.acquire(timeout=20)
            return matches(hash, password)

        monkeypatch.setattr(Hash, "matches", wait)
        monkeypatch.setattr("mosq.auth.hashes.password_lanes", lambda: None)        # one check in a call

    def open(self):
        for _ in range(1000):
            self.go.release()


@pytest.fixture
def gate(monkeypatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def test_a_burst_of_guesses_delays_the_login_of_another_network_by_one_hash(engine, password_file, gate):
    engine.start(config_of(password_file, auth_threads=1, auth_backoff=False))
    engine.access.take([engine.connect(f"u{i}", b"guess", address=f"198.51.100.{i}") for i in range(100)])
    assert gate.begun.acquire(timeout=20)
    engine.access.take([engine.connect("ann", b"secret")])
    gate.open()
    engine.wait(lambda so_far: len(so_far) == 101)
    assert gate.passwords.index(b"secret") <= 2


def test_a_known_user_does_not_wait_for_a_burst_from_many_networks(engine, password_file, gate):
    engine.start(config_of(password_file, auth_threads=1, auth_cache_size=0))
    gate.go.release()
    assert engine.login("ann", b"secret") == LET_IN
    engine.access.take([engine.connect(f"u{i}", b"guess", address=f"10.{i}.0.1") for i in range(100)])
    for _ in range(2):
        assert gate.begun.acquire(timeout=20)
    engine.access.take([engine.connect("ann", b"secret")])
    gate.open()
    engine.wait(lambda so_far: len(so_far) == 102)
    assert gate.passwords[1:].index(b"secret") == 1


def test_a_full_queue_of_hashes_lets_another_network_in(engine, password_file, gate, monkeypatch):
    monkeypatch.setattr(access, "WAITING_MAX", 3)
    engine.start(config_of(password_file, auth_threads=1, auth_backoff=False))
    engine.access.take([engine.connect("u", b"guess", address="198.51.100.1")])
    assert gate.begun.acquire(timeout=20)
    flood = [engine.connect(f"u{i}", b"guess", address="198.51.100.1") for i in range(4)]
    other = engine.connect("ann", b"secret")
    engine.access.take([*flood, other])
    answers = engine.wait(lambda so_far: len(so_far) == 2)
    assert {answer.handle: answer.code for answer in answers} == {flood[3].handle: BUSY, flood[2].handle: BUSY}
    gate.open()
    answers = engine.wait(lambda so_far: len(so_far) == 6)
    assert LET_IN in [answer.code for answer in answers if answer.handle == other.handle]


def test_the_bytes_of_logins_that_wait_for_a_hash_are_bounded(engine, password_file, gate):
    engine.start(config_of(password_file, auth_threads=1, auth_backoff=False, login_memory=1 << 20))
    engine.access.take([engine.connect(f"{EMOJI}{i}" + "x" * 20_000, b"guess") for i in range(100)])
    answers = engine.wait(lambda so_far: len(so_far) >= 80)
    assert {answer.code for answer in answers} == {BUSY}
    assert engine.access._checks.turns.bytes <= 1 << 20


def test_a_quarter_of_memory_limit_bounds_the_queues_too(engine, password_file):
    for limit, memory, most in ((0, 64 << 20, 64 << 20), (0, 0, 0), (40 << 20, 64 << 20, 10 << 20), (40 << 20, 0, 10 << 20)):
        engine.start(config_of(password_file, memory_limit=limit, login_memory=memory))
        assert engine.access._checks.turns.bytes_max == most
        engine.access.close()


def test_the_queues_share_login_memory_also_after_a_reload(engine, password_file):
    def config(memory):
        return config_of(password_file, [plugin_line(SLOW), plugin_line(f"python:{ours.__name__}:Rules")], login_memory=memory)

    engine.start(config(2 << 20))
    queues = engine.access._login_queues
    assert [queue.bytes_max for queue in queues] == [1 << 20, 1 << 20]
    engine.access.reload(config(8 << 20)).close()
    engine.access.tick()
    assert [queue.bytes_max for queue in queues] == [1 << 20, 1 << 20]


# ---------------------------------------------------------------- logins that wait for a plugin

@pytest.fixture
def slow():
    """Let the plugin Slow wait until the test ends."""
    ours.made.clear()
    ours.Slow.go.clear()
    yield ours.made
    ours.Slow.go.set()


def begun(made):
    until(lambda: made and made[-1].calls)
    return made[-1]


def test_the_bytes_of_logins_that_wait_for_a_plugin_are_bounded(engine, slow):
    engine.start(config_of(plugins=[plugin_line(SLOW)], login_memory=2 << 20))
    requests = [engine.connect(f"u{i}", b"p" * 1000, client_id=EMOJI + "x" * 20_000) for i in range(100)]
    engine.access.take(requests)
    answers = engine.wait(lambda so_far: len(so_far) >= 80)
    assert {answer.code for answer in answers} == {BUSY}
    assert 500_000 < sum(queue.bytes for queue in engine.access._login_queues) <= 2 << 20
    ours.Slow.go.set()
    engine.wait(lambda so_far: len(so_far) == 100)


def test_a_full_queue_of_a_plugin_lets_another_network_in_and_asks_about_it_soon(engine, slow, monkeypatch):
    monkeypatch.setattr("mosq.auth.runner.WAITING_MAX", 5)
    engine.start(config_of(plugins=[plugin_line(SLOW)]))
    engine.access.take([engine.connect("first", address="198.51.100.1")])
    plugin = begun(slow)
    engine.access.take([engine.connect(f"u{i}", address="198.51.100.1") for i in range(10)])
    engine.access.take([engine.connect("ann")])
    ours.Slow.go.set()
    answers = engine.wait(lambda so_far: len(so_far) == 12)
    assert [request.username for request in plugin.calls] == ["first", "u0", "ann", "u1", "u2", "u3"]
    assert sum(answer.code == BUSY for answer in answers) == 6


def test_logins_that_the_data_plane_has_given_up_leave_the_queue_while_the_plugin_hangs(engine, slow, monkeypatch):
    engine.start(config_of(plugins=[plugin_line(SLOW)], auth_timeout=5))
    engine.access.take([engine.connect("first")])
    plugin = begun(slow)
    engine.access.take([engine.connect(f"u{i}", client_id="x" * 50_000) for i in range(10)])
    engine.access.tick()
    assert sum(queue.bytes for queue in engine.access._login_queues) > 500_000
    now = access.monotonic()
    monkeypatch.setattr(access, "monotonic", lambda: now + 6)
    engine.access.tick()
    assert sum(queue.bytes for queue in engine.access._login_queues) == 0
    ours.Slow.go.set()
    monkeypatch.undo()
    assert engine.login("later") == LET_IN
    assert [request.username for request in plugin.calls] == ["first", "later"]


def test_steps_of_exchanges_count_too(engine):
    engine.start(config_of(plugins=[plugin_line(f"python:{ours.__name__}:Challenge")], login_memory=100_000))
    assert engine.ask(ExchangeRequest(7, 0, "twice", b"x" * 60_000, True)).code == BUSY
    assert engine.ask(ExchangeRequest(8, 0, "twice", b"x", True)).code != BUSY


def bytes_of_waiting_users():
    """Return the memory of the user names of all logins that wait in this process."""
    gc.collect()                # requests of earlier tests
    found = [one.username if isinstance(one, LoginRequest) else one.user for one in gc.get_objects()
             if isinstance(one, (LoginRequest, Check))]
    return sum(sys.getsizeof(name) for name in {id(name): name for name in found if name}.values())


@pytest.mark.parametrize("way", ["plugin", "password_file"])
def test_connections_that_end_while_their_logins_wait_leave_bounded_memory(way, slow, gate, tmp_path, monkeypatch):
    """login_memory ends connections; their requests stay in the queue of a slow plugin or a slow hash."""
    write_users(tmp_path / "passwd", ann=b"secret")
    line = f"plugin {SLOW}" if way == "plugin" else f"password_file {tmp_path}/passwd"
    most, taken, wires = 2_000_000, [], []
    take = access.Access.take
    monkeypatch.setattr(access.Access, "take", lambda self, requests: (take(self, requests), taken.append(len(requests))))
    with mosq.Broker(f"listener 1883 127.0.0.1\nallow_anonymous false\nauth_threads 1\nauth_backoff false\n{line}\n", port=0,
                     login_memory=most) as broker, ExitStack() as stack:
        for i in range(60):
            wires.append(stack.enter_context(closing(Wire(broker.port))))
            wires[i].send(Connect(f"{i}", username=EMOJI + "y" * 40_000, password=b"guess"))
            until(lambda: sum(taken) == len(wires))
        until(lambda: bytes_of_waiting_users() <= most + 200_000)   # those that wait, and the one that is checked
        ours.Slow.go.set()
        gate.open()
