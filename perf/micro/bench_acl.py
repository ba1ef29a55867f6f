"""Measure an access check by the number of rules and their shape: nanoseconds per check, best of several runs.

With 5000 topics in turn and many rules, the time is that of waiting for memory.

    python -m perf.micro.bench_acl
"""

from __future__ import annotations

import random

from cext.testing.acl_bench import AclBench

SIZES = [10, 1_000, 100_000]
RUNS = 7
Rule = tuple[bytes | None, str, str, bytes]
Check = tuple[bytes | None, bytes, bytes]


def one_user(n: int, checks: int) -> tuple[list[Rule], list[Check]]:
    """Return rules without wildcards that all belong to one user."""
    rules: list[Rule] = [(b"ann", "topic", "read", b"site/%d/device/temperature" % i) for i in range(n)]
    return rules, [(b"ann", b"c", b"site/%d/device/temperature" % random.randrange(n)) for _ in range(checks)]


def wildcards(n: int, checks: int) -> tuple[list[Rule], list[Check]]:
    """Return rules of one user; every second has a `+`, every tenth a `#`, some deny."""
    shapes = (b"site/%d/+/temperature", b"site/%d/device/temperature", b"site/%d/device/#")
    rules: list[Rule] = [(b"ann", "topic", "deny" if i % 20 == 7 else "read", shapes[2 if i % 10 == 0 else i % 2] % i)
                         for i in range(n)]
    return rules, [(b"ann", b"c", b"site/%d/device/temperature" % random.randrange(n)) for _ in range(checks)]


def many_users(n: int, checks: int) -> tuple[list[Rule], list[Check]]:
    """Return ten rules for each user."""
    rules: list[Rule] = [(b"user-%d" % (i // 10), "topic", "readwrite", b"home/%d/room/%d/#" % (i // 10, i % 10))
                         for i in range(n)]
    numbers = [random.randrange(n) for _ in range(checks)]
    return rules, [(b"user-%d" % (i // 10), b"c", b"home/%d/room/%d/lamp" % (i // 10, i % 10)) for i in numbers]


def patterns(n: int, checks: int) -> tuple[list[Rule], list[Check]]:
    """Return patterns for all users; a topic's first level selects two of them."""
    shapes = (b"app-%d/%%c/#", b"app-%d/%%u/%%c/+")
    rules: list[Rule] = [(None, "pattern", "readwrite", shapes[i % 2] % (i // 2)) for i in range(n)]
    apps = [random.randrange(n // 2) for _ in range(checks)]
    return rules, [(b"user-%d" % i, b"client-%d" % i, b"app-%d/user-%d/client-%d/up" % (app, i, i))
                   for i, app in enumerate(apps)]


def denied(n: int, checks: int) -> tuple[list[Rule], list[Check]]:
    """Return checks that match nothing: the user's rules and patterns are examined to the end."""
    rules = [*wildcards(n, 0)[0], (None, "pattern", "read", b"p/%u/%c/#")]
    return rules, [(b"ann", b"c", b"site/%d/device/humidity/x" % random.randrange(n, 2 * n)) for _ in range(checks)]


def best(bench: AclBench, checks: int, known_user: bool) -> float:
    """Return nanoseconds per check, the least of RUNS runs."""
    loops = 100_000 // checks
    return min(bench.seconds(loops, known_user)[0] for _ in range(RUNS)) / loops / checks * 1e9


def main() -> None:
    random.seed(1)
    print("| rules | shape | ns, 500 topics | ns, 5000 topics | ns, 500 topics and the user looked up |")
    print("|---|---|---|---|---|")
    for n in SIZES:
        for shape in (one_user, wildcards, many_users, patterns, denied):
            few, many = (AclBench(*shape(n, checks)) for checks in (500, 5000))
            figures = best(few, 500, True), best(many, 5000, True), best(few, 500, False)
            print(f"| {n} | {shape.__name__} | " + " | ".join(f"{figure:.0f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()
