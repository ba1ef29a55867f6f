"""Define the measured values as the report uses them: a `Row` for each phase of each run, and the `Folder` of rows.

These are plain values that reading.py has checked; None means not measured.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

MOSQ = "mosq"
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "p9999_us": 0.9999}


@dataclass(frozen=True)
class Times:
    """Hold a histogram of durations: its summary in microseconds and, if known, its buckets (from ns, to before ns,
    count).
    """

    count: int = 0
    us: dict[str, float] = field(default_factory=dict)      # mean_us, stdev_us, p50_us ... max_us
    buckets: array[int] = field(default_factory=lambda: array("Q"))


@dataclass(frozen=True)
class Key:
    """Identify a measurement; its repetitions have the same key."""

    suite: str
    test: str
    case: str
    x: float | None
    broker: str
    variant: str
    phase: str


@dataclass(frozen=True)
class Row:
    """Hold one phase of one run."""

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
    note: str                       # further note on the case, from the plan of the run
    start: str                      # the command that started the broker
    dropped: int                    # packets that the kernel dropped during the run

    @property
    def times(self) -> Times:
        """Return the durations of deliveries if there are any, else of connecting, else of acknowledgements."""
        return next((times for times in (self.latency, self.connect, self.ack) if times.count), self.latency)


@dataclass(frozen=True)
class Failed:
    """Hold a run that was not complete."""

    key: Key
    title: str
    rep: int
    why: str


@dataclass(frozen=True)
class Broker:
    """Describe a broker of the lab."""

    name: str
    version: str
    settings: str
    program: str


@dataclass(frozen=True)
class About:
    """Hold about.json: where the results come from."""

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
    left_out: tuple[str, ...] = ()      # sentences about planned measurements that were not made


@dataclass(frozen=True)
class Requests:
    """Hold one row of a load test with locust."""

    type: str
    name: str
    requests: int
    failures: int
    rate: float
    us: dict[str, float]


@dataclass(frozen=True)
class Locust:
    """Hold locust.json: the results of a load test."""

    broker: str
    started: str
    users: int
    seconds: float
    entries: tuple[Requests, ...]
    errors: tuple[tuple[str, str, str, int], ...]   # type, name, error, count
    messages: dict[str, int]        # sent, delivered, lost, ...
    cpu_us: float | None            # CPU of locust itself per request
    limited: bool                   # locust was the bottleneck
    complete: bool
    why: str


@dataclass
class Folder:
    """Hold a folder of results, as far as it could be read."""

    path: str
    about: About = field(default_factory=About)
    rows: list[Row] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    locust: Locust | None = None
    problems: list[str] = field(default_factory=list)       # unreadable parts of files, as FILE:LINE: reason
    runs: int = 0
    columns: set[str] = field(default_factory=set)          # brokers and variants, which are columns of tables

    def brokers(self) -> list[str]:
        """Return mosq first, then the brokers in the lab's order: the order of all colours and columns."""
        named = [broker.name for broker in self.about.brokers]
        met = sorted({row.key.broker for row in self.rows} | {run.key.broker for run in self.failed})
        return sorted(dict.fromkeys(named + met), key=lambda name: name != MOSQ)


def label(broker: str, variant: str = "") -> str:
    """Return the name of a broker or variant for readers."""
    name = broker or "the broker"
    return f"{name}, {variant}" if variant else name
