"""Define the suites as data: their `mosq bench` commands, sizes and brokers.

A test is a scenario of `mosq bench` with its cases; a case is one command line for every broker. A `timed` test
publishes for the time that the lab sets; all others count messages. Numbers in N() shrink with --scale; `quick` cases
are those of --quick. A title names the full numbers: if a run has others, it is marked as scaled, and the case names
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from perf.ablation.variants import AGAIN, VARIANTS, Variant

SPARE = 100                     # descriptors that a broker needs for itself, an upper estimate
STALL_S = "30"                  # a broker that is busy with a backlog may be silent for long


@dataclass(frozen=True)
class N:
    """Hold a number that shrinks with --scale, down to `least`."""

    value: int
    least: int = 1
    quick: int = 0              # value with --quick; 0: the same

    def at(self, scale: float, quick: bool = False) -> int:
        value = self.quick if quick and self.quick else self.value
        return max(min(self.least, value), round(value * scale))


@dataclass(frozen=True)
class Case:
    """Hold one command line."""

    text: str                   # text for readers; {} stands for x if that is an N
    options: dict[str, object]
    x: N | float | None = None
    quick: bool = True


@dataclass(frozen=True)
class Test:
    """Hold a test with its cases."""

    id: str
    title: str
    scenario: str
    cases: tuple[Case, ...]
    x_name: str = ""
    timed: bool = False
    durable: bool = False       # sessions on disk, if the broker supports it
    transport: str = "tcp"
    note: str = ""


@dataclass(frozen=True)
class Suite:
    """Hold a suite of tests."""

    name: str
    title: str
    tests: tuple[Test, ...]
    brokers: str                # brokers by default, in the form of --brokers
    reps: int = 3
    about: str = ""


# ---------------------------------------------------------------- variants: mosq with optimisations switched off

PLAIN = Variant("plain", "the plain tree: no table of exact filters, letters, hash, match cache or pool", None,
                ("--index", "tree", "--child-hash-threshold", "off", "--match-cache", "off", "--pool", "off"))
SINGLE = ("no letters", "no exact hash", "no child hash", "no match cache", "no pool")
VARIANTS_OF_MOSQ = {one.name: one for one in (PLAIN, *VARIANTS) if one.broker or one.name == AGAIN}
EACH = ",".join(["mosq", f"mosq:{AGAIN}", "mosq:plain", *(f"mosq:{name}" for name in SINGLE)])


# ---------------------------------------------------------------- the paper's four tests

def _qos(options: dict[str, object], levels: tuple[int, ...] = (0, 1, 2)) -> tuple[Case, ...]:
    return tuple(Case(f"QoS {qos}", {**options, "qos": qos}) for qos in levels)


def size_text(n: int) -> str:
    """Format a size in bytes."""
    unit, name = next((u, s) for u, s in ((1_000_000, "MB"), (1_000, "kB"), (1, "B")) if n >= u and n % u == 0)
    return f"{n // unit} {name}"


# Publishing pauses while a window of messages is on its way: else QoS 0 would compare the sizes of buffers
PAPER = Suite("paper", "The paper's four tests", (
    Test("paper-1", "10 publishers x 1,000 messages, 1,000 subscribers", "fan-out",
         _qos({"publishers": 10, "subscribers": N(1000, 20), "messages": N(10_000, 20, 500)})),
    Test("paper-2", "20 publishers x 10 k to 70 k messages, QoS 0", "fan-in", tuple(
        Case("{} messages each", {"publishers": 20, "messages": N(20 * n, 200)}, N(n, 10), quick=n % 30_000 == 10_000)
        for n in range(10_000, 70_001, 10_000)), "messages"),
    Test("paper-3", "1,000 to 20,000 publishers with one message each, QoS 0", "fan-in", tuple(
        Case("{} publishers", {"publishers": N(n, 100), "messages": N(n, 100)}, N(n, 100), quick=n in (1000, 20_000))
        for n in (1000, 2000, 5000, 10_000, 15_000, 20_000)), "publishers",
        note="from the first message to the last; test connect of suite bench measures connecting"),
    Test("paper-4", "20 publishers x 10 messages of 100 B to 10 MB, QoS 0", "fan-in", tuple(
        Case(size_text(n), {"publishers": 20, "messages": N(200, 20, 40 if n > 10**6 else 0), "size": n}, n,
             quick=n not in (1000, 100_000))
        for n in (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)), "bytes",
        note="200 messages in all: below 10 kB a run takes milliseconds, so its figures vary"),
), f"{EACH},mosquitto", about="beside mosq: the plain tree, each optimisation switched off alone, Debian's Mosquitto")


# ---------------------------------------------------------------- the vendors' open suite, and TBMQ's

def _flat_and_paced(options: dict[str, object], rate: int) -> tuple[Case, ...]:
    return (Case("flat out", options), Case(f"{rate:,} msg/s", {**options, "rate": rate}))


DURABILITY = "durability differs between brokers: about.json has the settings of each"
SMALL: dict[str, object] = {"size": 16, "qos": 1}
VENDORS = Suite("vendors", "The vendors' open benchmark suite, scaled to one machine", (
    Test("p2p", "point to point: 1,000 publishers, topics and subscribers, QoS 1, 16 B", "pairs",
         _flat_and_paced({"publishers": N(1000, 10), **SMALL}, 10_000), timed=True),
    Test("vendors-fan-out", "fan-out: 5 publishers to 1,000 subscribers, QoS 1, 16 B", "fan-out",
         _flat_and_paced({"publishers": 5, "subscribers": N(1000, 20), **SMALL}, 20), timed=True),
    Test("shared-fan-in", "shared fan-in: 1,000 publishers to a group of 10, QoS 1, 16 B, MQTT 5", "shared",
         _flat_and_paced({"publishers": N(1000, 20), "subscribers": 10, "mqtt": "5", **SMALL}, 10_000), timed=True),
    Test("tbmq-p2p", "TBMQ's persistent point to point: 100 pairs, QoS 1, clean 0, 62 B", "pairs",
         _flat_and_paced({"size": 62, "qos": 1, "session": True}, 10_000), timed=True, durable=True,
         note=DURABILITY),
), "all", about="p2p and shared fan-in of mqttbs have 50,000 clients; these have 1,000, flat out and at a fixed rate")


# ---------------------------------------------------------------- all scenarios of `mosq bench`

def _clients(*counts: int) -> tuple[Case, ...]:
    return tuple(Case("{} clients", {"clients": N(n, 50), "hold": 0}, N(n, 50)) for n in counts)


BENCH = Suite("bench", "mosq bench, scenario by scenario", (
    Test("fan-in", "fan-in: 50 publishers to 1 subscriber, 64 B", "fan-in", _qos({}), timed=True),
    Test("fan-out", "fan-out: 1 publisher to 1,000 subscribers, 64 B", "fan-out", _qos({"subscribers": N(1000, 20)}),
         timed=True),
    Test("pairs", "100 pairs, 64 B", "pairs", _qos({}), timed=True),
    Test("pairs-single", "100 pairs, 64 B, one message per send", "pairs",
         (Case("QoS 0", {"burst": 1, "window": 2000}),), timed=True),
    Test("paced", "100 pairs at a fixed 20,000 msg/s, 64 B", "pairs", _qos({"rate": 20_000, "inflight": 100}, (0, 1)),
         timed=True),
    Test("session", "100 pairs, 64 B, durable sessions (clean 0) on disk", "pairs",
         _qos({"session": True}, (1, 2)), timed=True, durable=True, note=DURABILITY),
    Test("shared", "50 publishers to a shared group of 10, 64 B, MQTT 5", "shared", _qos({"mqtt": "5"}, (0, 1)),
         timed=True),
    Test("tls", "100 pairs over TLS, 64 B", "pairs", _qos({"tls": True, "insecure": True}, (0, 1)), timed=True,
         transport="tls"),
    Test("tls-connect", "clients over TLS: connecting with a full handshake each, and memory", "connect",
         (Case("flat out", {"clients": N(1000, 50), "hold": 0, "tls": True, "insecure": True}),), transport="tls"),
    Test("ws", "100 pairs over WebSockets, 64 B", "pairs", _qos({"ws": True}, (0, 1)), timed=True, transport="ws"),
    Test("connect", "idle clients: connecting, and memory", "connect", _clients(1000, 5000, 10_000), "clients"),
    Test("storm", "1,000 clients all at once, three times", "storm", (Case("flat out", {"clients": N(1000, 50)}),)),
    Test("subscribe", "100,000 filters of 100 clients, 60 % exact, 30 % with +, 10 % with #", "subscribe",
         (Case("flat out", {"filters": N(100_000, 200)}),)),
    Test("match", "messages that match some of many filters, 60 % exact, 30 % with +, 10 % with #", "match",
         tuple(Case(f"{n:,} filters", {"filters": n}) for n in (1000, 100_000)), timed=True),
    Test("offline", "500 QoS 1 messages for each of 100 offline clients, which then come back", "offline",
         (Case("flat out", {"messages": N(500, 10)}),)),
    Test("retained", "100,000 topics with a retained message each; then one subscriber to all", "retained",
         (Case("flat out", {"topics": N(100_000, 200)}),)),
    Test("payloads", "fan-in of 10 publishers by size of payload", "fan-in", tuple(
        Case(size_text(n), {"publishers": 10, "size": n}, n) for n in (64, 1000, 16_000, 256_000, 1_000_000)),
        "bytes", timed=True),
), "all")

# The table of README.md: rows in which a broker can save much, and rows in which it cannot
_OF_BENCH = {test.id: replace(test, id=f"cost-{test.id}") for test in BENCH.tests}
COST = Suite("cost", "CPU per message beside the relay, the least that a broker can cost", (
    replace(_OF_BENCH["fan-in"], cases=_qos({}, (0,))),
    replace(_OF_BENCH["fan-out"], cases=_qos({"subscribers": N(1000, 20)}, (0,))),
    _OF_BENCH["pairs"], _OF_BENCH["pairs-single"], _OF_BENCH["paced"],
    Test("cost-large", "fan-in of 10 publishers, 1 MB, 10 messages in transit", "fan-in",
         _qos({"publishers": 10, "size": 1_000_000, "window": 10, "burst": 1}, (0,)), timed=True),
    replace(_OF_BENCH["connect"], cases=_clients(1000, 10_000)),
), "relay,all", about="python -m perf.summary DIR prints the table of README.md")

# The share of each optimisation: the paper's tests do not show it, because they have few filters
ABLATION = Suite("ablation", "Each optimisation switched off alone", (
    Test("ablation-one", "1 publisher, 1 topic, 1 subscriber, 64 B", "pairs",
         (Case("QoS 0", {"publishers": 1}),), timed=True),
    Test("ablation-match", "messages that match some of many filters, 60 % exact, 30 % with +, 10 % with #", "match",
         tuple(Case(f"{n:,} filters", {"filters": n}) for n in (1000, 100_000)), timed=True),
    Test("ablation-connect", "idle clients: connecting, and memory", "connect", _clients(10_000), "clients"),
), EACH, about="the effect of each, in tests that show it; make ablation measures the index by itself")

SUITES = {suite.name: suite for suite in (PAPER, ABLATION, VENDORS, BENCH, COST)}


# ---------------------------------------------------------------- from data to runs

@dataclass(frozen=True)
class Load:
    """Hold one case with its numbers, with which each broker is measured."""

    suite: str
    test: Test
    text: str
    x: float | None
    arguments: tuple[str, ...]
    scaled: bool = False        # its numbers differ from those of its title
    note: str = ""
    hint_s: float = 2.0         # estimated duration of a run

    @property
    def mqtt_5(self) -> bool:
        return ("--mqtt", "5") in pairwise(self.arguments)

    @property
    def title(self) -> str:
        return f"{self.test.title}, scaled" if self.scaled else self.test.title

    @property
    def key(self) -> tuple[str, str, str]:
        return self.suite, self.test.id, self.text


def loads(suite: Suite, seconds: float, descriptors: int, *, quick: bool = False,
          scale: float = 1.0) -> list[Load]:
    """Return the loads in their order; cases that the limit of descriptors makes equal occur once."""
    found: dict[tuple[str, str, str], Load] = {}
    for test in suite.tests:
        for case in test.cases:
            if case.quick or not quick:
                one = _load(suite, test, case, scale, quick, seconds, descriptors)
                found.setdefault(one.key, one)
    scaled = {one.test.id for one in found.values() if one.scaled}
    return [replace(one, scaled=one.test.id in scaled) for one in found.values()]


def _load(suite: Suite, test: Test, case: Case, scale: float, quick: bool, seconds: float, descriptors: int) -> Load:
    def sized(value: object) -> object:
        return value.at(scale, quick) if isinstance(value, N) else value

    options = {name: sized(value) for name, value in case.options.items()}
    full = {name: value.value if isinstance(value, N) else value for name, value in case.options.items()}
    scaled = options != full
    x = case.x.at(scale, quick) if isinstance(case.x, N) else case.x
    note = test.note
    most = descriptors - SPARE
    role = next((role for role in ("clients", "publishers", "subscribers") if _connections(test, options) > most
                 and role in options), "")
    if role:
        wanted = options[role]
        options[role] = fitted = max(1, _fitting(test, options, role, most))
        if x == wanted:
            x = fitted
        if options.get("messages") == wanted:
            options["messages"] = fitted
        limit = f"{fitted:,} {role} instead of {wanted:,}: {descriptors:,} open files are allowed (ulimit -n)"
        note = f"{note}; {limit}" if note else limit
    text = case.text.format(f"{x:,}") if isinstance(case.x, N) else case.text
    if not isinstance(case.x, N) and (other := [f"{value:,} {name}" for name, value in options.items()
                                                if value != full[name]]):
        text += f" ({', '.join(other)})"
    if test.timed:
        options |= {"seconds": seconds, "warmup": round(min(0.5, seconds / 4), 3)}
    options["stall"] = STALL_S
    arguments = tuple(part for name, value in options.items()
                      for part in ((f"--{name}",) if value is True else (f"--{name}", f"{value}")))
    return Load(suite.name, test, text, x, (test.scenario, *arguments), scaled, note,
                seconds + 1.5 if test.timed else 2.0)


def _connections(test: Test, options: dict[str, object]) -> int:
    from mosq.tools.bench.scenarios import clients_of
    from mosq.tools.bench.spec import Spec

    counts = {name: value for name, value in options.items() if name in ("clients", "publishers", "subscribers")}
    return clients_of(Spec(test.scenario, **counts))  # type: ignore[arg-type]


def _fitting(test: Test, options: dict[str, object], role: str, most: int) -> int:
    low, high = 0, int(str(options[role]))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _connections(test, {**options, role: middle}) <= most else (low, middle)
    return low


