"""Test which topics and clients count as hot, and which clients as slow, with real clients of a data plane."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cext.testing.broker_api import WINDOW_US, HotWindows
from mosq.records import HotName, HotNames
from mosq.server.admin import hot
from mosq.server.admin.hot import Hot
from tests.harness.packets import Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire

WAIT_S = 60
LONG = "é" * 32_767            # 65,534 bytes, the most of a topic or a client id that is not odd


def plane_of(period: int, **settings: Any) -> Plane:
    return Plane(settings={"observe_messages": period, **settings}, allow_anonymous=True)


def client(plane: Plane, name: str, *filters: tuple[str, int]) -> Wire:
    wire = plane.connect(Connect(name))
    wire.read_packet()
    if filters:
        wire.send(Subscribe(1, filters))
        assert isinstance(wire.read_packet(), Suback)
    return wire


def found_in(plane: Plane, is_there: Callable[[dict[str, Any]], bool] = lambda found: True) -> dict[str, Any]:
    """Ask without the sharing of answers until they are as expected."""
    end = time.monotonic() + WAIT_S
    while True:
        found = Hot(lambda: plane.engine).read()
        if is_there(found):
            return found
        assert time.monotonic() < end, found


def counts(plane: Plane, what: str) -> dict[str, int]:
    names = plane.engine.hot(what)
    assert names is not None
    return {text: count for text, _, count, _, _ in hot.sums(names)}


def publish(wire: Wire, reader: Wire | None, *topics: str, payload: bytes = b"12345") -> None:
    wire.send(*[Publish(topic, payload) for topic in topics])
    for _ in topics if reader is not None else ():
        assert reader is not None
        assert isinstance(reader.read_packet(), Publish)


def test_each_message_counts_for_its_topic_and_its_clients() -> None:
    with plane_of(1) as plane:
        reader, writer, other = client(plane, "reader", ("#", 0)), client(plane, "writer"), client(plane, "other")
        publish(writer, reader, *["a/b/c"] * 30, *["a/b/d"] * 10, "x")
        publish(other, reader, *["a/b/c"] * 5)
        assert counts(plane, "topics") == {"a/b/c": 35, "a/b/d": 10, "x": 1}
        assert counts(plane, "publishers") == {"writer": 41, "other": 5}
        assert counts(plane, "receivers") == {"reader": 46}
        found = found_in(plane)
        assert (found["sampled"], [row["topic"] for row in found["topics"]]) == (1, ["a/b/c", "a/b/d", "x"])
        assert [row["client_id"] for row in found["publishers"]] == ["writer", "other"]
        assert 0 < found["window_s"] <= WAIT_S
        first = found["topics"][0]
        assert first["error"] == 0
        assert abs(first["bytes_per_second"] / first["messages_per_second"] - 5) < 0.01
        assert [(row["prefix"], row["levels"]) for row in found["prefixes"]] == [("a", 1), ("a/b", 2), ("x", 1)]
        assert found["prefixes"][0]["messages_per_second"] >= found["topics"][0]["messages_per_second"]


def test_a_message_for_many_counts_some_of_them_for_all() -> None:
    with plane_of(1) as plane:
        readers = [client(plane, f"reader{i}", ("t", 0)) for i in range(30)]
        publish(client(plane, "writer"), None, *["t"] * 200)
        for reader in readers:
            for _ in range(200):
                reader.read_packet()
        found = counts(plane, "receivers")
        assert sum(found.values()) == 30 * 200
        assert len(found) > 8


def test_the_chosen_member_of_a_shared_group_counts() -> None:
    with plane_of(1) as plane:
        one, two = client(plane, "one", ("$share/g/t", 0)), client(plane, "two", ("$share/g/t", 0))
        publish(client(plane, "writer"), None, *["t"] * 10)
        for _ in range(5):
            one.read_packet()
            two.read_packet()
        assert counts(plane, "receivers") == {"one": 5, "two": 5}


def test_rates_of_sampled_messages_are_near_the_truth() -> None:
    with plane_of(10) as plane:
        reader, writer = client(plane, "reader", ("#", 0)), client(plane, "writer")
        for _ in range(40):
            publish(writer, reader, *["hot"] * 90, *["cold"] * 10)
        names = plane.engine.hot("topics")
        assert names is not None
        found = {text: count * names.period for text, _, count, _, _ in hot.sums(names)}
        # 4000 messages, about 400 samples: six standard deviations of a binomial count are 360 messages
        assert abs(found["hot"] - 3600) < 600
        assert found.get("cold", 0) < 1000


def test_nothing_is_sampled_while_the_option_is_off() -> None:
    with plane_of(0) as plane:
        reader, writer = client(plane, "reader", ("#", 0)), client(plane, "writer")
        publish(writer, reader, "a")
        assert plane.engine.hot("topics") is None
        found = found_in(plane)
        assert (found["sampled"], found["topics"], found["prefixes"], found["publishers"], found["receivers"]) == (0, [], [], [], [])
        assert "observe_messages" in found["hint"]
        assert found["slow"] == []


def test_a_client_that_does_not_acknowledge_is_slow() -> None:
    with plane_of(0, max_inflight_messages=2) as plane:
        reader, writer = client(plane, "reader", ("t", 1)), client(plane, "writer")
        first = [Publish("t", b"12345", qos=1, mid=mid) for mid in range(1, 6)]
        writer.send(*first)
        for _ in first:
            assert isinstance(writer.read_packet(), Puback)
        [row] = found_in(plane, lambda found: bool(found["slow"]) and found["slow"][0]["queue_age_seconds"])["slow"]
        assert {name: row[name] for name in ("client_id", "connected", "delay_seconds", "queue_length", "queue_bytes", "unsent_bytes", "inflight")} == {
            "client_id": "reader", "connected": True, "delay_seconds": None, "queue_length": 3, "queue_bytes": 25, "unsent_bytes": 0, "inflight": 2}
        age = row["queue_age_seconds"]
        assert found_in(plane, lambda found: found["slow"][0]["queue_age_seconds"] > age)
        for _ in range(5):
            got = reader.read_packet()
            reader.send(Puback(got.mid))
        assert found_in(plane, lambda found: found["slow"] == [])


def test_queues_of_all_sessions_are_summed_also_without_a_connection() -> None:
    with plane_of(0, max_inflight_messages=2) as plane:
        away = plane.connect(Connect("away", clean=False))
        away.read_packet()
        away.send(Subscribe(1, (("t", 1),)))
        assert isinstance(away.read_packet(), Suback)
        away.send(Disconnect())
        away.expect_closed()
        client(plane, "reader", ("t", 1))
        writer = client(plane, "writer")
        writer.send(*[Publish("t", b"12345", qos=1, mid=mid) for mid in range(1, 6)])
        for _ in range(5):
            assert isinstance(writer.read_packet(), Puback)
        found = found_in(plane, lambda found: found["inflight"] == 2)
        assert {name: found[name] for name in ("queued", "inflight", "queue_bytes")} == {"queued": 5 + 3, "inflight": 2, "queue_bytes": 50}
        assert [row["client_id"] for row in found["slow"]] == ["reader"]


def test_the_walk_over_many_sessions_counts_each_one_once() -> None:
    with plane_of(0) as plane:
        for i in range(2500):
            wire = plane.connect(Connect(f"away-{i}", clean=False))
            wire.read_packet()
            if not i:
                wire.send(Subscribe(1, (("t", 1),)))
                assert isinstance(wire.read_packet(), Suback)
            wire.close()
        writer = client(plane, "writer")
        writer.send(*[Publish("t", b"x", qos=1, mid=mid) for mid in range(1, 8)])
        for _ in range(7):
            assert isinstance(writer.read_packet(), Puback)
        assert found_in(plane)["queued"] == 7


def test_a_retained_message_is_not_the_age_of_a_queue() -> None:
    with plane_of(0, max_inflight_messages=1) as plane:
        writer = client(plane, "writer")
        writer.send(Publish("t", b"x", qos=1, mid=1, retain=True))
        writer.read_packet()
        client(plane, "reader", ("t", 1)).read_packet()
        [row] = found_in(plane, lambda found: bool(found["slow"]))["slow"]
        assert (row["inflight"], row["queue_age_seconds"]) == (1, None)


def test_the_delay_of_a_waiting_message_counts_before_it_is_sent() -> None:
    with plane_of(1, max_inflight_messages=1) as plane:
        reader, writer = client(plane, "reader", ("t", 1)), client(plane, "writer")
        writer.send(Publish("t", b"a", qos=1, mid=1), Publish("t", b"b", qos=1, mid=2))
        first = reader.read_packet()
        [row] = found_in(plane, lambda found: bool(found["slow"]) and (found["slow"][0]["delay_seconds"] or 0) > 0.05)["slow"]
        assert (row["client_id"], row["queue_length"], row["inflight"]) == ("reader", 1, 1)
        reader.send(Puback(first.mid))
        reader.read_packet()
        assert found_in(plane)["slow"][0]["delay_seconds"] > 0.05


def test_clients_that_leave_stay_in_the_sketch_without_a_queue() -> None:
    with plane_of(1) as plane:
        reader, writer = client(plane, "reader", ("t", 0)), client(plane, "writer")
        publish(writer, reader, *["t"] * 20)
        found_in(plane, lambda found: any(row["delay_seconds"] for row in found["slow"]))
        reader.close()
        writer.close()
        found = found_in(plane, lambda found: not any(row["connected"] for row in found["slow"]))
        assert [row["client_id"] for row in found["publishers"]] == ["writer"]
        [row] = found["slow"]
        assert (row["client_id"], row["queue_length"], row["unsent_bytes"], row["queue_age_seconds"]) == ("reader", 0, 0, None)


def test_long_names_with_markup_are_cut_within_no_character() -> None:
    with plane_of(1) as plane:
        name = "<b>&\"'\u202e" + LONG[:32_700]
        reader, writer = client(plane, name, ("#", 0)), client(plane, "w" + LONG)
        publish(writer, reader, LONG, "<script>/\u202e")
        found = found_in(plane)
        by_length = {len(row["topic"]): row for row in found["topics"]}
        assert by_length[128]["topic"] == LONG[:128]
        assert by_length[128]["topic_bytes"] == len(LONG.encode())
        assert by_length[10] == by_length[10] | {"topic": "<script>/\u202e"}
        assert "topic_bytes" not in by_length[10]
        [row] = found["publishers"]
        assert (row["client_id"], row["client_id_bytes"]) == ("w" + LONG[:127], 1 + len(LONG.encode()))
        [row] = found["receivers"]
        assert row["client_id"] == name.encode()[:256].decode("utf-8", "ignore")


def test_a_hundred_thousand_topics_hide_no_hot_one() -> None:
    with plane_of(1) as plane:
        reader, writer = client(plane, "reader", ("end", 0)), client(plane, "writer")
        for start in range(0, 100_000, 1000):
            publish(writer, None, *(f"site/{i}" for i in range(start, start + 1000)), *["hot/one"] * 20)
        publish(writer, reader, "end")
        found = found_in(plane)
        # "end" came in place of a cold name, and is left out as all of them
        assert [row["topic"] for row in found["topics"]] == ["hot/one"]
        total = sum(counts(plane, "publishers").values())
        names = plane.engine.hot("topics")
        assert names is not None
        assert total == 102_001
        for window in names.windows:
            assert len(window) <= 512
        assert next(row["prefix"] for row in found["prefixes"]) == "site"


def test_a_reload_ends_and_begins_the_sketches() -> None:
    with plane_of(1, max_inflight_messages=1) as plane:
        reader, writer = client(plane, "reader", ("#", 1)), client(plane, "writer")
        for _ in range(3):
            writer.send(Publish("a", b"x", qos=1, mid=1), Publish("a", b"x", qos=1, mid=2))      # one of them waits with its probe
            for _ in range(2):
                assert isinstance(writer.read_packet(), Puback)
            assert counts(plane, "topics") == {"a": 2}
            plane.engine.reload({**plane.settings, "observe_messages": 0}, plane.listeners, plane.securities)
            assert plane.engine.hot("topics") is None
            writer.send(Publish("b", b"x", qos=1, mid=3))
            assert isinstance(writer.read_packet(), Puback)
            plane.engine.reload({**plane.settings, "observe_messages": 1}, plane.listeners, plane.securities)
            assert counts(plane, "topics") == counts(plane, "delays") == {}
        reader.close()


def test_a_sketch_covers_at_most_two_windows() -> None:
    with plane_of(1) as plane:
        reader, writer = client(plane, "reader", ("#", 0)), client(plane, "writer")
        publish(writer, reader, "a")
        names = plane.engine.hot("topics")
        assert names is not None
        assert sorted(len(window) for window in names.windows) == [0, 1]
        assert 0 < names.window_us <= 60_000_000


# ---------------------------------------------------------------- windows, with the clock of the test

STEPS_US = st.one_of(st.sampled_from((0, 1, WINDOW_US - 1, WINDOW_US, WINDOW_US + 1, 2 * WINDOW_US - 1, 2 * WINDOW_US, 3 * WINDOW_US, 100 * WINDOW_US)),
                     st.integers(0, 3 * WINDOW_US))


@given(st.one_of(st.sampled_from((0, 1, WINDOW_US - 1, WINDOW_US)), st.integers(0, 10**12)),
       st.lists(st.tuples(STEPS_US, st.one_of(st.none(), st.binary(max_size=1))), max_size=60))
def test_windows_are_those_of_a_list_of_all_messages(since_us: int, steps: list[tuple[int, bytes | None]]) -> None:
    windows = HotWindows(since_us)
    now_us, messages = since_us, list[tuple[int, bytes]]()
    for step_us, name in steps:
        now_us += step_us
        if name is not None:
            windows.add(name, now_us)
            messages.append((now_us // WINDOW_US, name))
            continue
        number = now_us // WINDOW_US
        expected = [dict(Counter(name for window, name in messages if window == wanted)) for wanted in (number, number - 1)]
        assert windows.read(now_us) == (*expected, now_us - max((number - 1) * WINDOW_US, since_us))


def test_rates_are_those_of_the_time_since_the_beginning() -> None:
    name = HotName((b"a", 1), "a", 1, 30, 0, 60, None)
    for window_us, rate in ((1_000_000, 300.0), (15_000_000, 20.0), (60_000_000, 5.0)):
        names = HotNames(10, window_us, (0, 0), ([name], []))
        assert list(hot.rows(names, "topic")) == [{"topic": "a", "messages_per_second": rate, "bytes_per_second": 2 * rate, "error": 0}]
        assert hot.total(names) == rate
