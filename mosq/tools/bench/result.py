"""What a run tells: one `Phase` for each part that was measured, and the `Result` of all. Plain data; how it is written
stands in report.py and parquet.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

BUSY = 0.9                      # from this share of a core on, whoever has it is what limits a run
FORMAT = 1                      # of the JSON


@dataclass
class Phase:
    name: str
    seconds: float = 0.0
    published: int = 0
    delivered: int = 0          # with those that came twice
    per: int = 0                # what costs are divided by
    unit: str = "message"       # and what one of it is
    # of the whole phase, with its warm-up
    expected: int = 0
    lost: int = 0
    outstanding: int = 0        # the same of a phase that was not completed: perhaps they were on their way
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
    handshake: dict[str, object] = field(default_factory=lambda: {"count": 0})    # of TLS and WebSocket
    connect: dict[str, object] = field(default_factory=lambda: {"count": 0})        # with it
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
        """Every message came once and in order, and whoever published was told so."""
        return not (self.lost or self.outstanding or self.duplicates or self.out_of_order or self.refused or self.unsent
                    or self.unacknowledged or self.closed)

    def told(self) -> dict[str, object]:
        return {**asdict(self), "rate": self.rate, "exact": self.exact}


@dataclass
class Result:
    spec: dict[str, object]
    machine: dict[str, object]
    started: str
    phases: list[Phase] = field(default_factory=list)
    complete: bool = True
    why: str = ""               # it is not
    where: str = ""             # the broker: mosq, of --start, else HOST:PORT

    @property
    def exact(self) -> bool:
        return all(phase.exact for phase in self.phases)

    def told(self) -> dict[str, object]:
        return {"format": FORMAT, "scenario": self.spec["scenario"], "where": self.where,
                "complete": self.complete, "why": self.why,
                "exact": self.exact, "started": self.started, "options": self.spec, "machine": self.machine,
                "phases": [phase.told() for phase in self.phases]}
