"""Test how many lines of the log connections of other workers and of strangers can cause (mosq/cluster/reach.py)."""

from __future__ import annotations

from mosq.cluster.reach import LINE_S, Lines


def lines_of(most: int) -> tuple[Lines, list[str], list[float]]:
    found: list[str] = []
    now = [1000.0]
    return Lines(lambda _, text: found.append(text), most, lambda: now[0]), found, now


def test_a_line_of_one_kind_about_one_address_comes_once_in_a_while() -> None:
    lines, found, now = lines_of(8)
    for reason in (1, 1, 2):
        lines.put("a", reason, f"{reason}")
    assert found == ["Warning: 1.", "Warning: 2."]
    now[0] += LINE_S
    lines.put("a", 1, "again")
    assert found[2:] == ["Warning: again."]


def test_connections_of_many_addresses_cause_few_lines() -> None:
    lines, found, now = lines_of(8)
    for number in range(5000):
        lines.put(f"{number}", 1, f"{number}")
        lines.put(f"{number % 4}", 1, "once more")
    assert found == [*(f"Warning: {number}." for number in range(8)),
                     "Warning: more connections have failed or were refused, which have no lines of their own."]
    now[0] += LINE_S
    lines.put("5000", 1, "5000")
    assert found[9:] == ["Warning: 5000."]
