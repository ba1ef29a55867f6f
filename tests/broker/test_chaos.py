"""Random sessions do the broker no harm; see tests/fuzz/chaos.py."""

import pytest

from tests.fuzz.chaos import CONFIGS, run


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("config", CONFIGS, ids=["default", "tight", "no-limits", "scarce"])
def test_lives_and_serves(config: str, seed: int) -> None:
    run(config, actions=1500, seed=seed)
