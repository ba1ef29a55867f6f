"""What is switched off in turn: how the index is made in this process, what the broker is told on its command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DEFAULT = "default"
AGAIN = "default again"         # the same once more: its distance from the first is the noise of the run
NEVER = 2**32 - 1


@dataclass(frozen=True)
class Variant:
    name: str
    what: str
    index: dict[str, Any] | None = field(default_factory=dict)      # arguments of IndexBench; None: not of the index
    broker: tuple[str, ...] = ()
    most: int = NEVER           # filters: more would take minutes to say what fewer have said


VARIANTS = [
    Variant(DEFAULT, "everything as it is shipped"),
    Variant(AGAIN, "the same once more: what differs is noise"),
    Variant("no letters", "exact filters and first levels not told apart by first letter", {"letters": False},
            ("--letter-index", "off")),
    Variant("no exact hash", "exact filters in the tree like the others, first level by letter", {"mode": "letter"},
            ("--index", "letter")),
    Variant("plain tree", "neither exact hash nor letters", {"mode": "tree"}, ("--index", "tree")),
    Variant("no child hash", "children of a tree's node found by scan, however many",
            {"child_hash_threshold": NEVER}, ("--child-hash-threshold", "off")),
    Variant("no match cache", "each match looks for itself", {"match_cache": 0}, ("--match-cache", "off")),
    Variant("64 k buckets", "partitions of the exact index with room from the first filter on (set, not switched off)",
            {"hash_buckets": 65536}, ("--hash-buckets", "65536")),
    Variant("scan", "no index: every filter is compared", {"mode": "scan"}, ("--index", "scan"), 100_000),
    Variant("no pool", "contexts of clients from the system's allocator, each by itself", None, ("--pool", "off")),
]
