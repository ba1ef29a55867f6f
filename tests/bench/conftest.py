from __future__ import annotations

import pytest

from mosq.bench import scenarios
from mosq.bench.result import Result
from mosq.bench.run import measure
from mosq.bench.spec import Spec


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    """bench("pairs", port, qos=1) runs a scenario with small numbers and returns its result."""
    monkeypatch.setattr(scenarios, "QUIET_S", 0.01)

    def run(scenario: str, port: int, **given: object) -> Result:
        small = {"publishers": 4, "messages": 400, "stall": 5.0, "clients": 8}
        return measure(Spec(scenario, port=port, **{**small, **given}), lambda what, counts: None)  # type: ignore[arg-type]

    return run
