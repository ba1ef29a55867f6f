"""Run random sessions; the broker must survive them. See tests/fuzz/chaos.py."""

import pytest

from tests.fuzz.chaos import CONFIGS, run
from tests.harness.effort import tries


@pytest.mark.again("hostile")
@pytest.mark.parametrize("seed", range(1, 1 + tries(4, 1)))
@pytest.mark.parametrize("config", CONFIGS, ids=["default", "tight", "no-limits", "scarce"])
def test_the_broker_survives_and_serves_clients(config: str, seed: int) -> None:
    run(config, actions=tries(1500, 600), seed=seed)
