"""Test the timer wheel against a naive model in simulated time, the slab, and recycled buffers."""

import random

import pytest

from cext.testing.base_api import PyBuffers, PySlab, PyWheel

TICK_MS = 16
FAR_MS = 1 << 30


def delay_ms(r: random.Random) -> int:
    """Return a delay of any level of the wheel, or at a border."""
    border = TICK_MS * 64 ** r.randrange(1, 5)
    return r.choice((0, 1, TICK_MS, r.randrange(2000), border + r.randrange(-40, 40), r.randrange(2 * border)))


@pytest.mark.parametrize("seed", range(8))
def test_wheel_fires_on_time(seed: int) -> None:
    r = random.Random(seed)
    start = now = r.randrange(1 << 40)
    wheel, due = PyWheel(200, start), dict[int, int]()
    for _ in range(4000):
        number, action = r.randrange(200), r.random()
        if action < 0.5:
            due[number] = now + min(delay_ms(r), FAR_MS - 1)
            wheel.add(number, due[number])
        elif action < 0.6:
            wheel.remove(number)
            due.pop(number, None)
        else:
            timeout = wheel.timeout_ms(now)
            assert (timeout == -1) == (not due)
            now += max(timeout, 0) if r.random() < 0.7 else r.choice((1, 50, 5000, 3_000_000))
            fired, more = wheel.advance(now)
            assert not more
            for n in fired:
                assert due.pop(n) <= now, "early"
            # the wheel works in whole ticks: no timer fires later than one tick and the rounding up to it
            assert all(at > now - 2 * TICK_MS for at in due.values()), "late"
        assert wheel.count() == len(due)
        assert wheel.armed(number) == (number in due)


def test_wheel_with_exact_timeouts_is_never_late() -> None:
    """Test that advancing exactly when timeout_ms demands it is never late."""
    r = random.Random(1)
    for _ in range(300):
        now = r.randrange(1 << 30)
        wheel = PyWheel(1, now)
        now += r.randrange(5000)
        wheel.advance(now)
        due = now + delay_ms(r)
        wheel.add(0, due)
        while not (fired := wheel.advance(now)[0]):
            step = wheel.timeout_ms(now)
            assert step >= 0
            now += max(step, 1)
        assert fired == [0]
        assert due <= now <= due + 2 * TICK_MS


def test_wheel_in_slices() -> None:
    wheel = PyWheel(1000, 0)
    for n in range(1000):
        wheel.add(n, 100)
    seen: list[int] = []
    for _ in range(10):
        fired, more = wheel.advance(200, 100)
        assert len(fired) == 100
        seen += fired
        assert more == (len(seen) < 1000) or not more
    assert sorted(seen) == list(range(1000))
    assert wheel.advance(300) == ([], False)


def test_wheel_in_slices_at_a_border() -> None:
    """Test a slot that is visited again because a cascade has filled it."""
    wheel = PyWheel(50, 0)
    for n in range(50):
        wheel.add(n, 64 * TICK_MS)
    seen: list[int] = []
    while wheel.count():
        seen += wheel.advance(64 * TICK_MS + TICK_MS, 7)[0]
    assert sorted(seen) == list(range(50))


def test_wheel_far_timers_fire_early() -> None:
    """Test that the owner checks its own due time and adds the timer again."""
    wheel = PyWheel(1, 0)
    wheel.add(0, 10 * FAR_MS)
    assert wheel.advance(FAR_MS - 1000)[0] == []
    assert wheel.advance(FAR_MS + 1000)[0] == [0]


def test_wheel_adds_while_it_fires() -> None:
    wheel = PyWheel(3, 0)
    wheel.on_fire = {0: [(1, 0), (2, 5000)]}
    wheel.add(0, 10)
    assert wheel.advance(100)[0] == [0, 1]  # a timer that is due at once fires with the next tick, which is due, too
    assert wheel.advance(6000)[0] == [2]


def test_slab_handles() -> None:
    slab, r = PySlab(40, 8), random.Random(3)
    taken: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for _ in range(2000):
        if taken and r.random() < 0.48:
            index = r.choice(list(taken))
            slab.give(index)
            assert slab.generation(index) is None
            del taken[index]
        else:
            index, generation = slab.take()
            assert index not in taken
            assert (index, generation) not in seen, "a handle came twice"
            seen.add((index, generation))
            taken[index] = generation
        assert slab.counts()[0] == len(taken)
        assert sum(slab.counts()) % 8 == 0
    assert all(slab.generation(index) == generation for index, generation in taken.items())
    assert slab.generation(10**6) is None


def test_buffers_are_recycled_within_their_bound() -> None:
    buffers = PyBuffers(64 * 1024)
    first, cap = buffers.take(5000)
    assert cap == 8192
    buffers.give(first)
    assert buffers.counts() == (0, 8192)
    assert buffers.take(8192)[0] == first
    many = [buffers.take(n)[0] for n in (1, 2048, 2049, 30_000, 1 << 20, 5 << 20)]
    assert buffers.counts()[0] == 8192 + 2048 + 2048 + 4096 + 32768 + (1 << 20) + (5 << 20)
    for p in many:
        buffers.give(p)
    used, idle = buffers.counts()
    assert used == 8192
    assert 0 < idle <= 64 * 1024


@pytest.mark.parametrize(("block_items", "idle_max"), [(1, 0), (8, 0), (8, 20), (1000, 500), (1000, 10_000)])
def test_slab_frees_memory_and_stale_handles_stay_stale(block_items: int, idle_max: int) -> None:
    """Test waves of takes and gives: no handle ever returns, idle objects stay bounded, and in the end little memory is kept."""
    slab, r = PySlab(400, block_items, idle_max), random.Random(block_items + idle_max)
    taken: dict[int, int] = {}
    ever: set[tuple[int, int]] = set()
    for target in (3000, 10, 2500, 0, 1200, 0):
        while len(taken) != target:
            if len(taken) < target and r.random() < 0.8:
                handle = slab.take()
                assert handle not in ever
                ever.add(handle)
                taken[handle[0]] = handle[1]
            elif taken:
                index = r.choice(list(taken)) if len(taken) < 50 else next(iter(taken))
                del taken[index]
                slab.give(index)
                assert slab.generation(index) is None
        used, idle = slab.counts()
        assert used == len(taken)
        # a block is kept whole while an object in it is in use; idle ones are kept up to the limit
        assert idle <= idle_max + block_items + (block_items - 1) * max(1, len(taken))
        assert all(slab.generation(index) == generation for index, generation in taken.items())
    kept = max(idle_max, block_items if block_items > 1 else 0)          # one block stays
    assert slab.counts()[1] <= kept
    assert slab.bytes() <= kept * 432 + 8 * 4096
