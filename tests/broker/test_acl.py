"""Test that the compiled access rules give the verdicts of the rules themselves, for every client, topic and filter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cext.testing.broker_api import Rules
from tests.broker.acl_model import Model, Rule
from tests.harness.effort import tries

NAMES = ("ann", "bob", "$a", "$SYS", "$SYS/a", "a/b", "a+b", "#", "a", "x" * 30)
LEVELS = ("", "a", "b", "$a", "$SYS", "ann", "bob", "x" * 30, "abcd", "abcdefgh")
filters = st.lists(st.sampled_from((*LEVELS, "+", "+")), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(("/".join(levels), "/".join([*levels, "#"]), "/".join([*levels[1:], "#"])))).filter(bool)
patterns = st.lists(st.sampled_from((*LEVELS, "+", "%u", "%c", "%u", "%c")), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(("/".join(levels), "/".join([*levels, "#"])))).filter(bool)
access = st.sampled_from(("read", "write", "readwrite", "deny"))
rules = st.lists(st.one_of(
    st.tuples(st.sampled_from((None, None, *NAMES)), st.just("topic"), access, filters),
    st.tuples(st.none(), st.just("pattern"), access, patterns)), max_size=12)
topics = st.lists(st.sampled_from((*LEVELS, "b/x")), min_size=1, max_size=5).map("/".join).filter(bool)
users = st.sampled_from((None, *NAMES))


@pytest.mark.again("properties")
@settings(max_examples=tries(1500, 150))
@given(rules, users, st.sampled_from(NAMES), st.lists(topics, min_size=1, max_size=6), st.lists(filters, min_size=1, max_size=4))
def test_same_verdicts_as_the_rules(given_rules: list[Rule], user: str | None, client_id: str, asked: list[str],
                                    subscribed: list[str]) -> None:
    model, compiled = Model(given_rules), Rules(given_rules)
    name = None if user is None else user.encode()
    for topic in asked:
        for wanted in ("read", "write"):
            assert compiled.allows(name, client_id.encode(), topic.encode(), wanted) == model.allows(user, client_id, topic, wanted), (
                topic, wanted)
    for pattern in subscribed:
        assert compiled.may_subscribe(name, client_id.encode(), pattern.encode()) == model.may_subscribe(user, client_id, pattern), (
            pattern)


def test_many_rules() -> None:
    """Test that the tables of rules grow; each rule is still found, and no other matches."""
    dice = random.Random(4)
    made: list[Rule] = [(f"u{i % 50}", "topic", dice.choice(("read", "write")), f"site/{i}/{'+' if i % 3 else 'x'}/{i % 7}") for i in range(5000)]
    model, compiled = Model(made), Rules(made)
    for _ in range(300):
        i = dice.randrange(5000)
        user, topic = f"u{dice.choice((i, i, i + 1)) % 50}", f"site/{i}/x/{i % 7}"
        for wanted in ("read", "write"):
            assert compiled.allows(user.encode(), b"c", topic.encode(), wanted) == model.allows(user, "c", topic, wanted)


@pytest.mark.parametrize(("rule", "user", "client_id", "topic", "allowed"), [
    (("ann", "topic", "read", "#"), "ann", "c", "$SYS/x", False),
    (("ann", "topic", "read", "$SYS/#"), "ann", "c", "$SYS/x", True),
    ((None, "topic", "read", "#"), "ann", "c", "x", False),
    ((None, "topic", "read", "#"), None, "c", "x", True),
    ((None, "pattern", "read", "%u/#"), None, "c", "/x", False),
    ((None, "pattern", "read", "a/%c"), None, "b/c", "a/b/c", True),
    ((None, "pattern", "read", "a/%cx"), None, "b", "a/bx", False),
    ((None, "pattern", "read", "all"), None, "b+", "all", False),
    ((None, "pattern", "readwrite", "%c/#"), None, "$CONTROL", "$CONTROL/mosq/broker/v1", False),
    ((None, "pattern", "readwrite", "%u/#"), "$SYS", "c", "$SYS/broker/version", False),
    ((None, "pattern", "readwrite", "%u"), "$SYS/broker/version", "c", "$SYS/broker/version", False),
    ((None, "pattern", "readwrite", "a/%c"), None, "$CONTROL", "a/$CONTROL", True),
    ((None, "pattern", "readwrite", "$SYS/%c/#"), None, "broker", "$SYS/broker/version", True),
])
def test_single_rules(rule: Rule, user: str | None, client_id: str, topic: str, allowed: bool) -> None:
    name = None if user is None else user.encode()
    assert Rules([rule]).allows(name, client_id.encode(), topic.encode(), "read") is allowed
    assert Model([rule]).allows(user, client_id, topic, "read") is allowed
