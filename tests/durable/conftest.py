from collections.abc import Iterator

import pytest

from tests.durable.test_restart import KEEP, Kept
from tests.harness.faults import Faults


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults()
    yield faults
    faults.close()


@pytest.fixture
def faulty(faults: Faults) -> Iterator[Kept]:
    """Run a broker with a store, on a machine with the faults in `faults`."""
    with Kept(KEEP, faults.env) as running:
        yield running
        faults.heal()
