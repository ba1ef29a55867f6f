"""Define the variants: the arguments of the index in this process, and the options of the broker's command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DEFAULT = "default"
AGAIN = "default again"         # the default once more: its distance from the first is the noise of the run
NEVER = 2**32 - 1


@dataclass(frozen=True)
class Variant:
    """Describe what is switched off, and how."""

    name: str
    what: str
    index: dict[str, Any] | None = field(default_factory=dict)      # arguments of IndexBench; None: no index
    broker: tuple[str, ...] = ()
    most: int = NEVER           # most filters; more would take minutes without further insight


VARIANTS = [
    Variant(DEFAULT, "everything as it is shipped"),
    Variant(AGAIN, "the default once more: differences are noise"),
    Variant("no letters", "exact filters and first levels not divided by first letter", {"letters": False},
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
