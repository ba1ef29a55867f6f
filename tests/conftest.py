"""For runs that must end in time (`.ci/run`, under sanitizers): MOSQ_TESTS_END is a moment, in seconds since 1970, after which
no further test begins. What is left out then is counted as skipped, and said. And for all runs: how hypothesis behaves."""

import os
import time

import pytest
from hypothesis import settings

settings.register_profile("mosq", deadline=None)        # nothing is asserted about time
settings.load_profile("mosq")
END_S = float(os.environ.get("MOSQ_TESTS_END", "inf"))


def pytest_runtest_setup() -> None:
    if time.time() > END_S:
        pytest.skip("left out for lack of time")
