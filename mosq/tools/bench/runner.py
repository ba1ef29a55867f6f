"""Drive a Generator from goal to goal, in slices of a tenth of a second.

So the run shows progress, can be interrupted, and keeps its measurements until then.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from mosq._bench import DONE, FAILED, MORE, STALLED, Generator
from mosq.tools.bench.histogram import summary
from mosq.tools.bench.reasons import explain
from mosq.tools.bench.result import BUSY, Phase
from mosq.tools.bench.spec import BenchError
from mosq.tools.bench.usage import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.tools.bench.spec import Spec
    from mosq.tools.bench.usage import Moment

    Progress = Callable[[str, dict[str, int]], None]

SLICE_S = 0.1
TIMELINE_S = 1.0


class Stopped(Exception):  # noqa: N818 - not an error of the program
    """End the run; the measurements so far are kept."""


class Stalled(Stopped):
    """End the run because nothing happens any more, without a failure."""


class Runner:
    """Hold the Generator of a run and its measured phases."""

    def __init__(self, spec: Spec, phases: list[Phase], progress: Progress) -> None:
        self.spec, self.phases, self.progress = spec, phases, progress
        self.end: Moment | None = None

    def begin(self, generator: Generator) -> None:
        self.generator = generator

    def moment(self) -> Moment:
        """Return the usage of the broker now."""
        return moment(self.spec.broker_pid)

    # ---------------------------------------------------------------- goals

    def reach(self, what: str) -> None:
        """Run until the goal is reached. Raises Stopped with the reason if it is not."""
        while True:
            self._slice(what, SLICE_S)
            if self.how == DONE:
                return
            if self.how == STALLED:
                raise Stalled(f"nothing happened for {self.spec.stall:g} s: {what}, {self._so_far()}")

    def hold(self, seconds: float) -> None:
        self.generator.hold()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._slice("holding", min(SLICE_S, left))

    def _slice(self, what: str, seconds: float) -> None:
        self.how = self.generator.run(seconds)
        if self.how == FAILED:
            self.check()
        if self.how == MORE:
            self.progress(what, self.generator.counts())

    def check(self) -> None:
        """Raise Stopped if there was a failure, also one that was tolerated."""
        if (failure := self.generator.failure()) is not None:
            raise Stopped(explain(failure, self.spec.where, tls=self.spec.tls, ws=self.spec.ws))

    def _so_far(self) -> str:
        counts = self.generator.counts()
        return f"{counts['up']} clients up, {counts['published']} published, {counts['received']} delivered"

    # ---------------------------------------------------------------- measurements

    @contextlib.contextmanager
    def phase(self, name: str, unit: str = "message") -> Iterator[Phase]:
        """Measure the block as a phase; if it ends early, the phase is marked as incomplete."""
        phase = Phase(name, unit=unit, complete=False)
        self.phases.append(phase)
        self.generator.clear()
        self.whole = self.measured = self.generator.counts()
        self.start, self.end = self.moment(), None
        self.until = 0.0                # time at which publishing should end
        try:
            yield phase
            phase.complete = True
        finally:
            self.close(phase, self.end or self.moment())

    def stop_clock(self) -> None:
        """Stop measuring costs; the rest of the phase is only counted."""
        self.end = self.moment()

    def flow(self, phase: Phase, *, messages: int = 0, seconds: float = 0.0, warmup: float = 0.0,
             rate: float = 0.0) -> None:
        """Publish, and wait for messages on their way. Lost messages do not stop the run."""
        generator = self.generator
        generator.publish(rate=rate, messages=messages, seconds=0.0 if messages else warmup + seconds)
        begun = self.start.at
        self.until = 0.0 if messages else begun + warmup + seconds
        warm = not messages and warmup > 0
        next_row = begun + TIMELINE_S
        self.how = MORE
        while self.how == MORE:
            now = time.monotonic()
            self._slice(phase.name, min(SLICE_S, max(begun + warmup - now, 0.001)) if warm else SLICE_S)
            now = time.monotonic()
            if warm and now >= begun + warmup:
                warm = False
                generator.clear()
                self.measured, self.start = generator.counts(), self.moment()
            if now >= next_row:
                counts = generator.counts()
                phase.timeline.append({"t_s": now - begun, "published": counts["published"] - self.whole["published"],
                                       "delivered": counts["received"] - self.whole["received"]})
                next_row += TIMELINE_S
        unsent, unacknowledged = generator.unsent(), generator.unacknowledged()
        counts = generator.counts()
        short = messages - (counts["published"] - self.whole["published"]) if messages and not rate else 0
        if self.how == STALLED and (unsent or unacknowledged or short > 0):
            raise Stopped(f"nothing happened for {self.spec.stall:g} s: {max(short, 0) + unsent} messages were not "
                          f"accepted, {unacknowledged} not acknowledged")

    def close(self, phase: Phase, end: Moment) -> None:
        """Fill in the figures of a phase that has ended."""
        generator, start = self.generator, self.start
        counts = generator.counts()
        done = {name: counts[name] - self.measured[name] for name in counts}
        whole = {name: counts[name] - self.whole[name] for name in counts}
        wall_s = max(end.at - start.at, 1e-9)
        phase.seconds = wall_s
        # A flow lasts at least as long as its publishing: else a broker that soon stops delivering would look fast.
        last_s = max(generator.last_received_s(), generator.last_published_s(), min(self.until, end.at))
        if done["received"] and last_s > start.at:
            phase.seconds = last_s - start.at
        phase.published, phase.delivered = done["published"], done["received"]
        phase.per = phase.per or phase.delivered
        phase.expected = whole["expected"]
        missing = max(0, whole["expected"] - (whole["received"] - whole["twice"]))
        phase.lost, phase.outstanding = (missing, 0) if phase.complete else (0, missing)
        phase.duplicates, phase.out_of_order = whole["twice"], whole["late"]
        phase.foreign, phase.refused = whole["foreign"], whole["refused"]
        phase.stray_acks, phase.closed = whole["stray"], whole["closed"]
        if whole["published"]:
            phase.unsent, phase.unacknowledged = generator.unsent(), generator.unacknowledged()
        phase.latency, phase.ack = summary(generator.figures("latency")), summary(generator.figures("ack"))
        phase.handshake, phase.connect = summary(generator.figures("handshake")), summary(generator.figures("greeting"))
        phase.lateness = summary(generator.figures("lateness"))
        if (secured := generator.secured()) is not None:
            phase.extra["tls"] = ", ".join(secured)
        costs(phase, start, end, wall_s, self.spec)


def costs(phase: Phase, start: Moment, end: Moment, wall_s: float, spec: Spec) -> None:
    """Fill in the CPU and memory of a phase, and its limit; wall_s is its duration."""
    own_s, own_wait_s = end.own.cpu_s - start.own.cpu_s, end.own.wait_s - start.own.wait_s
    phase.generator = {
        "cpu_s": own_s, "cpu_share": own_s / wall_s, "busy_share": min(1.0, (own_s + own_wait_s) / wall_s),
        "cpu_us_per": own_s / phase.per * 1e6 if phase.per else 0.0}
    broker_s = 0.0
    # The usage of a broker or worker that ended in between is unknown.
    if start.broker.there and end.broker.there and start.processes.keys() == end.processes.keys():
        broker_s = end.broker.cpu_s - start.broker.cpu_s
        busy = min(1.0, _busiest_s(start, end) / wall_s)
        phase.broker = {
            "cpu_s": broker_s, "user_s": end.broker.user_s - start.broker.user_s,
            "system_s": end.broker.system_s - start.broker.system_s, "cpu_share": broker_s / wall_s,
            "busy_share": busy, "cpu_us_per": broker_s / phase.per * 1e6 if phase.per else 0.0,
            "rss_before_bytes": start.broker.rss_bytes, "rss_after_bytes": end.broker.rss_bytes,
            "pss_before_bytes": start.broker.pss_bytes, "pss_after_bytes": end.broker.pss_bytes}
    phase.foreign_cpu_share = max(0.0, (end.all_cpu_s - start.all_cpu_s - own_s - broker_s) / wall_s)
    if phase.generator["busy_share"] >= BUSY:
        phase.limit = "generator"
    elif (phase.broker.get("busy_share") or 0.0) >= BUSY:
        phase.limit = "broker"
    elif spec.rate:
        phase.limit = "rate"


def _busiest_s(start: Moment, end: Moment) -> float:
    """Return how long the busiest process of the broker ran, or could have run but had no core."""
    pairs = [(before, end.processes[pid]) for pid, before in start.processes.items()] or [(start.broker, end.broker)]
    return max(after.cpu_s - before.cpu_s + max(0.0, after.wait_s - before.wait_s) for before, after in pairs)


def resolved(spec: Spec) -> tuple[bytes, int]:
    """Return the address of the broker and its scope; of several addresses, the first that accepts a connection."""
    import socket

    try:
        found = socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BenchError(f"cannot look up {spec.host}: {error.strerror or error}") from None
    except UnicodeError:
        raise BenchError(f"{spec.host} is not a valid host name") from None
    for family, kind, protocol, _, address in found:
        if len(found) > 1:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.settimeout(spec.stall)
                    probe.connect(address)
            except OSError as error:
                failed = error
                continue
        return socket.inet_pton(family, str(address[0]).partition("%")[0]), int(address[3]) if len(address) > 2 else 0
    raise BenchError(f"cannot connect to {spec.where}: {failed.strerror or failed}")
