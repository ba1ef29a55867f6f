"""Test the tables of `mosq top` without a broker: texts of any content, numbers, columns, order, filters, rates, pages."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mosq.tools.table import width
from mosq.tools.top import listing, summary, views
from mosq.tools.top.listing import Listing
from mosq.tools.top.reading import Reading
from mosq.tools.top.texts import duration, fitted, octets, safe, short
from tests.top.scene import HOT, Model, client


@given(st.text(st.characters(codec=None)), st.integers(0, 60))
def test_any_text_fits_and_controls_nothing(text: str, columns: int) -> None:
    shown = safe(text)
    assert shown.isprintable() or not shown
    assert not any(unicodedata.bidirectional(c) in ("R", "AL", "AN") or unicodedata.combining(c) for c in shown)
    assert width(fitted(shown, columns)) == columns


@pytest.mark.parametrize(("text", "shown"), [
    ("[b]x[/b]", "[b]x[/b]"), ("\x1b[31m", "\\x1b[31m"), ("\u202ea", "\\u202ea"), ("\u05d0", "\\u05d0"), ("e\u0301", "e\\u0301"),
    ("\ud800", "\\ud800"), ("宽", "宽"), ("a\tb\n", "a\\tb\\n"),
])
def test_escapes(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_a_cut_text_ends_with_a_mark() -> None:
    assert (fitted("abcdef", 4), fitted("宽宽宽", 4), fitted("abc", 5)) == ("abc~", "宽~ ", "abc  ")


@pytest.mark.parametrize(("value", "shown"), [
    (None, "-"), (0, "0"), (0.25, "0.2"), (7.5, "7.5"), (9999, "9999"), (12345, "12.3k"), (99999, "100k"), (999_999, "1.0M"), (4.5e6, "4.5M"),
    (2e9, "2.0G"), (10**13, "10.0T"),
])
def test_numbers_take_five_characters(value: float | None, shown: str) -> None:
    assert short(value) == shown
    assert len(shown) <= 5


def test_units() -> None:
    assert (octets(512), octets(45_000), octets(None)) == ("512 B", "45.0 kB", "-")
    assert (duration(59), duration(90061), duration(None)) == ("00:00:59", "1 d 01:01:01", "-")


def test_the_fit_of_80_columns() -> None:
    view = views.made()[0]
    for columns in (*range(1, 60, 7), 80, 81, 100, 132, 240):
        fit = view.fit(columns)
        line = view.line(client("宽" * 100, username="\x1b" * 50, queued=10**9), fit)
        assert width(line) == width(view.head(fit)) <= columns or columns < 15
    assert [one.name for one, _ in view.fit(80)] == ["CLIENT", "USER", "ADDRESS", "MQTT", "IN/S", "OUT/S", "QUEUE", "INFL", "SUBS"]
    assert len(view.fit(240)) == len(view.columns)


def test_each_title_has_room_for_the_mark_of_the_order() -> None:
    for view in views.made():
        assert all(len(one.name) < one.columns for one in view.columns)


def test_the_sort_column_is_always_shown() -> None:
    view = views.made()[0]
    for place in range(len(view.columns)):
        view.sort = place
        assert view.columns[place] in [one for one, _ in view.fit(40)]


def test_each_column_sorts_any_row() -> None:
    odd = [client("a", queued=5), client("b", queued=None), {"clientid": "c", "connected": False, "queued": "x", "username": 3}, client("d", queued=7)]
    reading = Reading({}, 0.0)
    reading.clients = odd
    view = views.made()[0]
    assert [row["clientid"] for row in view.rows(reading, "")] == ["d", "a", "b", "c"]
    view.sort_by(view.sort)
    assert [row["clientid"] for row in view.rows(reading, "")] == ["b", "c", "a", "d"]
    for place, column in enumerate(view.columns):
        assert view.sort_by_name(column.name.lower())
        assert view.sort == place
        for row in view.rows(reading, ""):
            view.line(row, view.fit(200))
    assert not view.sort_by_name("none")


def test_filters() -> None:
    reading = Reading({}, 0.0)
    reading.clients = [client("Sensor-1"), client("x", username="sensors"), client("y", address="10.9.9.9"), client("z", connected=False)]
    view = views.made()[0]

    def found(text: str, with_offline: bool = True) -> set[str]:
        return {row["clientid"] for row in view.rows(reading, text, with_offline)}

    assert found("sensor") == {"Sensor-1", "x"}
    assert found("10.9.") == {"y"}
    assert found("offline") == {"z"}
    assert found("", with_offline=False) == {"Sensor-1", "x", "y"}
    assert found("[") == set()


def test_rates() -> None:
    def stats(n: int, drops: dict[str, int]) -> dict[str, Any]:
        return {"messages": {"publish_in": n, "publish_out": 2 * n, "bytes_in": 100 * n, "bytes_out": 0}, "clients": {"connections": n},
                "process": {"cpuSeconds": n / 100}, "drops": drops}  # fmt: skip

    first = Reading(stats(10, {"memory": 1, "quota": 1}), 5.0)
    assert set(first.rates.values()) == {None}
    second = Reading(stats(30, {"memory": 3, "quota": 9, "loop": 0}), 7.0, first)
    assert second.rates == {"in": 10, "out": 20, "bytes_in": 1000, "bytes_out": 0, "connections": 10, "cpu": pytest.approx(10)}
    assert (list(second.drops.items()), second.drops_rate) == ([("quota", 4.0), ("memory", 1.0)], 5.0)
    assert summary.lines(second, "mqtt://h:1883", 90)[3].rstrip() == "Store -, 0 B waiting  Drops 5/s: quota 4, memory 1"
    for segments, state in ((0, "-"), (1, "ok")):       # a broker without a store has no state of one
        given = Reading({**stats(1, {}), "disk": {"state": "ok", "segments": segments, "waiting_bytes": 0}}, 5.0)
        assert summary.lines(given, "mqtt://h:1883", 90)[3].startswith(f"Store {state}, ")
    restarted = Reading(stats(2, {}), 8.0, second)
    assert set(restarted.rates.values()) == {None}


def test_hot_clients_have_rates() -> None:
    reading = Reading({}, 0.0)
    reading.clients = [client("c00007"), client("c00008"), client("other")]
    reading.take_hot(HOT)
    assert [(row["rateIn"], row["rateOut"]) for row in reading.clients] == [(77, None), (None, 66), (None, None)]
    for view in views.made()[1:]:
        assert len(view.rows(reading, "")) == len(HOT[view.title])
        assert all(view.line(row, view.fit(80)).isprintable() for row in view.rows(reading, ""))


# ---------------------------------------------------------------- pages

def pages(model: Model) -> Any:
    return lambda count, cursor: model({"command": "listClients", "count": count, "cursor": cursor})["data"]


def test_a_turn_asks_for_one_page_and_keeps_the_rows_before() -> None:
    model, made = Model([client(f"c{n:05}") for n in range(10_000)]), Listing()
    turns = 1
    while not made.turn(pages(model), 0.0):
        assert len(made.rows) == turns * listing.PAGE
        assert not made.is_complete
        turns += 1
    assert (turns, len(model.asked), len(made.rows), made.is_cut) == (20, 20, 10_000, False)
    model.clients = model.clients[5_000:]
    assert not made.turn(pages(model), 0.0)
    assert len(made.rows) == 10_000         # a client is removed only when a pass has ended
    assert made.turn(pages(model), math.inf)
    assert len(made.rows) == 5_000


def test_a_huge_list_is_cut() -> None:
    model, made = Model([client(f"c{n:06}") for n in range(30_000)]), Listing()
    assert made.turn(pages(model), math.inf)
    assert (len(made.rows), made.is_cut, len(model.asked)) == (listing.CLIENTS_MAX, True, listing.CLIENTS_MAX // listing.PAGE)


def test_a_list_that_never_ends_is_cut() -> None:
    made = Listing()
    assert made.turn(lambda count, cursor: {"clients": [], "cursor": 1}, math.inf)
    assert made.is_cut
