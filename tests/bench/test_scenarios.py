"""Test each scenario with mosq and small numbers: each message arrives once and in order, and no state is left."""

from __future__ import annotations

import time
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.client import topic_matches_sub

from mosq.tools.bench.runner import Stopped
from mosq.tools.bench.scenarios import SCENARIOS, Scene, window_of
from mosq.tools.bench.spec import Spec
from mosq.tools.bench.topics import Corpus
from tests.bench.fake import Fake
from tests.harness.broker import Broker

SMALL = {"publishers": 4, "subscribers": 3, "clients": 12, "topics": 200, "filters": 300, "messages": 200, "rounds": 2,
         "hold": 0.0, "kind": "plus", "sizes": (16, 5000, 300_000), "window": 500, "stall": 5.0}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker("max_queued_messages 0\nsys_interval 0\n") as running:
        yield running


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_message_of_a_scenario_arrives(bench, broker: Broker, scenario: str, version: int) -> None:
    assert broker.process is not None
    qos = 2 if version == 5 else 1
    result = bench(scenario, broker.port, version=version, qos=qos, broker_pid=broker.process.pid, **SMALL)
    assert (result.complete, result.why, result.exact) == (True, "", True)
    for phase in result.phases:
        assert phase.complete and phase.per > 0 and phase.seconds > 0 and phase.foreign == 0
        assert phase.broker["rss_after_bytes"] and phase.generator["cpu_s"] > 0


@pytest.mark.parametrize("scenario", ["fan-in", "fan-out", "pairs", "shared", "offline", "retained"])
def test_counts(bench, broker: Broker, scenario: str) -> None:
    """Test with QoS 0, which `offline` raises to 1."""
    result = bench(scenario, broker.port, **SMALL)
    counts = {phase.name: (phase.published, phase.delivered) for phase in result.phases}
    assert counts == {
        "fan-in": {"fan-in": (200, 600)}, "fan-out": {"fan-out": (200, 600)}, "pairs": {"pairs": (200, 200)},
        "shared": {"shared": (200, 200)}, "offline": {"store": (2400, 0), "drain": (0, 2400)},
        "retained": {"store": (200, 0), "fetch": (0, 200)}}[scenario]
    assert result.exact
    # stored messages have no latency: it would count from publishing
    assert {phase.name for phase in result.phases if phase.delivered and not phase.latency["count"]} == set(counts) & {"drain", "fetch"}


def test_data_that_could_not_be_removed_is_reported(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with Fake() as fake:
        connect = Scene.connect

        def once(scene: Scene, first: int, n: int) -> None:
            if scene.runner.phases:
                raise Stopped("nobody there")
            connect(scene, first, n)

        monkeypatch.setattr(Scene, "connect", once)
        phase, = bench("pairs", fake.port, session=True, publishers=2, messages=10).phases
    assert phase.extra["at_the_end"] == "data of this run was not removed from the broker: nobody there"


def test_each_publisher_has_the_same_share(bench) -> None:
    """Test the shares: otherwise some retained topics would be written twice, and others never."""
    topics: dict[str, int] = {}
    with Fake() as fake:
        forward = fake.forward

        def counted(topic: str, frame: bytes) -> None:
            topics[topic] = topics.get(topic, 0) + 1
            forward(topic, frame)

        fake.forward = counted  # type: ignore[method-assign]
        assert bench("fan-in", fake.port, publishers=7, subscribers=1, messages=1000, burst=30, window=50).exact
    assert sorted(topics.values()) == [142, 143, 143, 143, 143, 143, 143]


def test_a_sweep_has_a_phase_for_each_size(bench, broker: Broker) -> None:
    result = bench("payloads", broker.port, **SMALL)
    assert [phase.name for phase in result.phases] == ["16 B", "5000 B", "300000 B"]
    assert all(phase.delivered == 600 for phase in result.phases)


def test_connects_are_timed(bench, broker: Broker) -> None:
    result = bench("storm", broker.port, **SMALL)
    assert [phase.connect["count"] for phase in result.phases] == [12, 12]


def test_a_run_by_time_has_a_warm_up(bench, broker: Broker) -> None:
    phase, = bench("pairs", broker.port, **{**SMALL, "messages": 0, "seconds": 0.2, "warmup": 0.1}).phases
    assert phase.exact and phase.latency["count"] == phase.delivered < phase.expected
    assert 0 < phase.seconds < 5        # a busy machine may end the warm-up late, and the end of the run does not move


def test_retained_messages_and_sessions_are_removed(bench) -> None:
    """Test that neither retained messages nor sessions stay, unless --keep is set."""
    with Broker("max_queued_messages 0\nsys_interval 1\n") as broker:
        for keep, left in ((False, (0, 0)), (True, (200, 12))):
            bench("retained", broker.port, keep=keep, **SMALL)
            bench("offline", broker.port, keep=keep, **SMALL)
            assert stored(broker.port, left) == left


def stored(port: int, awaited: tuple[int, int]) -> tuple[int, int]:
    """Return (retained messages of runs, offline sessions) when $SYS shows the awaited numbers."""
    retained, away = 0, -1
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)

    def on_message(_client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        nonlocal retained, away
        if message.topic.startswith("bench/"):
            retained += 1
        else:
            away = int(message.payload)

    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.subscribe([("bench/#", 0), ("$SYS/broker/clients/disconnected", 0)])
    deadline = time.monotonic() + 10        # some intervals of $SYS
    while (retained, away) != awaited and time.monotonic() < deadline:
        client.loop(0.05)
    client.disconnect()
    return retained, away


@pytest.mark.parametrize("kind", ["mix", "exact", "plus", "hash"])
@pytest.mark.parametrize("n", [7, 300])
def test_only_matching_clients_receive_a_message(bench, broker: Broker, kind: str, n: int) -> None:
    """Test the generator's arithmetic against the broker's index: no message is lost or foreign."""
    given = {**SMALL, "clients": 20, "topics": 500, "filters": n, "kind": kind, "messages": 3000, "window": 1000}
    phase = bench("match", broker.port, **given).phases[1]
    assert phase.exact and phase.foreign == 0 and phase.published == 3000
    assert phase.delivered == phase.expected >= 3000 and (phase.delivered > 3000) == (kind == "mix")


def test_a_message_for_another_client_is_foreign(bench) -> None:
    """Test a broker that sends each message to all ten receivers, although only one has subscribed."""
    with Fake() as fake:
        fake.asks_for = lambda asked, topic: True      # type: ignore[method-assign]
        phase = bench("match", fake.port, clients=10, filters=10, kind="exact", messages=50, topics=9, window=0).phases[1]
    assert (phase.published, phase.delivered, phase.lost) == (50, 50, 0)
    assert 49 * 9 <= phase.foreign <= 50 * 9        # the flow ends with the last expected delivery


def test_durable_sessions_of_flows_are_removed_at_the_end(bench) -> None:
    """Test that the sessions exist during the flow."""
    came: list[tuple[bool, int]] = []
    with Fake() as fake:
        fake.connected = lambda clean: came.append((clean, fake.published))     # type: ignore[method-assign]
        assert bench("pairs", fake.port, qos=1, size=62, session=True, publishers=3, messages=30).exact
    assert came == [(False, 0)] * 6 + [(True, 30)] * 6


def test_topics_of_a_corpus_match_its_filters() -> None:
    for kind, n in (("mix", 15), ("plus", 9), ("hash", 3)):
        corpus = Corpus(kind, n)
        filters = corpus.filters()
        drawn = corpus.drawn(10_000)
        found = {number: [i for i, one in enumerate(filters) if topic_matches_sub(one, corpus.topic(number))] for number in range(corpus.space)}
        assert sorted(drawn) == [number for number, these in found.items() if these]
        assert all(sorted(corpus.matches(number)) == these for number, these in found.items())
        assert corpus.drawn(7) == drawn[:7]


@pytest.mark.parametrize("kind", ["mix", "exact", "plus", "hash"])
def test_filters_differ(kind: str) -> None:
    filters = Corpus(kind, 5000).filters()
    assert len(set(filters)) == 5000
    if kind == "mix":
        assert sum("+" in one for one in filters) == 1500 and sum(one.endswith("#") for one in filters) == 500


def test_large_payloads_have_a_smaller_window() -> None:
    """Test the window: brokers drop messages for one subscriber beyond their limit, and the generator would cause the loss."""
    assert [window_of(Spec("pairs", size=size)) for size in (64, 100_000, 10_000_000, 200_000_000)] == [10_000, 335, 3, 1]
    assert window_of(Spec("pairs", rate=1.0)) == window_of(Spec("pairs", window=0)) == 0
