"""What an access check costs by the number of rules and their shape: nanoseconds per check, best of several runs.

    python -m perf.micro.bench_acl
"""

from __future__ import annotations

import random

from cext.broker.bench import AclBench

SIZES = [10, 1_000, 100_000]
ASKS = 5_000
RUNS = 7
Rule = tuple[bytes | None, str, str, bytes]
Ask = tuple[bytes | None, bytes, bytes]


def one_user(n: int) -> tuple[list[Rule], list[Ask]]:
    """All rules belong to one user, without wildcards."""
    return ([(b"ann", "topic", "read", b"site/%d/device/temperature" % i) for i in range(n)],
            [(b"ann", b"c", b"site/%d/device/temperature" % random.randrange(n)) for _ in range(ASKS)])


def wildcards(n: int) -> tuple[list[Rule], list[Ask]]:
    """All rules belong to one user; every second has a `+`, every tenth a `#`, some deny."""
    shapes = (b"site/%d/+/temperature", b"site/%d/device/temperature", b"site/%d/device/#")
    rules: list[Rule] = [(b"ann", "topic", "deny" if i % 20 == 7 else "read", shapes[2 if i % 10 == 0 else i % 2] % i) for i in range(n)]
    return rules, [(b"ann", b"c", b"site/%d/device/temperature" % random.randrange(n)) for _ in range(ASKS)]


def many_users(n: int) -> tuple[list[Rule], list[Ask]]:
    """Ten rules for each user."""
    rules: list[Rule] = [(b"user-%d" % (i // 10), "topic", "readwrite", b"home/%d/room/%d/#" % (i // 10, i % 10)) for i in range(n)]
    asks = [random.randrange(n) for _ in range(ASKS)]
    return rules, [(b"user-%d" % (i // 10), b"c", b"home/%d/room/%d/lamp" % (i // 10, i % 10)) for i in asks]


def patterns(n: int) -> tuple[list[Rule], list[Ask]]:
    """Patterns for everybody, half of which a topic's first level selects."""
    rules: list[Rule] = [(None, "pattern", "readwrite", b"app-%d/%%u/%%c/+" % (i // 2) if i % 2 else b"app-%d/%%c/#" % (i // 2)) for i in range(n)]
    return rules, [(b"user-%d" % i, b"client-%d" % i, b"app-%d/user-%d/client-%d/up" % (random.randrange(max(1, n // 2)), i, i))
                   for i in range(ASKS)]


def denied(n: int) -> tuple[list[Rule], list[Ask]]:
    """Nothing matches: own rules and patterns are looked at to the end."""
    rules = wildcards(n)[0] + [(None, "pattern", "read", b"p/%u/%c/#")]
    return rules, [(b"ann", b"c", b"site/%d/device/humidity/x" % random.randrange(n, 2 * n)) for _ in range(ASKS)]


def main() -> None:
    random.seed(1)
    print(f"{'rules':>8}  {'shape':12} {'ns':>6} {'ns with the user looked up':>28}  allowed of {ASKS}")
    for n in SIZES:
        for shape in (one_user, wildcards, many_users, patterns, denied):
            bench = AclBench(*shape(n))
            bench.seconds(5)
            known = min(bench.seconds(20) for _ in range(RUNS))
            found = min(bench.seconds(20, False) for _ in range(RUNS))
            print(f"{n:8}  {shape.__name__:12} {known[0] / 20 / ASKS * 1e9:6.1f} {found[0] / 20 / ASKS * 1e9:28.1f}  {known[1] // 20}")


if __name__ == "__main__":
    main()
