import pytest
from hypothesis import given, strategies as st

from mosq.auth.backoff import FREE_USERS, Backoff, pause
from mosq.auth.networks import subscriber_of

HERE = "192.0.2.1"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def backoff(clock):
    return Backoff(clock)


def fail(backoff, clock, times, user="ann", address=HERE):
    """Return the pauses before each further attempt."""
    pauses = []
    for _ in range(times):
        waited = 0.0
        while backoff.refuses(address, user):
            clock.now += 1 / 64
            waited += 1 / 64
        backoff.failed(address, user)
        pauses.append(waited)
    return pauses


def test_after_two_failures_pauses_double_up_to_ten_seconds(backoff, clock):
    pauses = fail(backoff, clock, 12)
    assert pauses[:3] == [0, 0, 0]
    assert pauses[3:10] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4], abs=0.02)
    assert pauses[10:] == pytest.approx([10, 10], abs=0.02)


def test_attempts_within_a_pause_do_not_prolong_it(backoff, clock):
    fail(backoff, clock, 6)
    until = clock.now + 0.8
    while clock.now < until - 0.001:
        assert backoff.refuses(HERE, "ann")
        clock.now += 0.01
    clock.now = until
    assert not backoff.refuses(HERE, "ann")


def test_simultaneous_failures_count_once(backoff, clock):
    fail(backoff, clock, 3)
    for _ in range(100):
        backoff.failed(HERE, "ann")
    clock.now += 0.11
    assert not backoff.refuses(HERE, "ann")


def test_a_success_ends_the_pause(backoff, clock):
    fail(backoff, clock, 8)
    assert backoff.refuses(HERE, "ann")
    backoff.succeeded(HERE, "ann")
    assert not backoff.refuses(HERE, "ann")
    assert fail(backoff, clock, 3) == [0, 0, 0]


def test_one_failing_user_does_not_pause_other_users(backoff, clock):
    fail(backoff, clock, 200)
    assert backoff.refuses(HERE, "ann")
    assert not backoff.refuses(HERE, "ben")
    assert not backoff.refuses("192.0.2.2", "ann")


def test_many_failing_users_pause_new_users_of_the_address_only(backoff, clock):
    backoff.succeeded(HERE, "old")
    for i in range(FREE_USERS):
        assert backoff.failed(HERE, f"u{i}") == 0
    assert not backoff.refuses(HERE, "new")
    assert backoff.failed(HERE, "one more") == pytest.approx(0.1)
    assert backoff.refuses(HERE, "new")
    assert not backoff.refuses(HERE, "old")
    assert not backoff.refuses("192.0.2.2", "new")
    clock.now += 0.11
    assert not backoff.refuses(HERE, "new")


def test_a_pause_of_an_address_ends_after_ten_seconds(backoff, clock):
    for i in range(1000):
        if not backoff.refuses(HERE, f"u{i}"):
            backoff.failed(HERE, f"u{i}")
        clock.now += 0.1
    clock.now += 10.0
    assert not backoff.refuses(HERE, "new")
    clock.now += 600
    assert backoff.failed(HERE, "x") == 0


def test_a_guesser_gets_few_attempts(backoff, clock):
    looked_at = 0
    for i in range(10_000):         # ten a second, each with another user, for a thousand seconds
        if not backoff.refuses(HERE, f"u{i}"):
            backoff.failed(HERE, f"u{i}")
            looked_at += 1
        clock.now += 0.1
    assert looked_at < 150


def test_memory_is_bounded(clock):
    backoff = Backoff(clock, entries_max=10)
    for i in range(1000):
        backoff.failed(f"192.0.2.{i % 250}", "u" * i)
        backoff.succeeded(f"198.51.100.{i % 250}", "u" * i)
    assert max(len(backoff._users), len(backoff._places), len(backoff._trusted)) <= 10


@pytest.mark.parametrize(("one", "other", "same"), [
    ("192.0.2.1", "::ffff:192.0.2.1", True),
    ("2001:db8::1", "2001:db8::ffff:1", True),
    ("2001:db8::1", "2001:db8:0:1::1", False),
    ("fe80::1%eth0", "fe80::2", True),
    ("192.0.2.1", "192.0.2.2", False),
])
def test_addresses_that_count_as_one(one, other, same):
    assert (subscriber_of(one) == subscriber_of(other)) == same


@pytest.mark.parametrize("address", ["", "/run/mosq.sock", "::::", "x" * 1000])
def test_a_text_that_is_no_ip_address_is_not_paused(backoff, address):
    assert subscriber_of(address) == b""
    for i in range(100):
        backoff.failed(address, f"u{i}")
    assert not backoff.refuses(address, "new")


@given(st.integers(-5, 10_000))
def test_pauses_are_bounded(failures):
    assert 0 <= pause(failures) <= 10
    assert pause(failures) <= pause(failures + 1)


def test_failed_and_refused_logins_are_counted(backoff, clock):
    assert backoff.counts() == {"failed": 0, "refused": 0, "users": 0, "addresses": 0}
    fail(backoff, clock, 3)
    fail(backoff, clock, 1, "bob")
    backoff.refused()
    assert backoff.counts() == {"failed": 4, "refused": 1, "users": 2, "addresses": 1}
