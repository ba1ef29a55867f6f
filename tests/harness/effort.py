"""How often a test tries what it makes up, and how long one waits for what must come. A sanitizer finds in a third of the tries what there is to
find, and each takes three times as long.
"""

import os

SANITIZED = "MOSQ_SANITIZED" in os.environ
TIMEOUT_S = float(os.environ.get("MOSQ_TEST_TIMEOUT_S", "30" if SANITIZED else "10"))   # nobody waits so long but where something is wrong


def tries(n: int) -> int:
    return max(1, n // 3) if SANITIZED else n
