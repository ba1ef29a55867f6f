"""What was measured, as the report sees it: a `Row` for each phase of each run, and the `Folder` they lie in. Plain
values that reading.py has checked; None: not measured.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

MOSQ = "mosq"
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "p9999_us": 0.9999}


@dataclass(frozen=True)
class Times:
    """A histogram of durations: its summary in microseconds and, where kept, its buckets: from ns, to before ns, how
    many."""

    count: int = 0
    us: dict[str, float] = field(default_factory=dict)      # mean_us, stdev_us, p50_us ... max_us
    buckets: array[int] = field(default_factory=lambda: array("Q"))


@dataclass(frozen=True)
class Key:
    """What repetitions of one measurement have in common."""

    suite: str
    test: str
    case: str
    x: float | None
    broker: str
    variant: str
    phase: str


@dataclass(frozen=True)
class Row:
    key: Key
    title: str
    x_name: str
    rep: int
    command: str
    scenario: str
    unit: str
    qos: int | None
    size: int | None
    clients: int | None
    fixed_rate: bool
    plain: bool                     # neither TLS nor WebSockets
    seconds: float
    per: int
    rate: float
    latency: Times
    ack: Times
    connect: Times
    broker: dict[str, float]
    generator: dict[str, float]
    counts: dict[str, int]          # lost, duplicates ...
    sizes: dict[str, float]         # bytes_per_client ...
    foreign_share: float
    limit: str
    complete: bool
    note: str                       # of whoever planned the run: what else the reader must know of the case
    start: str                      # the command that started the broker
    dropped: int                    # packets, by the kernel, during the run

    @property
    def times(self) -> Times:
        """The durations that say most: of deliveries, else of connecting, else of acknowledgements."""
        return next((times for times in (self.latency, self.connect, self.ack) if times.count), self.latency)


@dataclass(frozen=True)
class Failed:
    """A run that did not come to its end."""

    key: Key
    title: str
    rep: int
    why: str


@dataclass(frozen=True)
class Broker:
    name: str
    version: str
    settings: str
    program: str


@dataclass(frozen=True)
class About:
    title: str = ""
    commit: str = ""
    dirty: bool = False
    machine: dict[str, str] = field(default_factory=dict)
    brokers: tuple[Broker, ...] = ()
    command: str = ""
    started: str = ""
    ended: str = ""
    complete: bool = True
    why: str = ""
    left_out: tuple[str, ...] = ()      # sentences: what was planned and not measured


@dataclass(frozen=True)
class Requests:
    """One row of a load test with locust."""

    type: str
    name: str
    requests: int
    failures: int
    rate: float
    us: dict[str, float]


@dataclass(frozen=True)
class Locust:
    broker: str
    started: str
    users: int
    seconds: float
    entries: tuple[Requests, ...]
    errors: tuple[tuple[str, str, str, int], ...]   # type, name, what, how often
    messages: dict[str, int]        # sent, delivered, lost, ...
    cpu_us: float | None            # of locust itself, per request
    limited: bool                   # by locust itself
    complete: bool
    why: str


@dataclass
class Folder:
    path: str
    about: About = field(default_factory=About)
    rows: list[Row] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    locust: Locust | None = None
    problems: list[str] = field(default_factory=list)       # what could not be read: FILE:LINE: why
    runs: int = 0
    columns: set[str] = field(default_factory=set)          # brokers and variants: what tables have columns of

    def brokers(self) -> list[str]:
        """mosq first, then as the lab names them: the order of all colours and columns."""
        named = [broker.name for broker in self.about.brokers]
        met = sorted({row.key.broker for row in self.rows} | {run.key.broker for run in self.failed})
        return sorted(dict.fromkeys(named + met), key=lambda name: name != MOSQ)


def label(broker: str, variant: str = "") -> str:
    name = broker or "the broker"
    return f"{name}, {variant}" if variant else name
