"""Test the forms of questions between nodes: a value arrives as it was sent, and nothing of another form arrives."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from mosq.cluster.questions import forms
from mosq.cluster.questions.forms import ANSWER_BYTES, ARGUMENTS, VALUES, NoAnswerError, answer_of, question_of, read_answer, read_question
from mosq.records import (
    HotName,
    HotNames,
    SessionDetail,
    SessionSlice,
    SessionSubscription,
    SlowClient,
    SlowSlice,
    SubscriptionListing,
    SubscriptionRow,
)

OFFLINE = {"id": "täglich", "username": None, "connected": False, "subscriptions": 1, "pending": 2, "waiting": 3, "inflight": 4, "inbox": 5, "queue_bytes": 2**40,
           "expiry_s": 600, "will": False, "ends_s": 4}
ONLINE = {**OFFLINE, "connected": True, "username": "u\x01\"\\", "expiry_s": None, "version": 5, "keepalive": 60, "port": 1, "listener": 1883, "unsent_bytes": 0,
          "window": 20, "address": "::1", "websockets": False, "tls": True}
SLOW = SlowClient("a", 1, True, False, 2, 3, None, 4, 5)
NAME = HotName((b"\xff\0", 70000), "a", 70000, 2**63, 1, 9, None)
DELAY = NAME._replace(client=SLOW)
LINK = dict.fromkeys(("place", "connected", "routes", "routes_digest", "own_routes", "own_digest", "sent", "unacknowledged", "unacknowledged_bytes", "queued",
                      "queued_bytes", "dropped", "latency_us", "latency_max_us", "latency_n", "latency_sum_us"), 1)
SPEC = {"kind": "topic", "what": b"a/#", "shown": "a/#", "owner": 2**60, "payload": 128, "rate": 1000, "seconds": 60, "most": 2**40}
ADDRESS = {**SPEC, "kind": "address", "what": b"", "network": bytes(16), "bits": 128, "port": 1883}
# name, arguments, answer
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("kick", ("a\u2028",), True),
    ("session", ("a", 5), SessionDetail(ONLINE, [SessionSubscription("a/#", 255, 2**28)], 3)), ("session", ("a", 0), None),
    ("sessions", (2**32 - 1, 1000), SessionSlice([OFFLINE, {name: one for name, one in ONLINE.items() if name != "ends_s"}], 7)),
    ("subscriptions", (100_000,), SubscriptionListing([SubscriptionRow("a", "b/+", 2)], 1)),
    ("walk", (), SlowSlice([SLOW], 0, 1, 2, 3)), ("link_figures", (), [LINK]),
    ("hot", ("topics",), HotNames(64, 30, (1, 2), ([NAME], []))), ("hot", ("delays",), HotNames(64, 30, (1, 2), ([], [DELAY]))), ("hot", ("receivers",), None),
    ("bridge_states", (), [{"name": "b", "state": "up", "address": "h:1", "connectedFor": None, "nextTryIn": 3, "queued": 4}]),
    ("trace_begin", (1, 5, SPEC), None), ("trace_begin", (1, 5, ADDRESS), None), ("trace_end", (1, 5), None),
    ("trace_list", (), [{"trace": 1, "kind": "topic", "what": "a", "clientid": "r"}]),
    ("trace_news", (5, 1, [b'{"event":"sent","topic":"\xc3\xa4"}', b"{}"], (1, 2, 3)), None),
]
IDS = [f"{name}-{n}" for n, (name, _, _) in enumerate(CASES)]
PLACE = 1


def test_each_question_has_a_case() -> None:
    assert {name for name, _, _ in CASES} == ARGUMENTS.keys() == VALUES.keys()


@pytest.mark.parametrize(("name", "args", "value"), CASES, ids=IDS)
def test_a_question_and_its_answer_arrive_as_they_were(name: str, args: tuple[Any, ...], value: Any) -> None:
    assert read_question(question_of(name, args), PLACE) == (name, args)
    found = read_answer(name, args, answer_of(name, args, lambda *_: value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(("name", "args", "value"), CASES, ids=IDS)
def test_members_of_a_later_version_are_left_out(name: str, args: tuple[Any, ...], value: Any) -> None:
    def later(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: later(some) for key, some in one.items()} | {"a later one": [1]}
        return [later(some) for some in one] if isinstance(one, list) else one

    content = json.loads(answer_of(name, args, lambda *_: value))
    assert read_answer(name, args, json.dumps(later(content)).encode()) == value


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all parts of a value of JSON."""
    found = [at]
    if isinstance(value, dict):
        found += [path for key, one in value.items() for path in places(one, (*at, key))]
    elif isinstance(value, list):
        found += [path for n, one in enumerate(value) for path in places(one, (*at, n))]
    return found


STRANGE = [None, True, False, 0, -1, 1, 2**32, 2**64, 1.5, "", "a", "x" * 65536, "\ud800", [], [[]], {}, {"a": 1}, [1, 2, 3], {"value": None}]


def damaged(value: Any, random_one: random.Random) -> Any:
    """Return a copy in which one part was replaced or removed."""
    made = copy.deepcopy(value)
    path = random_one.choice(places(made))
    if not path:
        return random_one.choice(STRANGE)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    if random_one.random() < 0.3:
        del holder[path[-1]]
    else:
        holder[path[-1]] = random_one.choice(STRANGE)
    return made


@pytest.mark.parametrize(("name", "args", "value"), CASES, ids=IDS)
def test_a_damaged_question_or_answer_is_refused_or_has_its_form(name: str, args: tuple[Any, ...], value: Any) -> None:
    """A value that is not refused can be sent again, and arrives as it was."""
    random_one = random.Random(name)
    question, answer = json.loads(question_of(name, args)), json.loads(answer_of(name, args, lambda *_: value))
    for _ in range(300):
        try:
            asked, given = read_question(json.dumps(damaged(question, random_one)).encode(), PLACE)
        except ValueError:
            pass
        else:
            assert read_question(question_of(asked, given), PLACE) == (asked, given)
        try:
            found = read_answer(name, args, json.dumps(damaged(answer, random_one)).encode())
        except NoAnswerError:
            continue
        except OSError:
            assert name == "trace_begin"
            continue
        assert read_answer(name, args, answer_of(name, args, lambda *_, found=found: found)) == found      # type: ignore[misc]


@pytest.mark.parametrize(("name", "args", "value"), CASES, ids=IDS)
def test_bytes_that_are_damaged_are_refused_or_read(name: str, args: tuple[Any, ...], value: Any) -> None:
    random_one = random.Random(name)
    question, answer = question_of(name, args), answer_of(name, args, lambda *_: value)
    for _ in range(300):
        for content in (bytearray(question), bytearray(answer)):
            at = random_one.randrange(len(content))
            content[at:at + random_one.randrange(4)] = random_one.choice([b"", b"\0", b"\xff", b'"', b"[", b"]", b"{", b",", b"9" * 30, b"\\ud800", b"1e999", b"-0"])
            try:
                read_question(bytes(content), PLACE)
            except ValueError:
                pass
            try:
                read_answer(name, args, bytes(content))
            except (NoAnswerError, OSError):
                pass


@pytest.mark.parametrize("content", [b"[" * 1_000_000, b'{"value":' * 100_000, b'{"value":' + b"9" * 1_000_000 + b"}", b"\x80\x04]\x94."])
def test_content_that_costs_much_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_question(content, PLACE)
    with pytest.raises(NoAnswerError):
        read_answer("kick", ("a",), content)


def test_a_worker_cannot_begin_or_end_the_trace_of_another_one() -> None:
    for name, args, _ in CASES:
        if name in forms.OF_READER:
            with pytest.raises(ValueError, match="another form"):
                read_question(question_of(name, args), PLACE + 1)


@pytest.mark.parametrize("name", ["clients", "stop", "__init__", "answer_question", "process", "write"])
def test_an_unknown_question_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="another form"):
        read_question(json.dumps([name, []]).encode(), PLACE)


def test_a_listing_that_is_too_large_has_fewer_rows() -> None:
    def listed(name: str, args: tuple[Any, ...]) -> SubscriptionListing:
        return SubscriptionListing([SubscriptionRow("i" * 50, "f" * 50, 1)] * args[0], 100_000 - args[0])

    content = answer_of("subscriptions", (100_000,), listed)
    found = read_answer("subscriptions", (100_000,), content)
    assert len(content) <= ANSWER_BYTES
    assert len(found.rows) + found.left_out == 100_000 and len(found.rows) >= 25_000


def test_an_answer_that_cannot_be_smaller_is_none() -> None:
    content = answer_of("trace_list", (), lambda *_: ["x" * ANSWER_BYTES])
    with pytest.raises(NoAnswerError):
        read_answer("trace_list", (), content)


def test_only_a_trace_reports_an_error() -> None:
    def fails(*_: Any) -> None:
        raise OSError(11, "busy")

    with pytest.raises(OSError, match="11"):
        read_answer("trace_begin", (1, 5, SPEC), answer_of("trace_begin", (1, 5, SPEC), fails))
    with pytest.raises(NoAnswerError):
        read_answer("kick", ("a",), answer_of("kick", ("a",), fails))
    with pytest.raises(NoAnswerError):
        read_answer("kick", ("a",), answer_of("kick", ("a",), lambda *_: 1 // 0))
