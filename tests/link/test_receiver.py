"""Test rules of one side alone, because random schedules reach their scenarios too seldom."""

from __future__ import annotations

from cext.testing import link_api
from tests.link.rules import RULES
from tests.link.test_frames import HELLO, MESSAGE, OPEN, PLAIN, SNAPSHOT_END


def hello(run: int, log: int = 5) -> tuple[str, link_api.Fields]:
    return "accept", {"type": HELLO, "version": 1, "slot": 1, "workers": 2, "log": log, "run": run}


MESSAGE_1: tuple[str, link_api.Fields] = (
    "read", {"type": MESSAGE, "flags": 2 | PLAIN, "number": 1, "identity": 77, "text": b"t"})
AGAIN: list[tuple[str, link_api.Fields] | tuple[str, int]] = [
    hello(1), MESSAGE_1, hello(2), ("read", {"type": OPEN, "identity": 77}), ("read", {"type": SNAPSHOT_END}), MESSAGE_1, ("commit", 1)]


def test_a_copy_dropped_for_its_identity_waits_for_the_batch_of_the_first() -> None:
    answers = link_api.receive(AGAIN)
    assert [delivered for _, _, delivered in answers] == [0, 1, 1, 1, 1, 1, 1]
    assert [acked for _, acked, _ in answers] == [0, 0, 0, 0, 0, 0, 1]


def test_without_that_rule_it_is_acknowledged_before_the_commit() -> None:
    assert [acked for _, acked, _ in link_api.receive(AGAIN, 1 << RULES["identity_batch"])][-2:] == [1, 1]


def test_a_hello_of_an_older_run_is_refused() -> None:
    steps: list[tuple[str, link_api.Fields] | tuple[str, int]] = [hello(2), hello(1)]
    assert [error for error, _, _ in link_api.receive(steps)] == ["", "log or run"]
    assert [error for error, _, _ in link_api.receive(steps, 1 << RULES["stale_run"])] == ["", ""]


def test_a_new_log_is_accepted_whatever_its_run_is() -> None:
    """A worker whose store was deleted counts its runs from 1 again."""
    answers = link_api.receive([hello(3), MESSAGE_1, ("commit", 1), hello(2, 6), MESSAGE_1, hello(1, 6)])
    assert [error for error, _, _ in answers] == ["", "", "", "", "", "log or run"]
    assert [delivered for _, _, delivered in answers] == [0, 1, 1, 1, 2, 2]       # number and identity are those of another log


def test_a_welcome_of_a_new_log_is_accepted_and_one_of_an_older_run_is_refused() -> None:
    assert link_api.welcomes([(5, 3), (5, 3), (6, 1), (6, 2), (6, 1)]) == ["", "", "", "", "log or run"]


def test_a_hello_of_another_worker_than_the_handshake_has_proved_is_refused() -> None:
    assert [error for error, _, _ in link_api.receive([hello(1)], proved=1)] == [""]
    assert [error for error, _, _ in link_api.receive([hello(1)], proved=0)] == ["number of the worker"]


def test_a_snapshot_of_retained_messages_ends_when_all_that_it_shows_is_committed() -> None:
    """Otherwise a subscriber may get a message, or none, that the kill of the owner takes back."""
    assert link_api.snapshot_ends() == (False, True)
    assert link_api.snapshot_ends(1 << RULES["walk_committed"]) == (True, True)
