"""Test that bridges that may send messages in a circle are reported, and no others."""

import pytest

from mosq.config.rings import meet

FIVE = "bridge_protocol_version mqttv50"
GUARD = "bridge_loop_guard true"


@pytest.fixture
def warned(read):
    def warned(first, second, address="h"):
        lines = [line for name, lines, at in (("a", first, "h"), ("b", second, address)) for line in (f"connection {name}", f"address {at}", *lines)]
        found = read("listener 1883", "allow_anonymous true", *lines).warnings
        assert all("'a' and 'b' (" in one and "(h:1883)" in one and "circulate for ever" in one for one in found)
        return len(found)

    return warned


@pytest.mark.parametrize(("first", "second"), [
    (["topic # both"], ["topic # both"]), (["topic # in"], ["topic a/b out"]), (["topic a/+ out"], ["topic +/b in"]),
    (["topic # both", FIVE, GUARD], ["topic # both"]), (["topic # both", FIVE, GUARD], ["topic # both", FIVE]),
    (["topic x in 0 l/ r/"], ["topic # out 0 l/ r/"]), (["topic a out", 'topic "" in 0 here there'], ["topic b in", 'topic "" out 0 here there']),
])
def test_bridges_that_may_form_a_ring_cause_a_warning(warned, first, second):
    assert warned(first, second) == 1
    assert warned(second, first, "x h y") == 1


@pytest.mark.parametrize(("first", "second", "address"), [
    (["topic # both", FIVE, GUARD], ["topic # both", FIVE, GUARD], "h"), (["topic # both"], ["topic # both"], "h:1884"), (["topic # both"], ["topic # both"], "other"),
    (["topic # in"], ["topic # in"], "h"), (["topic # out"], ["topic # out"], "h"), (["topic a/# both"], ["topic b/# both"], "h"),
    (["topic # both"], ["topic $SYS/# both"], "h"), (["topic # in 0 l/ r/"], ["topic # out 0 l/ s/"], "h"), (["topic # in 0 l/ r/"], ["topic # out 0 m/ r/"], "h"),
])
def test_bridges_without_a_ring_cause_no_warning(warned, first, second, address):
    assert warned(first, second, address) == 0


@pytest.mark.parametrize(("one", "other", "does"), [
    ("a", "a", True), ("a", "b", False), ("a", "a/b", False), ("a", "a/#", True), ("a/#", "a/b/c", True), ("+", "a", True), ("+/b", "a/+", True),
    ("+", "a/b", False), ("#", "$SYS/a", False), ("+/a", "$SYS/a", False), ("$SYS/#", "$SYS/a", True), ("a/+/c", "a/b/d", False), ("", "+", True), ("/", "+", False),
])
def test_filters_meet(one, other, does):
    assert meet(one, other) == meet(other, one) == does


def test_the_search_for_rings_stops_at_very_many_lines(read):
    """Test lines that would form a circle."""
    lines = [f"topic t{i} both" for i in range(300)]
    assert not read("listener 1883", "allow_anonymous true", "connection a", "address h", *lines, "connection b", "address h", *lines).warnings
