"""Provide brute force for the tests of topics: the rules of MQTT on lists of levels, without any code of the tested
modules."""

import random

LEVELS = [b"", b"a", b"b", b"A", b"ab", "é".encode(), "日本".encode(), "😀".encode(), b" ", b"$", b"$SYS", b"$x"]


def matches(filter_: bytes, topic: bytes) -> bool:
    """Return whether a filter matches: `+` one level, `#` any number of levels, neither a first level with `$` [v5 4.7]."""
    if topic.startswith(b"$") and filter_[:1] in (b"+", b"#"):
        return False

    def go(f: list[bytes], t: list[bytes]) -> bool:
        if not f:
            return not t
        if f[0] == b"#":
            return True
        return bool(t) and f[0] in (b"+", t[0]) and go(f[1:], t[1:])

    return go(filter_.split(b"/"), topic.split(b"/"))


def some_topic(rng: random.Random, levels: list[bytes] = LEVELS, depth: int = 4) -> bytes:
    while True:
        topic = b"/".join(rng.choice(levels) for _ in range(rng.randint(1, depth)))
        if topic:
            return topic


def some_filter(rng: random.Random, levels: list[bytes] = LEVELS, depth: int = 4, shared: float = 0.0) -> bytes:
    parts = [b"+" if rng.random() < 0.25 else part for part in some_topic(rng, levels, depth).split(b"/")]
    roll = rng.random()
    if roll < 0.15:
        parts.append(b"#")
    elif roll < 0.25:
        parts[-1] = b"#"
    filter_ = b"/".join(parts)
    if rng.random() < shared:
        return b"$share/" + rng.choice([b"g", b"h", "ü".encode()]) + b"/" + filter_
    return filter_


def split_share(filter_: bytes) -> tuple[bytes, bytes]:
    """Return the group (empty: not shared) and the rest of a valid filter."""
    if filter_.startswith(b"$share/"):
        _, group, rest = filter_.split(b"/", 2)
        return group, rest
    return b"", filter_


class BruteIndex:
    """All subscriptions in one dictionary; a match looks at each of them."""

    def __init__(self) -> None:
        self.subs: dict[tuple[int, bytes], tuple[int, int]] = {}

    def match(self, topic: bytes) -> tuple[list[list[tuple[int, int, int]]], list[tuple[bytes, list[tuple[int, int, int]]]]]:
        plain: dict[bytes, list[tuple[int, int, int]]] = {}
        groups: dict[tuple[bytes, bytes], list[tuple[int, int, int]]] = {}
        for (owner, whole), (options, sub_id) in self.subs.items():
            group, filter_ = split_share(whole)
            if matches(filter_, topic):
                entry = (owner, sub_id, options)
                if group:
                    groups.setdefault((group, filter_), []).append(entry)
                else:
                    plain.setdefault(filter_, []).append(entry)
        return (sorted(sorted(entries) for entries in plain.values()),
                sorted((group, sorted(entries)) for (group, _), entries in groups.items()))

    def stats(self) -> dict[str, int]:
        split = [split_share(whole) for _, whole in self.subs]
        return {"filters": len({filter_ for _, filter_ in split}),
                "subscriptions": sum(not group for group, _ in split), "shared": sum(bool(group) for group, _ in split)}
