"""How often a test tries what it makes up. A sanitizer finds in a third of the tries what there is to find, and each takes three times as long."""

import os

SANITIZED = "MOSQ_SANITIZED" in os.environ


def tries(n: int) -> int:
    return max(1, n // 3) if SANITIZED else n
