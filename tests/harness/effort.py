"""Decide how much a test repeats, and how long it waits for an event.

`make test` repeats little; the parts of `make test-all` run the same tests again in full (`pytest --part NAME`, see
tests/conftest.py). Under a sanitizer a third of the tries finds the same errors, and each try takes three times as long.
"""

import os

SANITIZED = "MOSQ_SANITIZED" in os.environ
TIMEOUT_S = float(os.environ.get("MOSQ_TEST_TIMEOUT_S", "90" if SANITIZED else "30"))   # only a failing test waits this long
AT_ONCE_S = TIMEOUT_S / 3       # an action that waits for no event is faster on any machine. perf/ measures speed; tests do not


def tries(full: int, quick: int | None = None) -> int:
    """Return how often to try: `full` in a part of `make test-all`, `quick` (unless it is None) in `make test`."""
    n = full if quick is None or "MOSQ_TESTS_FULL" in os.environ else quick         # --part sets it
    return max(1, n // 3) if SANITIZED else n
