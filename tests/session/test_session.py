"""Compare the queue with a simple model, the inbox with a set, and the table of sessions with a dictionary."""

import random

import pytest

from cext.testing.session_api import PyInbox, PyQueue, PySessions, PyShares, big_message
from tests.harness.effort import tries

WINDOW = 5


class Model:
    """A list of pending messages, in order: [number, qos, pid, state]."""

    def __init__(self, last_pid: int) -> None:
        self.pending: list[list[int | str]] = []
        self.last_pid, self.sent = last_pid, 0

    def push(self, number: int, qos: int) -> None:
        if qos:
            self.last_pid = self.last_pid % 65535 + 1
        self.pending.append([number, qos, self.last_pid, "waiting"])


@pytest.mark.again("properties")
@pytest.mark.parametrize("seed", range(tries(12, 3)))
def test_queue_against_the_model(seed: int) -> None:
    r = random.Random(seed)
    start = r.choice((0, 65530, 40000))
    queue, model, number = PyQueue(start), Model(start), 0
    delivered: list[int] = []
    for _ in range(5000):
        action = r.random()
        if action < 0.05:                       # a packet of a bridge takes an id
            model.last_pid = model.last_pid % 65535 + 1
            assert queue.take_pid() == model.last_pid
        elif action < 0.4:
            qos = r.choice((0, 1, 1, 2, 2))
            model.push(number, qos)
            assert queue.push(number, qos) == model.last_pid
            number += 1
        elif action < 0.7 and sum(o[3] in ("sent", "released") for o in model.pending[:model.sent]) < WINDOW:
            expected = None
            while model.sent < len(model.pending) and expected is None:
                pending = model.pending[model.sent]
                model.sent += 1
                if pending[3] == "done":
                    continue
                if pending[3] == "released":
                    expected = ("pubrel", pending[2])
                else:
                    expected = ("again" if pending[3] == "sent" else "publish", pending[0], pending[1], pending[2] if pending[1] else 0)
                    if pending[3] == "waiting":
                        delivered.append(int(pending[0]))
                    pending[3] = "sent" if pending[1] else "done"
            assert queue.send_next() == expected
        elif action < 0.97:
            candidates = [o for o in model.pending[:model.sent] if o[3] in ("sent", "released")]
            if candidates and r.random() < 0.9:
                pending = r.choice(candidates)  # acknowledgements arrive in any order
                assert queue.state(int(pending[2])) == pending[3]
                if pending[1] == 2 and pending[3] == "sent":
                    queue.release(int(pending[2]))
                    pending[3] = "released"
                else:
                    queue.done(int(pending[2]))
                    pending[3] = "done"
            else:
                pid = r.randrange(65536)
                if all(o[2] != pid for o in candidates):
                    assert queue.state(pid) is None
        else:
            queue.rewind()
            model.sent = 0
        while model.pending and model.pending[0][3] == "done" and model.sent:
            model.pending.pop(0)
            model.sent -= 1
        live = [o for o in model.pending if o[3] != "done"]
        held = [o for o in live if o[3] != "released"]
        counts = queue.counts()
        assert counts[2] == len(live)
        assert counts[5] == len(held)
        assert counts[3] + counts[4] == sum(len(str(o[0])) for o in held)
    assert delivered == sorted(delivered), "first deliveries come in order"


@pytest.mark.parametrize("lsn", [0, 4, 123456788, 2**54 - 4])
@pytest.mark.parametrize("size", [1, 30, 31, 62, 63, 100, 5000, 2_000_000])
def test_a_paged_delivery_stores_its_lsn_and_size(size: int, lsn: int) -> None:
    queue = PyQueue()
    queue.push(1, 1, size)
    assert queue.counts()[3:] == (size, 0, 1)      # the payload: neither the topic nor properties
    assert queue.page(0, lsn, True)
    where, about = queue.paged(0)
    assert where == lsn and size * 31 / 32 <= about <= size
    assert queue.counts()[3:] == (about, 0, 0) and queue.recorded_bytes() > about
    queue.unpage(0, b"1")
    assert queue.counts()[3:] == (1, 0, 1) and queue.recorded_bytes() == 0
    assert queue.send_next() is not None
    queue.done(1)
    assert queue.counts() == (0, 0, 0, 0, 0, 0)


def test_taken_ids_skip_the_deliveries_near_the_floor() -> None:
    """Test a queue that is longer than the circle of ids, whose next id is in flight."""
    queue = PyQueue()
    for n in range(70_000):
        pid = queue.push(n, 1)
    assert pid == 70_000 - 65_535
    sent = {queue.send_next()[3] for _ in range(10_000)}
    taken = [queue.take_pid() for _ in range(10_000)]
    assert taken == list(range(32_768, 42_768))
    assert not sent & set(taken)


def test_a_delivery_waits_while_its_id_is_in_flight() -> None:
    queue = PyQueue()
    assert queue.push(0, 1) == 1 and queue.rises()
    queue.send_next()
    for _ in range(65_534):
        queue.take_pid()
    assert queue.push(1, 1) == 1 and not queue.rises()
    queue.done(1)
    assert queue.rises()


def test_the_size_of_records_is_the_sum_of_their_parts() -> None:
    queue = PyQueue()
    for n in range(9):
        queue.push(n, 1, 10 * n + 1)
    for n in range(9):
        assert queue.page(n, 4 * n, n % 3 != 2)     # another delivery counts the record of each third
    counted = [n for n in range(9) if n % 3 != 2]
    sizes = {n: queue.paged(n)[1] + 64 + 1 for n in counted}        # 64: the head of a record, 1: the topic
    assert queue.recorded_bytes() == sum(sizes.values())
    for n in range(9):
        before = queue.recorded_bytes()
        queue.unpage(n, b"1")
        assert before - queue.recorded_bytes() == sizes.get(n, 0)
    assert queue.recorded_bytes() == 0


@pytest.mark.parametrize("lsn", [1, 2, 2**54, 2**63])
def test_a_delivery_with_an_invalid_lsn_stays_in_memory(lsn: int) -> None:
    queue = PyQueue()
    queue.push(7, 1)
    assert not queue.page(0, lsn, True) and queue.paged(0) is None
    assert queue.send_next() == ("publish", 7, 1, 1)


def test_queue_ids_are_unique_in_flight() -> None:
    queue = PyQueue(65000)
    for n in range(2000):
        queue.push(n, 1)
    sent = [queue.send_next() for _ in range(2000)]
    ids = [s[3] for s in sent if s is not None and len(s) == 4]
    assert len(set(ids)) == 2000
    assert 0 not in ids
    for pid in random.Random(1).sample(ids, 2000):
        queue.done(pid)
    assert queue.counts() == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_inbox(seed: int) -> None:
    r, inbox, model = random.Random(seed), PyInbox(), set[int]()
    few = [r.randrange(1, 65536) & ~127 | 1 for _ in range(300)]  # the same low bits: one chain
    for _ in range(6000):
        pid = r.choice(few) if r.random() < 0.5 else r.randrange(1, 65536)
        if pid in model:
            assert inbox.has(pid)
            inbox.remove(pid)
            model.remove(pid)
        else:
            assert not inbox.has(pid)
            inbox.add(pid)
            model.add(pid)
        assert inbox.count() == len(model)
    for pid in sorted(model):
        inbox.remove(pid)
    assert inbox.count() == 0


def test_inbox_holds_every_id() -> None:
    inbox = PyInbox()
    for pid in range(1, 65536):
        inbox.add(pid)
    assert inbox.count() == 65535
    assert all(inbox.has(pid) for pid in range(1, 65536))


def test_session_table_grows_and_walks() -> None:
    table, r, model = PySessions(), random.Random(5), set[bytes]()
    for n in range(6000):
        client_id = b"client-%d" % n
        table.add(client_id)
        model.add(client_id)
        if r.random() < 0.3:
            gone = r.choice(sorted(model)[:50])
            table.remove(gone)
            model.remove(gone)
            assert not table.has(gone)
        if n % 500 == 0:
            assert sorted(table.walk()) == sorted(model)
    assert all(table.has(client_id) for client_id in model)
    assert table.count() == len(model)


def test_big_message_keeps_its_buffer() -> None:
    payload = bytes(range(256)) * 200
    back, during, after = big_message(payload)
    assert back == payload
    assert during >= len(payload)
    assert after == 0


SHARES_MAX = 65535


def test_shares_are_found_by_their_previous_place() -> None:
    shares = PyShares()
    shares.set_pending(1)
    place = shares.share(7, 1)
    assert shares.share(7, 1, place) == place
    other = shares.share(8, 1, place)  # another group
    assert other != place
    assert shares.share(7, 2, place) not in (place, other)  # a new subscription identifier: waiting messages keep the old one
    assert shares.read(place) == (7, 1)
    assert shares.share(8, 1, 60_000) not in (0, place)  # a wrong hint does no harm


def test_shares_begin_again_when_the_queue_is_empty() -> None:
    shares = PyShares()
    shares.set_pending(1)
    for group in range(1, 1000):
        shares.share(group, 0)
    assert shares.counts()[0] == 999
    shares.set_pending(0)
    assert shares.share(5000, 0, 17) == 1
    assert shares.counts() == (1, 4)
    assert shares.read(1) == (5000, 0)


def test_shares_are_bounded() -> None:
    shares = PyShares()
    shares.set_pending(1)
    places = [shares.share(group, 0) for group in range(1, SHARES_MAX + 1)]
    assert places == list(range(1, SHARES_MAX + 1))
    assert shares.share(SHARES_MAX + 1, 0) == 0
    assert shares.share(1, 0, 1) == 1  # a known share keeps its place
    assert shares.counts() == (SHARES_MAX, SHARES_MAX)
