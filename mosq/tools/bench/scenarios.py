"""Define the scenarios: the clients, their subscriptions, the published messages, and the measured parts.

Each scenario is a sequence of goals for one Generator. A new one must be added here and in command.py.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING

from mosq._bench import Generator
from mosq.tools.bench.runner import Runner, Stalled, Stopped, resolved
from mosq.tools.bench.spec import BenchError
from mosq.tools.bench.topics import MIX, Corpus
from mosq.tools.bench.transport import transport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mosq.tools.bench.result import Phase
    from mosq.tools.bench.runner import Progress
    from mosq.tools.bench.spec import Spec

EXPIRY_S = 3600                 # session expiry, in case that the sessions are not removed at the end
WINDOW_BYTES = 32 << 20         # payload bytes that may be on their way: brokers drop messages beyond their limits
QUIET_S = 0.3                   # wait after the last expected message, to find unexpected ones


class Scene:
    """Hold a spec, a Generator, and the names of its clients."""

    def __init__(self, spec: Spec, runner: Runner, *, publishers: int, receivers: int) -> None:
        self.spec, self.runner = spec, runner
        self.mark = secrets.randbelow(0xFFFF) + 1
        self.root = f"{spec.prefix}/{self.mark:04x}"
        self.publishers, self.receivers, self.clients = publishers, receivers, publishers + receivers
        ip, scope = resolved(spec)
        self.generator = Generator(
            ip, spec.port, scope=scope, clients=self.clients, publishers=publishers, version=spec.version, qos=spec.qos,
            payload=spec.size, mark=self.mark, inflight=spec.inflight,
            burst=spec.burst, window=window_of(spec), stall_s=spec.stall, **transport(spec))
        runner.begin(self.generator)

    def greet(self, first: int = 0, *, clean: bool = True) -> None:
        expiry = 0 if clean or self.spec.version != 5 else EXPIRY_S
        self.generator.greetings([self._name(i) for i in range(first, self.clients)], first=first, clean=clean,
                                 session_expiry=expiry)

    def _name(self, i: int) -> tuple[bytes, bytes | None, bytes | None]:
        user, password = (None if text is None else text.replace("%i", str(i)).encode()
                          for text in (self.spec.username, self.spec.password))
        return f"{self.spec.prefix}-{self.mark:04x}-{i}".encode(), user, password

    def connect(self, first: int, n: int) -> None:
        self.generator.connect(first, n, self.spec.pending)
        self.runner.reach("connecting")

    def subscribe(self, filters: Sequence[str], first: int, n: int) -> None:
        self.generator.subscribe([filter.encode() for filter in filters], first, n)
        self.runner.reach("subscribing")

    def sources(self, topics: Sequence[str], fans: Sequence[int], *, retain: bool = False, stride: int = 0,
                drawn: bool = False, payload: int | None = None) -> None:
        self.generator.sources([topic.encode() for topic in topics], fans, retain=retain, stride=stride, drawn=drawn,
                               payload=payload)

    def measured_flow(self, name: str, **extra: float) -> None:
        spec = self.spec
        with self.runner.phase(name) as phase:
            phase.extra.update(extra)
            self.runner.flow(phase, messages=spec.messages, seconds=spec.seconds, warmup=spec.warmup, rate=spec.rate)

    def leave(self) -> None:
        self.generator.leave(0, self.clients)
        self.runner.reach("disconnecting")

    def end(self) -> None:
        """Disconnect after all measurements; note it if the broker still sends acknowledgements."""
        try:
            self.leave()
        except Stalled:
            self.runner.phases[-1].extra["at_the_end"] = (
                f"{self.spec.stall:g} s after DISCONNECT the broker had not closed all connections")

    def left_behind(self, why: Stopped) -> None:
        for phase in self.runner.phases[-1:]:
            phase.extra["at_the_end"] = f"data of this run was not removed from the broker: {why}"


def window_of(spec: Spec) -> int:
    """Return how many deliveries may be on their way; 0: no limit, as for a fixed rate."""
    if spec.rate or not spec.window:
        return 0
    return min(spec.window, max(1, WINDOW_BYTES // spec.size))


# ---------------------------------------------------------------- flows

def fan_in(spec: Spec, runner: Runner, name: str = "fan-in") -> None:
    """Publish on one topic per publisher; every subscriber receives everything."""
    scene = Scene(spec, runner, publishers=spec.publishers, receivers=spec.subscribers)
    scene.sources([f"{scene.root}/pub/{i}/data" for i in range(spec.publishers)], [spec.subscribers] * spec.publishers)
    scene.generator.streams([(0, spec.publishers)] * spec.subscribers)
    _flow(scene, name, [f"{scene.root}/#"] * spec.subscribers)


def fan_out(spec: Spec, runner: Runner) -> None:
    """Publish on one topic that all subscribers receive."""
    scene = Scene(spec, runner, publishers=spec.publishers, receivers=spec.subscribers)
    scene.sources([f"{scene.root}/all"] * spec.publishers, [spec.subscribers] * spec.publishers)
    scene.generator.streams([(0, spec.publishers)] * spec.subscribers)
    _flow(scene, "fan-out", [f"{scene.root}/all"] * spec.subscribers)


def pairs(spec: Spec, runner: Runner) -> None:
    """Publish on one topic per pair of a publisher and a subscriber."""
    n = spec.publishers
    scene = Scene(spec, runner, publishers=n, receivers=n)
    topics = [f"{scene.root}/pair/{i}" for i in range(n)]
    scene.sources(topics, [1] * n)
    scene.generator.streams([(i, 1) for i in range(n)])
    _flow(scene, "pairs", topics)


def shared(spec: Spec, runner: Runner) -> None:
    """Let one group receive all messages: each message goes to one member, in the order of its publisher."""
    scene = Scene(spec, runner, publishers=spec.publishers, receivers=spec.subscribers)
    scene.sources([f"{scene.root}/pub/{i}/data" for i in range(spec.publishers)], [1] * spec.publishers)
    scene.generator.streams([(0, spec.publishers)] * spec.subscribers, shared=True)
    _flow(scene, "shared", [f"$share/bench/{scene.root}/#"] * spec.subscribers)


def _flow(scene: Scene, name: str, filters: Sequence[str]) -> None:
    """Run a whole flow; receiver i subscribes to filters[i]."""
    scene.greet(clean=not scene.spec.session)
    scene.connect(0, scene.clients)
    try:
        scene.subscribe(filters, scene.publishers, scene.receivers)
        scene.measured_flow(name)
    finally:
        if scene.spec.session:
            _forget_sessions(scene)
    scene.end()


def payloads(spec: Spec, runner: Runner) -> None:
    """Run fan-in with each size in turn."""
    for size in spec.sizes:
        fan_in(dataclasses.replace(spec, size=size), runner, f"{size} B")


# ---------------------------------------------------------------- clients

def connect(spec: Spec, runner: Runner) -> None:
    """Measure the cost of connecting idle clients, and their memory."""
    scene = Scene(spec, runner, publishers=0, receivers=spec.clients)
    scene.greet()
    with runner.phase("connect", "client") as phase:
        _all_up(scene, phase)
    before, after = phase.broker.get("rss_before_bytes"), phase.broker.get("rss_after_bytes")
    phase.extra["bytes_per_client"] = (after - before) / spec.clients if after and before else None
    if spec.hold:
        with runner.phase("hold", "client") as held:
            runner.hold(spec.hold)
            held.per = spec.clients
    scene.end()


def storm(spec: Spec, runner: Runner) -> None:
    """Let all clients connect at once, with their logins, and leave; repeat it `rounds` times."""
    spec = dataclasses.replace(spec, pending=spec.clients)
    scene = Scene(spec, runner, publishers=0, receivers=spec.clients)
    scene.greet()
    for number in range(1, spec.rounds + 1):
        with runner.phase(f"storm {number}", "client") as phase:
            _all_up(scene, phase)
        scene.leave()


def _all_up(scene: Scene, phase: Phase) -> None:
    """Connect all clients; refused ones are counted, and the others continue."""
    generator = scene.generator
    before = generator.counts()["up"]
    generator.tolerate(True)
    try:
        scene.connect(0, scene.clients)
    finally:
        generator.tolerate(False)
        phase.per = generator.counts()["up"] - before
    scene.runner.check()


# ---------------------------------------------------------------- state of the broker

def subscribe(spec: Spec, runner: Runner) -> None:
    """Measure the subscriptions of many filters, and their memory."""
    scene = Scene(spec, runner, publishers=0, receivers=spec.clients)
    scene.greet()
    scene.connect(0, scene.clients)
    _filters_in(scene, Corpus(spec.kind, spec.filters))
    scene.end()


def _filters_in(scene: Scene, corpus: Corpus) -> None:
    filters = [f"{scene.root}/{filter}" for filter in corpus.filters()]
    with scene.runner.phase("subscribe", "filter") as phase:
        scene.subscribe(filters, scene.publishers, scene.receivers)
        phase.per = len(filters)
    before, after = phase.broker.get("rss_before_bytes"), phase.broker.get("rss_after_bytes")
    phase.extra["bytes_per_filter"] = (after - before) / len(filters) if after and before else None


def match(spec: Spec, runner: Runner) -> None:
    """Publish on topics that match some of many filters.

    No client has two filters that match one topic, because brokers may send it one copy or two [v5 3.3.4]: with a mix,
    client i has only filters of kind MIX[i % 10].
    """
    if spec.kind == "mix" and spec.clients % len(MIX):
        raise BenchError(f"{spec.clients} clients for a mix of filters: expected a multiple of {len(MIX)}")
    corpus = Corpus(spec.kind, spec.filters)
    topics = corpus.drawn(spec.topics)
    publishers = min(spec.publishers, len(topics))
    scene = Scene(spec, runner, publishers=publishers, receivers=spec.clients)
    scene.greet()
    takers = [[publishers + i % spec.clients for i in corpus.matches(topic)] for topic in topics]
    scene.sources([f"{scene.root}/{corpus.topic(topic)}" for topic in topics], [len(these) for these in takers],
                  stride=publishers, drawn=True)
    scene.generator.takers(takers)
    scene.connect(0, scene.clients)
    _filters_in(scene, corpus)
    scene.measured_flow("match", topics=len(topics), mean_fan=sum(map(len, takers)) / len(takers))
    scene.end()


def offline(spec: Spec, runner: Runner) -> None:
    """Publish for sessions whose clients are offline; then the clients come back."""
    qos = spec.qos or 1
    each = spec.messages or 500
    publishers = min(spec.publishers, spec.clients)
    while spec.clients % publishers:
        publishers -= 1
    spec = dataclasses.replace(spec, qos=qos, publishers=publishers, window=0)
    scene = Scene(spec, runner, publishers=publishers, receivers=spec.clients)
    scene.greet()
    scene.greet(publishers, clean=False)
    topics = [f"{scene.root}/offline/{i}" for i in range(spec.clients)]
    scene.sources(topics, [0] * spec.clients, stride=publishers)
    scene.generator.streams([(i, 1) for i in range(spec.clients)])
    scene.connect(0, scene.clients)
    try:
        scene.subscribe(topics, publishers, spec.clients)
        scene.generator.leave(publishers, spec.clients)
        runner.reach("disconnecting")
        with runner.phase("store") as phase:
            runner.flow(phase, messages=each * spec.clients, rate=spec.rate)
            phase.per = each * spec.clients
        before, after = phase.broker.get("rss_before_bytes"), phase.broker.get("rss_after_bytes")
        phase.extra["bytes_per_queued"] = (after - before) / phase.per if after and before else None
        with runner.phase("drain") as phase:
            _fetched(scene, phase, each * spec.clients, publishers, spec.clients)
        phase.latency = {"count": 0}            # a latency would count from publishing
    finally:
        if not spec.keep:
            _forget_sessions(scene, publishers)
    scene.end()


def _forget_sessions(scene: Scene, first: int = 0) -> None:
    """Connect the same clients again with a clean start, which removes their sessions."""
    if scene.generator.failure() is not None:
        return
    try:
        scene.generator.leave(first, scene.clients - first)
        scene.runner.reach("disconnecting")
        scene.greet(first)
        scene.connect(first, scene.clients - first)
    except Stopped as stopped:
        scene.left_behind(stopped)


def _fetched(scene: Scene, phase: Phase, expected: int, first: int, n: int, filters: Sequence[str] = ()) -> None:
    """Receive the messages that the broker has stored, after connecting or subscribing."""
    generator, runner = scene.generator, scene.runner
    generator.expect(expected)
    if filters:
        scene.subscribe(filters, first, n)
    else:
        scene.connect(first, n)
    generator.receive()
    try:
        runner.reach("receiving")
    except Stopped:
        if generator.failure() is not None:
            raise                               # else the missing messages are lost, and counted
    runner.stop_clock()
    runner.hold(QUIET_S)


def retained(spec: Spec, runner: Runner) -> None:
    """Store a retained message for each topic; then one client subscribes to all."""
    publishers = min(spec.publishers, spec.topics)
    n = spec.topics - spec.topics % publishers
    spec = dataclasses.replace(spec, window=0)
    scene = Scene(spec, runner, publishers=publishers, receivers=1)
    scene.greet()
    topics = [f"{scene.root}/ret/site/{i % 1000}/dev/{i // 1000}/state" for i in range(n)]
    scene.sources(topics, [0] * n, retain=True, stride=publishers)
    scene.generator.streams([(0, n)])
    scene.connect(0, scene.clients)
    try:
        with runner.phase("store") as phase:
            runner.flow(phase, messages=n, rate=spec.rate)
            scene.generator.ping()              # at QoS 0 only the PINGRESP shows that the broker has read everything
            runner.reach("waiting until the broker has read all messages")
            phase.per = n
        before, after = phase.broker.get("rss_before_bytes"), phase.broker.get("rss_after_bytes")
        phase.extra["bytes_per_retained"] = (after - before) / n if after and before else None
        with runner.phase("fetch") as phase:
            _fetched(scene, phase, n, publishers, 1, [f"{scene.root}/ret/#"])
        phase.latency = {"count": 0}            # a latency would count from publishing
    finally:
        if not spec.keep and scene.generator.failure() is None:
            _forget_retained(scene, topics)
    scene.end()


def _forget_retained(scene: Scene, topics: Sequence[str]) -> None:
    scene.sources(topics, [0] * len(topics), retain=True, stride=scene.publishers, payload=0)
    scene.generator.publish(messages=len(topics))
    try:
        scene.runner.reach("cleaning up")
        scene.generator.ping()
        scene.runner.reach("cleaning up")
    except Stopped as stopped:
        scene.left_behind(stopped)


SCENARIOS = {"fan-in": fan_in, "fan-out": fan_out, "pairs": pairs, "shared": shared, "connect": connect, "storm": storm,
             "offline": offline, "subscribe": subscribe, "match": match, "retained": retained, "payloads": payloads}


def clients_of(spec: Spec) -> int:
    """Return how many connections the run needs."""
    if spec.scenario in ("connect", "storm", "subscribe"):
        return spec.clients
    if spec.scenario == "pairs":
        return 2 * spec.publishers
    return spec.publishers + (spec.clients if spec.scenario in ("offline", "match") else spec.subscribers)


def run(spec: Spec, phases: list[Phase], progress: Progress) -> None:
    """Run the scenario of a spec; its phases are appended to `phases`."""
    SCENARIOS[spec.scenario](spec, Runner(spec, phases, progress))
