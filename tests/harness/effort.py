"""How often a test tries what it makes up, and how long one waits for what must come. A sanitizer finds in a third of the tries what there is to
find, and each takes three times as long.
"""

import os

SANITIZED = "MOSQ_SANITIZED" in os.environ
TIMEOUT_S = float(os.environ.get("MOSQ_TEST_TIMEOUT_S", "90" if SANITIZED else "30"))   # nobody waits so long but where something is wrong
AT_ONCE_S = TIMEOUT_S / 3     # what waits for nothing took no longer, on any machine. How fast it is, perf/ says: no test does


def tries(n: int) -> int:
    return max(1, n // 3) if SANITIZED else n
