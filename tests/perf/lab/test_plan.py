"""Test the suites: every case is a valid command line of `mosq bench`, with numbers that fit."""

from __future__ import annotations

import pytest
from mosq.cli.commands_bench import bench
from perf.lab.plan import SUITES, N, loads


@pytest.mark.parametrize("suite", list(SUITES))
@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_mosq_bench_accepts_every_case(suite: str, scale: float) -> None:
    for load in loads(SUITES[suite], 2.0, 20_000, scale=scale):
        command, *arguments = load.arguments
        bench.commands[command].make_context(command, [*arguments, "--port", "1883"])


@pytest.mark.parametrize("suite", list(SUITES))
def test_tests_and_cases_have_unique_names(suite: str) -> None:
    found = loads(SUITES[suite], 2.0, 1_000_000)
    assert len({load.key for load in found}) == len(found) == sum(len(test.cases) for test in SUITES[suite].tests)
    assert not {test.id for test in SUITES[suite].tests} & {test.id for name, other in SUITES.items() if name != suite
                                                            for test in other.tests}


def test_the_papers_numbers() -> None:
    found = {load.key[1:]: load.arguments for load in loads(SUITES["paper"], 2.0, 1_000_000)}

    def given(test: str, case: str) -> dict[str, str]:
        arguments = found[test, case][1:]
        return dict(zip(arguments[::2], arguments[1::2], strict=True))

    assert {qos: given("paper-1", f"QoS {qos}")["--messages"] for qos in range(3)} == dict.fromkeys(range(3), "10000")
    assert given("paper-1", "QoS 2") | {"--publishers": "10", "--subscribers": "1000"} == given("paper-1", "QoS 2")
    assert [given("paper-2", f"{n},000 messages each")["--messages"] for n in range(10, 71, 10)] == [
        str(20_000 * n) for n in range(10, 71, 10)]
    for n in (1000, 20_000):
        assert given("paper-3", f"{n:,} publishers") | {"--publishers": str(n), "--messages": str(n)} == given(
            "paper-3", f"{n:,} publishers")
    assert given("paper-4", "10 MB") | {"--publishers": "20", "--messages": "200", "--size": "10000000"} == given("paper-4", "10 MB")


def test_descriptors_limit_the_clients_with_a_note() -> None:
    found = [load for load in loads(SUITES["paper"], 2.0, 6000) if load.test.id == "paper-3"]
    assert [load.x for load in found] == [1000, 2000, 5000, 5899]
    assert found[-1].arguments[:5] == ("fan-in", "--publishers", "5899", "--messages", "5899")
    assert "5,899 publishers instead of 10,000: 6,000 open files" in found[-1].note
    assert "open files" not in found[0].note


@pytest.mark.parametrize(("value", "scale", "result"), [(N(1000, 20), 1, 1000), (N(1000, 20), 0.1, 100), (N(1000, 20), 0.001, 20),
                                                        (N(10, 20), 0.1, 10), (N(1000), 2, 2000), (N(10, quick=4), 0.5, 5)])
def test_scale(value: N, scale: float, result: int) -> None:
    assert value.at(scale) == result


def test_quick_numbers() -> None:
    assert [N(10, quick=4).at(1, True), N(10).at(1, True), N(100, quick=40).at(0.5, True)] == [4, 10, 20]


def test_the_real_numbers_are_named() -> None:
    found = {load.key[1:]: load for load in loads(SUITES["paper"], 2.0, 1_000_000, quick=True)}
    quick = found["paper-1", "QoS 0 (500 messages)"]
    assert quick.title == "10 publishers x 1,000 messages, 1,000 subscribers, scaled"
    assert quick.arguments[quick.arguments.index("--messages") + 1] == "500"
    assert ("paper-4", "10 MB (40 messages)") in found and found["paper-4", "100 B"].title.endswith(", scaled")
    assert not found["paper-2", "10,000 messages each"].title.endswith(", scaled")
    found = {load.key[1:]: load for load in loads(SUITES["paper"], 2.0, 1_000_000, scale=0.02)}
    assert ("paper-1", "QoS 0 (20 subscribers, 200 messages)") in found
    assert found["paper-2", "200 messages each"].title.endswith(", scaled")
    fitted = next(load for load in loads(SUITES["bench"], 2.0, 600) if load.test.id == "fan-out")
    assert fitted.text == "QoS 0 (499 subscribers)" and not fitted.title.endswith(", scaled")


def test_quick_runs_a_part_of_all_cases() -> None:
    for suite in SUITES.values():
        assert 0 < len(loads(suite, 1.0, 20_000, quick=True)) <= len(loads(suite, 1.0, 20_000))
