"""Play random sequences of several clients (tests/fuzz/sessions), and check that the invariants of that fuzzer can fail."""

from __future__ import annotations

import pytest

from tests.fuzz.sessions.__main__ import attempt, kind_of, main, steps_of
from tests.fuzz.sessions.checks import Known, Violation, matches, resolved
from tests.fuzz.sessions.play import CONFIGS, acknowledged, first_error
from tests.fuzz.sessions.shrink import shrink
from tests.harness.effort import tries
from tests.harness.packets import Connect, Publish, Puback, Subscribe
from tests.harness.properties import P


@pytest.mark.again("hostile")
@pytest.mark.parametrize("config", CONFIGS)
def test_the_invariants_hold_in_random_sequences(config: str) -> None:
    history = [steps_of(seed, config) for seed in range(1, 1 + tries(150, 25))]
    assert attempt(config, history, None) == ""


def test_a_seed_gives_the_same_steps() -> None:
    assert steps_of(7, "plain") == steps_of(7, "plain") != steps_of(8, "plain")


def test_a_message_without_subscription_is_a_violation() -> None:
    known = Known()
    known.subscribe("a", ["a/+", "$share/g/b"])
    known.published |= {("a/b", b"1"), ("b", b"1"), ("c", b"1"), ("mounted/a/b", b"2")}
    known.check("a", "", Publish("a/b", b"1"), {})
    known.check("a", "", Publish("b", b"1"), {})
    known.check("a", "mounted/", Publish("a/b", b"2"), {})
    with pytest.raises(Violation, match="not subscribed"):
        known.check("a", "", Publish("c", b"1"), {})
    with pytest.raises(Violation, match="not subscribed"):
        known.check("b", "", Publish("a/b", b"1"), {})
    with pytest.raises(Violation, match="never published"):
        known.check("a", "", Publish("a/b", b"2"), {})


def test_an_alias_that_was_not_set_is_a_violation() -> None:
    aliases: dict[int, str] = {}
    assert resolved(Publish("a", props=((P.TOPIC_ALIAS, 1),)), aliases) == "a"
    assert resolved(Publish("", props=((P.TOPIC_ALIAS, 1),)), aliases) == "a"
    with pytest.raises(Violation, match="alias 2"):
        resolved(Publish("", props=((P.TOPIC_ALIAS, 2),)), aliases)


@pytest.mark.parametrize(("filter_", "topic", "is_match"), [
    ("#", "a/b", True), ("#", "$x", False), ("+/b", "$x/b", False), ("$x/+", "$x/b", True), ("a/#", "a", True), ("a/+", "a", False),
    ("+", "/", False), ("+/+", "/", True), ("$share/g/a/#", "a/b", True), ("$share/g/#", "$x", False), ("a", "a/b", False)])
def test_the_slow_match_follows_the_standard(filter_: str, topic: str, is_match: bool) -> None:
    assert matches(filter_, topic) is is_match


def test_a_message_from_nowhere_is_found_and_made_shorter(tmp_path, monkeypatch, capsys) -> None:
    """The model forgets the filter `a`, so the broker appears to send a message without a subscription."""
    steps = [("open", 0, "tcp", 4, "a", Connect("a").encode(4).hex(), ""), ("later", 1), ("sync", 0),
             ("send", 0, (Subscribe(1, (("a", 0),)).encode(4) + Publish("a", b"1").encode(4)).hex(), [3], True, [], [["a", "31"]]),
             ("later", 1), ("sync", 0)]
    monkeypatch.setattr("tests.fuzz.sessions.__main__.steps_of", lambda seed, config: steps)
    assert main(["--config", "plain", "--sequences", "1", "--dir", str(tmp_path)]) == 1
    assert "not subscribed: client 'a' got a message of 'a'" in capsys.readouterr().out
    [path] = tmp_path.iterdir()
    assert main(["--play", str(path)]) == 1
    assert '"fails again": true' in path.read_text() and path.read_text().count('"later"') == 0


def test_shrinking_keeps_what_fails() -> None:
    assert shrink(list(range(100)), lambda items: 17 in items and 63 in items) == [17, 63]
    assert shrink([1, 2, 3], lambda items: False) == [1, 2, 3]


def test_reports_of_sanitizers_are_named_by_their_function() -> None:
    log = "==1==ERROR: AddressSanitizer: heap-use-after-free on address\n    #0 0x7f in queue_pop /x/cext/session/queue.c:12\n"
    assert kind_of(f"crash: status -6: {first_error(log)}") == "crash in queue_pop"


def test_acknowledgements_follow_their_letters() -> None:
    assert acknowledged(1, 5, "a", 4) == Puback(5).encode(4) == acknowledged(2, 5, "w", 4)
    assert acknowledged(1, 5, "n", 4) == b"" and acknowledged(1, 5, "d", 5) == Puback(5).encode(5) * 2
    assert acknowledged(1, 5, "e", 5) == Puback(5, 0x80).encode(5)
