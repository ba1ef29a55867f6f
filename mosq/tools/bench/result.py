"""Hold the result of a run: a `Phase` for each measured part, and the `Result` of all.

These are plain data; report.py and parquet.py write them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

BUSY = 0.9                      # share of a core from which a process counts as the bottleneck
FORMAT = 1                      # version of the JSON format


@dataclass
class Phase:
    """Hold the figures of one measured part."""

    name: str
    seconds: float = 0.0
    published: int = 0
    delivered: int = 0          # deliveries, with duplicates
    per: int = 0                # divisor of costs
    unit: str = "message"       # unit of `per`
    # counts of the whole phase, with its warm-up
    expected: int = 0
    lost: int = 0
    outstanding: int = 0        # missing messages of an incomplete phase: they may have been on their way
    duplicates: int = 0
    out_of_order: int = 0
    foreign: int = 0
    refused: int = 0
    stray_acks: int = 0
    unsent: int = 0
    unacknowledged: int = 0
    closed: int = 0
    latency: dict[str, object] = field(default_factory=lambda: {"count": 0})
    ack: dict[str, object] = field(default_factory=lambda: {"count": 0})
    handshake: dict[str, object] = field(default_factory=lambda: {"count": 0})    # TLS and WebSocket
    connect: dict[str, object] = field(default_factory=lambda: {"count": 0})        # with the handshake
    lateness: dict[str, object] = field(default_factory=lambda: {"count": 0})
    broker: dict[str, float | None] = field(default_factory=dict)
    generator: dict[str, float] = field(default_factory=dict)
    foreign_cpu_share: float = 0.0
    limit: str = "neither"      # broker, generator, rate, neither
    complete: bool = True
    timeline: list[dict[str, float]] = field(default_factory=list)
    extra: dict[str, float | str | None] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.per / self.seconds if self.seconds > 0 else 0.0

    @property
    def exact(self) -> bool:
        """Return whether every message arrived once and in order, and its publisher received the acknowledgement."""
        return not (self.lost or self.outstanding or self.duplicates or self.out_of_order or self.refused or self.unsent
                    or self.unacknowledged or self.closed)

    def as_dict(self) -> dict[str, object]:
        """Return the figures for JSON."""
        return {**asdict(self), "rate": self.rate, "exact": self.exact}


@dataclass
class Result:
    """Hold the result of a run."""

    spec: dict[str, object]
    machine: dict[str, object]
    started: str
    phases: list[Phase] = field(default_factory=list)
    complete: bool = True
    why: str = ""               # reason if the run is not complete
    where: str = ""             # the broker: mosq with --start, else HOST:PORT

    @property
    def exact(self) -> bool:
        return all(phase.exact for phase in self.phases)

    def as_dict(self) -> dict[str, object]:
        """Return the result for JSON."""
        return {"format": FORMAT, "scenario": self.spec["scenario"], "where": self.where,
                "complete": self.complete, "why": self.why,
                "exact": self.exact, "started": self.started, "options": self.spec, "machine": self.machine,
                "phases": [phase.as_dict() for phase in self.phases]}
