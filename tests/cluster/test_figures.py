"""Test the figures of workers without a cluster: their text, which of them count, and the overview that is made of them."""

from __future__ import annotations

import json

import pytest

from mosq.cluster.entries import Entry
from mosq.cluster.figures import DOWN_MAX, STEADY_S, Ends, Figures, Link, Routes, ends_of, figures_of, in_force, overview, text_of, text_of_ends
from mosq.server.node.figures import Lag
from mosq.server.workers import slot

LINKS = [{"place": 1, "connected": 1, "routes": 3, "routes_digest": 1 << 60, "own_routes": 2, "own_digest": 9, "sent": 7}]
STATS = {"clients_connected": 4, "clients_total": 6, "subscriptions": 9, "filters": 1}
COUNTED = {"clients": 4, "sessions": 6, "subscriptions": 9}


def owner(token: int, name: str = "a") -> Entry:
    return Entry(token, name, "run")


def test_figures_are_read_as_they_were_written() -> None:
    assert figures_of(text_of(17, LINKS, 250, STATS, 70)) == Figures(17, Routes(2, 9), {1: Link(True, Routes(3, 1 << 60))}, 250, COUNTED, 70)
    assert figures_of(text_of(17, [], 0, STATS, 70)) == Figures(17, Routes(0, 0), {}, 0, COUNTED, 70)


def test_figures_of_an_earlier_version_have_no_counts() -> None:
    earlier = json.dumps({key: value for key, value in json.loads(text_of(17, [], 0, STATS, 70)).items() if key != "counts"})
    assert figures_of(earlier).counts == {"clients": 0, "sessions": 0, "subscriptions": 0}


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"token": 1, "routes": [1], "links": {}, "lag_ms": 0}',
                                  '{"token": 1, "routes": [1, 2], "links": {"1": [1]}, "lag_ms": 0}',
                                  '{"token": 1, "routes": [1, 2], "links": {}, "lag_ms": 0, "counts": 7}', "[" * 50_000,
                                  '{"token": 1, "routes": [1, 2], "links": {}, "lag_ms": 1e999}'])
def test_damaged_figures_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        figures_of(text)


def test_the_ends_of_a_worker_are_read_as_they_were_written() -> None:
    ends = Ends("r1", "a", 3, "Worker 2 (process 7) was ended by signal 11")
    assert ends_of(text_of_ends(ends)) == ends
    assert [ends_of(text) for text in ("", "7", "{}", "[]", "[" * 50_000, '{"run": "", "node": "", "times": 1e999}')] == [None] * 6


def test_operators_and_parents_take_the_same_workers_for_steady() -> None:
    assert STEADY_S == slot.STEADY_S


def test_only_figures_under_the_token_in_force_count() -> None:
    texts = {0: text_of(17, LINKS, 0, STATS, 70), 1: text_of(3, [], 0, STATS, 70), 2: "{", 3: text_of(5, [], 0, STATS, 70)}
    assert set(in_force([owner(17), owner(4), owner(1), None, owner(6)], texts)) == {0}


def test_an_overview_counts_links_and_names_those_that_are_down() -> None:
    def links(*up: int) -> list[dict[str, int]]:
        return [{**LINKS[0], "place": place, "connected": int(place in up)} for place in (0, 1, 2)]

    found = overview({"b": "lives", "a": "leaves"}, [owner(17), owner(4, "b"), None],
                     {0: text_of(17, links(1)[1:], 0, STATS, 70), 1: text_of(4, links()[::2], 40, STATS, 70)})
    # nothing is expected of a link to a worker without a node
    assert found == {"nodes": {"a": "leaves", "b": "lives"}, "workers": ["a", "b", None], "links_up": 1, "links_down": 1, "down": [[2, 1]],
                     "lag_ms": {"1": 0, "2": 40}, "counts": {name: 2 * number for name, number in COUNTED.items()}, "clients": {"1": 4, "2": 4}}


def test_an_overview_names_a_bounded_number_of_links() -> None:
    owners = [owner(1) for _ in range(12)]
    down = [{**LINKS[0], "place": place, "connected": 0} for place in range(12)]
    found = overview({}, owners, {worker: text_of(1, [one for one in down if one["place"] != worker], 0, STATS, 70) for worker in range(12)})
    assert (found["links_down"], len(found["down"])) == (12 * 11, DOWN_MAX)


def test_a_store_lags_while_something_waits_and_no_batch_is_committed() -> None:
    lag = Lag()
    assert lag.look(10.0, 0, 5) == 0
    assert lag.look(12.0, 100, 5) == 2
    assert lag.look(14.0, 300, 5) == 4
    assert lag.look(15.0, 300, 6) == 0          # one was committed
    assert lag.look(16.5, 10, 6) == 1.5
    assert lag.look(20.0, 0, 6) == 0
