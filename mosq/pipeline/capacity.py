"""Compute broker options from observed traffic (`mosq pipeline capacity`).

Each piece of advice is an option of the broker, its value, the formula with its inputs, and the expected saving. This
module knows the broker's defaults from the table of options, and how the broker's pool and tables grow. It does not
know where the observations come from.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mosq.config.options import BY_KEYWORD, TUNING
from mosq.pipeline.observed import CROWDED, TABLE_FIRST
from mosq.tools.table import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.pipeline.observed import Observed

GROW_STEPS = 4  # number of allocations in which the pool should reach its peak
GROW_LEAST = 100
CACHE_TOPIC_BYTES = 200
CACHE_FIRST, CACHE_GROWTH, CACHE_WAYS = 512, 4, 4  # first topics; growth (it forgets its topics); places for a topic
REPEATS_LEAST = 2  # repetitions of a topic from which a cached look-up is worth its memory
BUCKET_BYTES = 8
NAME_BYTES = 16  # most bytes of a name that is found by hash
NAMES_SCANNED = 32  # names at a level that are still scanned fast enough
BYTES_WORTH = 64 << 10
QUEUE_ROOM = 1.25
QUEUE_LEAST = 100
SAMPLE_MESSAGES, SAMPLE_S = 10_000, 600  # fewer messages, or a shorter time, say little
CONNECTION_COSTS = 50 + 1  # units of turn_budget for the first delivery to a connection in a turn
UNKNOWN = "unknown: there are no events; let the broker write them with stream_events true"


def default_of(option: str) -> int:
    """Return the default of an option if it is a number, else 0."""
    value = BY_KEYWORD[option].default
    return value if isinstance(value, int) else 0


@dataclass
class Advice:
    """Hold one option, its proposed value, and the reasons.

    Sizes are in bytes; positive bytes are saved, negative ones spent.
    """

    option: str
    value: int | str | None  # None: keep the default
    formula: str
    inputs: dict[str, Any] = field(default_factory=dict)
    saving: str = ""
    expected: dict[str, Any] = field(default_factory=dict)  # values that the counters will show

    @property
    def default(self) -> Any:
        return BY_KEYWORD[self.option].default

    @property
    def is_flag(self) -> bool:
        """Return whether the option is a flag of the command line; the others are lines of a configuration file."""
        return self.option in TUNING

    def as_dict(self) -> dict[str, Any]:
        """Return the advice for JSON."""
        return {**asdict(self), "default": self.default, "flag": self.is_flag}


@dataclass
class Plan:
    """Hold all pieces of advice."""

    advice: list[Advice]
    sample: str = ""        # the traffic on which the advice is based, and whether it suffices

    def flags(self) -> list[str]:
        return [
            word
            for one in self.advice
            if one.is_flag and one.value is not None
            for word in (f"--{one.option.replace('_', '-')}", str(one.value))
        ]

    def lines(self) -> list[str]:
        """Return the options that have no flag, as lines of a configuration file."""
        return [f"{one.option} {one.value}" for one in self.advice if not one.is_flag and one.value is not None]

    def text(self) -> Iterator[str]:
        """Yield the advice as text: first the command line and configuration, then the reasons."""
        if self.sample:
            yield self.sample
        yield f"mosq {' '.join(self.flags())}".rstrip()
        if lines := self.lines():
            yield "and in the configuration:"
            yield from (f"  {line}" for line in lines)
        for one in self.advice:
            yield ""
            yield f"{one.option}: {'keep the default' if one.value is None else one.value} (default: {one.default})"
            yield f"  formula  {one.formula}"
            if one.inputs:
                yield f"  inputs   {', '.join(f'{name} {shown(str(value))}' for name, value in one.inputs.items())}"
            if one.saving:
                yield f"  expected {one.saving}"

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON: flags, lines of the configuration, and each piece of advice."""
        return {"sample": self.sample, "flags": self.flags(), "configuration": self.lines(),
                "advice": [one.as_dict() for one in self.advice]}


def sample_of(seen: Observed) -> str:
    """Return a line about the size of the observed traffic."""
    line = f"Observed: {seen.messages:,} messages to {seen.topics:,} topics in {seen.seconds:,.0f} s."
    if seen.messages < SAMPLE_MESSAGES or seen.seconds < SAMPLE_S:
        line += (f" This is too little to rely on: observe at least {SAMPLE_MESSAGES:,} messages and {SAMPLE_S // 60} "
                 "minutes of usual traffic, better a day.")
    return line


def plan(seen: Observed, context_bytes: int) -> Plan:
    """Return the advice for all options; context_bytes is the size of a client's context."""
    return Plan(
        [
            *pool(seen, context_bytes),
            match_cache(seen),
            hash_buckets(seen),
            child_hash(seen),
            queue(seen),
            memory(seen),
            turn(seen),
        ],
        sample_of(seen),
    )


# ---------------------------------------------------------------- the pool


def steps_of(curves: list[Any], grow: int, idle_max: int) -> tuple[int, int]:
    """Return how often the pool takes memory from the system along these curves, and its contexts at the end.

    A block goes back to the system when more than idle_max contexts are idle; one empty block always stays. This
    assumes that clients that leave empty whole blocks. If they do not, fewer blocks go back and are taken again.
    """
    blocks = taken = 0
    for curve in curves:
        blocks = 0
        for used in curve.tolist():
            if used > blocks * grow:
                more = -(-(used - blocks * grow) // grow)
                blocks, taken = blocks + more, taken + more
            while blocks * grow - used > idle_max and (blocks * grow - used) // grow > 1:
                blocks -= 1
    return taken, blocks * grow


def pool(seen: Observed, context_bytes: int) -> Iterator[Advice]:
    """Yield the advice for the pool of client contexts; without events the advice is to keep the defaults."""
    if seen.connections is None:
        yield Advice("pool_grow", None, UNKNOWN)
        yield Advice("pool_idle_max", None, UNKNOWN)
        return
    peak, wave = seen.connections.peak, seen.connections.wave
    was_grow, was_idle = (default_of(name) for name in ("pool_grow", "pool_idle_max"))
    grow = max(GROW_LEAST, -(-peak // GROW_STEPS // 100) * 100)
    idle = wave + grow
    curves = seen.connections.curves
    (taken, at_end), (was_taken, was_end) = (steps_of(curves, *of) for of in ((grow, idle), (was_grow, was_idle)))
    reserved, was_reserved = (-(-peak // n) * n * context_bytes for n in (grow, was_grow))
    yield Advice(
        "pool_grow",
        grow,
        f"peak / {GROW_STEPS}, rounded up to hundreds, at least {GROW_LEAST}",
        {"peak": peak, "connects": seen.connections.connects, "context_bytes": context_bytes},
        f"{_amount(was_reserved - reserved, 'reserved at the peak')}; {taken:,} allocations for "
        f"{seen.connections.connects:,} connects, by default {was_taken:,}, without a pool one each",
        {
            "contexts_at_peak": -(-peak // grow) * grow,
            "allocations": taken,
            "allocations_by_default": was_taken,
            "bytes": was_reserved - reserved,
        },
    )
    yield Advice(
        "pool_idle_max",
        idle,
        "wave + pool_grow; the wave is the largest number of clients that left and came back",
        {"wave": wave, "pool_grow": grow},
        f"{_amount((was_end - at_end) * context_bytes, 'kept after the peak')}; the wave comes back without "
        "an allocation",
        {"contexts_at_end": at_end, "contexts_at_end_by_default": was_end, "bytes": (was_end - at_end) * context_bytes},
    )


# ---------------------------------------------------------------- the index


def match_cache(seen: Observed) -> Advice:
    """Return the number of topics that the match cache should hold, `off`, or None if it has no effect."""
    if seen.subscribed is None:
        return Advice("match_cache", None, UNKNOWN)
    inputs = {"topics": seen.short_topics, "messages": seen.messages, "wildcard_filters": seen.subscribed.wild}
    most = default_of("match_cache")
    if not seen.subscribed.wild:
        return Advice("match_cache", None, "there are no filters with wildcards, so the cache is not used", inputs)
    if seen.messages < REPEATS_LEAST * seen.short_topics:
        return Advice(
            "match_cache",
            "off",
            f"topics repeat less than {REPEATS_LEAST} times: caching them saves nothing",
            inputs,
            _amount(most * CACHE_TOPIC_BYTES, "at most"),
            {"bytes": most * CACHE_TOPIC_BYTES},
        )
    # twice as many places as topics: a topic has four possible places, which it shares with other topics
    value = min(
        max(CACHE_FIRST, 1 << max(2 * seen.short_topics - 1, 1).bit_length()),
        int(BY_KEYWORD["match_cache"].high or 1 << 20),
    )
    hits = max(0, seen.messages - misses_of(seen.short_topics, value)) / max(seen.messages, 1)
    return Advice(
        "match_cache",
        value,
        f"2 x topics of at most 128 bytes, rounded up to a power of two, at least {CACHE_FIRST}",
        inputs,
        f"{_amount((most - value) * CACHE_TOPIC_BYTES, 'at most')}; {hits:.1%} of these messages find their topic in "
        "the cache, as long as subscriptions do not change",
        {"hit_share": hits, "bytes": (most - value) * CACHE_TOPIC_BYTES},
    )


def misses_of(topics: int, most: int) -> int:
    """Return the misses until the cache has grown: each topic once for every size, and the places that are taken before
    it grows.
    """
    places, misses = CACHE_FIRST, topics
    while places < min(most, 2 * topics):
        misses += topics + places // CACHE_WAYS
        places *= CACHE_GROWTH
    return misses


def hash_buckets(seen: Observed) -> Advice:
    """Return the buckets that each table of exact filters should have from the start, or None if growing is cheap."""
    if seen.subscribed is None:
        return Advice("hash_buckets", None, UNKNOWN)
    sizes = seen.subscribed.partitions
    most, total = max(sizes, default=0), sum(sizes)
    moves = sum(max(0, size - TABLE_FIRST) for size in sizes)
    unused = sum(most - size for size in sizes) * BUCKET_BYTES
    inputs = {"tables": len(sizes), "largest": most, "filters_without_wildcards": total}
    if moves * BUCKET_BYTES < BYTES_WORTH or unused > total * BUCKET_BYTES:
        return Advice(
            "hash_buckets", None, "keep the default: tables are small, or one is much larger than the others", inputs
        )
    return Advice(
        "hash_buckets",
        most,
        "filters of the largest table (by first letter)",
        inputs,
        f"{moves:,} moves saved while clients subscribe; {unused:,} bytes more",
        {"moves": moves, "bytes": -unused},
    )


def child_hash(seen: Observed) -> Advice:
    """Return the number of names at a level from which the level should have a hash table, or None."""
    if seen.subscribed is None:
        return Advice("child_hash_threshold", None, UNKNOWN)
    most, crowded = seen.subscribed.names_most, seen.subscribed.names_crowded
    inputs = {"names_most": most, f"names_at_levels_with_{CROWDED}": crowded}
    if most > NAMES_SCANNED or crowded * NAME_BYTES < BYTES_WORTH:
        return Advice(
            "child_hash_threshold",
            None,
            f"lists of more than {NAMES_SCANNED} names are not scanned; a higher threshold would save less than "
            f"{BYTES_WORTH >> 10} KiB",
            inputs,
        )
    return Advice(
        "child_hash_threshold",
        most + 1,
        "1 + names at the most crowded level: none is hashed",
        inputs,
        _amount(crowded * NAME_BYTES, "at most"),
        {"bytes": crowded * NAME_BYTES},
    )


# ---------------------------------------------------------------- queues and turns


def queue(seen: Observed) -> Advice:
    """Return the queue length that would have held all messages, with QUEUE_ROOM on top."""
    if seen.queues is None:
        return Advice("max_queued_messages", None, UNKNOWN)
    need = seen.queues.most
    value = max(QUEUE_LEAST, math.ceil(QUEUE_ROOM * need / 100) * 100)
    default = default_of("max_queued_messages")
    worst = int((default - value) * seen.payload_mean * max(seen.queues.sessions, 1))
    inputs = {
        "most_waiting_or_dropped": need,
        "client_id": seen.queues.most_client,
        "dropped": seen.queues.dropped,
        "sessions": seen.queues.sessions,
        "payload_mean": round(seen.payload_mean),
    }
    drops = (
        f"{seen.queues.dropped:,} earlier drops would have found room"
        if seen.queues.dropped
        else "no drops, as observed"
    )
    return Advice(
        "max_queued_messages",
        value,
        f"{QUEUE_ROOM} x the most waiting and dropped messages, rounded up to hundreds, at least {QUEUE_LEAST}",
        inputs,
        f"{drops}; {_amount(worst, 'if every queue fills up')}",
        {"drops": 0, "bytes": worst},
    )


def memory(seen: Observed) -> Advice:
    """Return the bytes of queued messages that should stay in memory, or None if the default suffices."""
    if seen.queues is None:
        return Advice("queue_memory", None, UNKNOWN)
    default, need = default_of("queue_memory"), seen.queues.together_bytes
    inputs = {"waiting_bytes": need}
    if 2 * need <= default:
        return Advice("queue_memory", None, "twice the bytes that waited at once fit into the default", inputs)
    value = 1 << (2 * need - 1).bit_length()
    return Advice(
        "queue_memory",
        value,
        "2 x the bytes that waited at once, rounded up to a power of two",
        inputs,
        "waiting messages stay in memory, the broker reads none back from the disk",
        {"bytes": default - value},
    )


def turn(seen: Observed) -> Advice:
    """Return the turn budget for the largest fan-out, or None if the default suffices."""
    if seen.subscribed is None:
        return Advice("turn_budget", None, UNKNOWN)
    default, work = default_of("turn_budget"), seen.subscribed.fan_out * CONNECTION_COSTS
    inputs = {"fan_out": seen.subscribed.fan_out, "topic": seen.subscribed.fan_out_topic}
    if work <= default:
        return Advice("turn_budget", None, f"the largest fan-out x {CONNECTION_COSTS} fits into a turn", inputs)
    return Advice(
        "turn_budget",
        min(work, 5 * default),
        f"the largest fan-out x {CONNECTION_COSTS}, at most 5 x the default",
        inputs,
        "the broker sends its message in one turn (other connections wait that long)"
        if work <= 5 * default
        else "the broker sends its message in fewer turns",
        {},
    )


def _amount(n_bytes: int, what: str) -> str:
    size = f"{abs(n_bytes) / 1e6:,.1f} MB" if abs(n_bytes) >= 1e5 else f"{abs(n_bytes):,} bytes"
    return f"{size} {'less' if n_bytes >= 0 else 'more'} {what}"
