"""Test errors: each ends with a clear message, and the measurements until then are kept and marked."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading

import pytest

from mosq._bench import Generator
from mosq.tools.bench import scenarios
from mosq.tools.bench.report import lines
from mosq.tools.bench.run import measure
from mosq.tools.bench.spec import BenchError, Spec
from mosq.cli.commands import main
from tests.bench.fake import Fake
from tests.harness.broker import Broker, free_port


def test_no_broker(bench) -> None:
    port = free_port()
    result = bench("pairs", port)
    assert not result.complete
    assert result.why == f"cannot connect to 127.0.0.1:{port}: Connection refused"


def test_an_unknown_host_name(bench) -> None:
    result = bench("pairs", 1883, host="no such host.invalid")
    assert not result.complete and result.why.startswith("cannot look up no such host.invalid")


def test_an_invalid_host_name(bench) -> None:
    with Fake() as fake:
        assert bench("pairs", 1883, host="a..b").why == "a..b is not a valid host name"
        assert bench("pairs", fake.port, tls=True, servername="a..b").why == "a..b is not a valid host name"


@pytest.mark.parametrize(("version", "code", "words"), [
    (4, 5, "not authorized (0x05)"), (4, 4, "bad user name or password (0x04)"), (5, 0x86, "bad user name or password (0x86)"),
    (5, 0xFE, "unknown reason (0xFE)")])
@pytest.mark.parametrize("scenario", ["pairs", "storm"])
def test_a_refused_login(bench, version: int, code: int, words: str, scenario: str) -> None:
    with Fake(connack=code) as fake:
        result = bench(scenario, fake.port, version=version)
    assert not result.complete and "refused client 0" in result.why and result.why.endswith(words)


def test_refused_clients_of_a_storm_are_reported(bench) -> None:
    """Test that the others are measured, and that the phase reports the number of refused clients."""
    config = "listener {port} 127.0.0.1\nallow_anonymous true\nmax_connections 5\n"
    with Broker(config) as broker:
        result = bench("storm", broker.port, clients=9)
    phase = result.phases[0]
    assert not result.complete and not phase.complete and result.why
    assert phase.per == phase.connect["count"] == 9 - phase.closed and 0 < phase.per <= 5


def test_a_subscription_that_is_refused(bench) -> None:
    with Fake(suback=0x80) as fake:
        result = bench("fan-in", fake.port)
    assert not result.complete and "refused a subscription" in result.why


@pytest.mark.parametrize("version", [4, 5])
def test_a_subscription_that_is_granted_less(bench, version: int) -> None:
    """Test that deliveries at QoS 0 do not count as a measurement of QoS 1."""
    with Fake(suback=0) as fake:
        result = bench("pairs", fake.port, qos=1, version=version)
    assert not result.complete and "QoS 0 for a subscription, less than requested" in result.why


def test_a_publisher_without_sequence_numbers_left(bench, monkeypatch) -> None:
    """Test with fewer sequence numbers, to be fast; real ones have 32 bits in a payload."""
    monkeypatch.setattr(scenarios, "Generator", functools.partial(Generator, numbers=100))
    with Fake() as fake:
        result = bench("pairs", fake.port, publishers=1, messages=0, seconds=60.0, warmup=0.0)
        counted = bench("pairs", fake.port, publishers=1, messages=100)
    assert not result.complete and "as many messages as there are sequence numbers" in result.why and fake.published == 200
    assert counted.exact and counted.phases[0].published == 100


def test_a_broker_with_lower_limits(bench) -> None:
    with Fake(connack_props=b"\x24\x00") as fake:       # Maximum QoS 0
        result = bench("pairs", fake.port, qos=1, version=5)
    assert not result.complete and "Maximum QoS" in result.why


@pytest.mark.parametrize(("then", "words"), [
    ("close", "closed the connection"), ("goodbye", "administrative action (0x98)"), ("garbage", "malformed or unexpected MQTT")])
def test_a_broker_that_ends_the_connection(bench, then: str, words: str) -> None:
    with Fake(after=100, then=then) as fake:
        result = bench("fan-in", fake.port, version=5, messages=100_000, subscribers=1)
    phase, = result.phases
    assert not result.complete and not phase.complete and words in result.why
    assert phase.published >= 100 and phase.closed == 1 and phase.latency["count"] == phase.delivered


def test_a_broker_that_stops_answering(bench) -> None:
    with Fake(after=100, then="silence") as fake:
        result = bench("pairs", fake.port, qos=1, stall=0.3)
    phase, = result.phases
    assert not result.complete and "nothing happened for 0.3 s" in result.why
    assert phase.unacknowledged == phase.published - 100


def test_a_broker_busy_at_the_end_counts_as_complete(bench) -> None:
    with Fake(then="deaf") as fake:
        result = bench("pairs", fake.port, stall=0.3)
        again = bench("storm", fake.port, clients=2, rounds=2, stall=0.3)
    phase, = result.phases
    assert result.complete and result.exact
    assert phase.extra["at_the_end"] == "0.3 s after DISCONNECT the broker had not closed all connections"
    assert not again.complete and "disconnecting" in again.why      # the next round cannot begin


def test_a_broker_that_is_killed() -> None:
    with Broker("") as broker:
        spec = Spec("pairs", port=broker.port, publishers=5, seconds=60.0, warmup=0.0, stall=5.0, broker_pid=broker.process.pid)  # type: ignore[union-attr]
        killed = threading.Event()

        def kill(what: str, counts: dict[str, int]) -> None:
            if counts["received"] > 1000 and not killed.is_set():
                broker.process.kill()  # type: ignore[union-attr]
                broker.process.wait()  # type: ignore[union-attr]
                killed.set()

        result = measure(spec, kill)
    phase, = result.phases
    assert not result.complete and not phase.complete and "closed the connection of client" in result.why
    assert phase.delivered > 1000 and result.as_dict()["complete"] is False


def test_an_interrupted_run_keeps_its_measurements(bench) -> None:
    def interrupt(what: str, counts: dict[str, int]) -> None:
        if counts["received"] > 100:
            raise KeyboardInterrupt

    with Fake() as fake:
        result = measure(Spec("pairs", port=fake.port, seconds=60.0, warmup=0.0), interrupt)
    assert (result.complete, result.why) == (False, "interrupted")
    phase, = result.phases
    assert phase.delivered > 100 and (phase.lost, phase.outstanding) == (0, phase.expected - phase.delivered)


def test_messages_in_transit_at_an_interruption_are_not_lost(bench) -> None:
    def interrupt(what: str, counts: dict[str, int]) -> None:
        raise KeyboardInterrupt

    with Fake(drop=2) as fake:
        result = measure(Spec("pairs", port=fake.port, publishers=1, messages=100, window=0), interrupt)
    phase, = result.phases
    assert (phase.complete, phase.published, phase.lost, phase.outstanding, phase.exact) == (False, 100, 0, 50, False)
    assert any("outstanding 50" in line for line in lines(result)) and phase.as_dict()["outstanding"] == 50


def test_a_terminated_run_keeps_its_measurements(capfd) -> None:
    """Test that SIGTERM keeps the measurements, too."""
    with Fake(after=100) as fake:
        fake.misbehave = lambda door: os.kill(os.getpid(), signal.SIGTERM)      # type: ignore[method-assign]
        status = main(["bench", "pairs", "-p", str(fake.port), "--seconds", "60", "--json", "-"])
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert (status, told["complete"], told["why"]) == (1, False, "interrupted") and "are kept, and marked" in err
    assert told["phases"][0]["published"] >= 100 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_more_clients_than_open_files() -> None:
    with pytest.raises(BenchError, match=r"need 50,000,064 open files, but only [\d,]+ are allowed \(ulimit -n\): at most [\d,]+ clients"):
        measure(Spec("connect", clients=50_000_000), lambda what, counts: None)
