"""Test the order of changes at the parent, with workers that end at each step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from mosq.server.workers.channel import Channel, channel_pair
from mosq.server.workers.order import LIMIT_S, Order
from mosq.server.workers.slot import Slot


OPEN: list[Channel] = []        # of the running test


@pytest.fixture(autouse=True)
def closed_channels() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


class Worker:
    """One worker of the parent, as a channel without a process."""

    def __init__(self, slot: Slot) -> None:
        own, self.channel = channel_pair()
        OPEN.extend((own, self.channel))
        self.slot = slot
        slot.began(0, own, 0.0)
        slot.ready = True

    def got(self) -> list[dict[str, Any]]:
        found = self.channel.receive()
        self.contents = [b"".join(os.pread(fd, 100, 0) for fd in fds) for _, fds in found]
        for _, fds in found:
            for fd in fds:
                os.close(fd)
        return [message for message, _ in found]


class Parent:
    def __init__(self, n: int = 3) -> None:
        slots = [Slot(place) for place in range(n)]
        self.order = Order(slots)
        self.workers = [Worker(slot) for slot in slots]

    def sends(self, place: int, what: str, content: bytes | None = None, **more: object) -> None:
        fds = []
        if content is not None:
            with tempfile.TemporaryFile() as file:
                file.write(content)
                file.flush()
                fds = [os.dup(file.fileno())]
        self.order.received(self.workers[place].slot, {"is": what, **more}, fds, 0.0)
        self.order.look(0.0, True)

    def ends(self, place: int) -> None:
        worker = self.workers[place]
        assert worker.slot.channel is not None
        worker.slot.channel.close()
        worker.slot.channel, worker.slot.ready = None, False
        self.order.ended(worker.slot, 0.0)
        self.order.look(0.0, True)

    def got(self) -> list[list[str]]:
        return [[str(message["do"]) for message in worker.got()] for worker in self.workers]


def test_turns_are_given_in_the_order_of_the_requests() -> None:
    parent = Parent()
    for place in (1, 0, 2):
        parent.sends(place, "turn")
    assert parent.got() == [[], ["turn"], []]
    parent.sends(1, "changed", b"[]")
    assert parent.got() == [["take"], [], ["take"]]
    assert parent.workers[0].contents == parent.workers[2].contents == [b"[]"]
    parent.sends(0, "taken", number=1)
    assert parent.got() == [[], [], []]
    parent.sends(2, "taken", number=1)
    assert parent.got() == [[], ["everywhere"], []]
    parent.sends(1, "over")
    assert parent.got() == [["turn"], [], []]
    parent.sends(0, "over")                     # nothing has changed
    assert parent.got() == [[], [], ["turn"]]


def test_no_turn_begins_while_a_reload_runs() -> None:
    parent = Parent()
    parent.order.received(parent.workers[0].slot, {"is": "turn"}, [], 0.0)
    parent.order.look(0.0, False)
    assert parent.got() == [[], [], []] and not parent.order.busy
    parent.order.look(0.0, True)
    assert parent.got() == [["turn"], [], []] and parent.order.busy


def test_the_end_of_a_worker_in_its_turn_lets_the_others_look_first() -> None:
    parent = Parent()
    parent.sends(0, "turn")
    parent.sends(1, "turn")
    parent.got()
    parent.ends(0)
    assert parent.got() == [[], ["take"], ["take"]]
    for place in (1, 2):
        parent.sends(place, "taken", number=1)
    assert parent.got() == [[], ["turn"], []]


def test_the_end_of_a_worker_whose_change_is_taken_ends_no_wait() -> None:
    parent = Parent()
    for place in (0, 1):
        parent.sends(place, "turn")
    parent.sends(0, "changed")
    parent.got()
    parent.ends(0)
    parent.sends(1, "taken", number=1)
    assert parent.got() == [[], [], []]
    parent.sends(2, "taken", number=1)
    assert parent.got() == [[], ["turn"], []]


@pytest.mark.parametrize("ready", [True, False])
def test_the_end_of_the_last_worker_that_takes_a_change_ends_the_wait(ready: bool) -> None:
    parent = Parent(2)
    parent.workers[1].slot.ready = ready
    parent.sends(0, "turn")
    parent.sends(0, "changed")
    assert parent.got() == [["turn"] if ready else ["turn", "everywhere"], ["take"]]
    parent.ends(1)
    assert parent.got() == [["everywhere"] if ready else [], []]


def test_a_worker_that_ends_before_its_turn_gets_none() -> None:
    parent = Parent()
    for place in (0, 1, 2):
        parent.sends(place, "turn")
    parent.ends(1)
    parent.got()
    parent.sends(0, "over")
    assert parent.got() == [[], [], ["turn"]]


@pytest.mark.parametrize("changed", [True, False])
def test_a_worker_that_blocks_the_others_is_killed(changed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(Slot, "kill", lambda slot, number: killed.append(slot.place))
    parent = Parent()
    parent.sends(0, "turn")
    if changed:
        parent.sends(0, "changed")
        parent.sends(1, "taken", number=1)
    parent.order.look(LIMIT_S - 1, True)
    assert not killed
    parent.order.look(LIMIT_S, True)
    assert killed == [2 if changed else 0]
    assert "a change of dynamic security" in parent.workers[killed[0]].slot.killed_for


def test_calls_are_passed_to_the_others() -> None:
    parent = Parent()
    parent.sends(1, "pass", b"calls")
    assert parent.got() == [["passed"], ["pass_again"], ["passed"]]
    assert parent.workers[0].contents == parent.workers[2].contents == [b"calls"]
