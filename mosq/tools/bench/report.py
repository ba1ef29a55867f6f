"""Format a result for the terminal: a few lines for each phase, warnings, and a progress line during the run."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from mosq.tools.bench.result import BUSY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.tools.bench.result import Phase, Result

FOREIGN_SHARE = 0.25            # cores used by neither broker nor generator, that makes times worse
FOREIGN_FROM_S = 0.2            # least duration: the kernel counts CPU in hundredths of a second
LIMIT_FROM_S = 0.05              # least duration: the limit of a shorter phase is chance
LATE_US = 1000.0


def lines(result: Result) -> Iterator[str]:
    """Yield the lines of a result: its phases, then warnings."""
    for phase in result.phases:
        yield from phase_lines(phase)
    for phase in result.phases:
        yield from warnings(phase)
    if result.complete and not result.exact:
        yield "NOT EXACT: the counts above show messages lost, doubled, out of order, refused or never sent"


def phase_lines(phase: Phase) -> Iterator[str]:
    """Yield the lines of one phase; times are in microseconds."""
    mark = "" if phase.complete else "   (not complete)"
    yield f"{phase.name}: {phase.rate:,.0f} {phase.unit}s/s; {phase.per:,} in {phase.seconds:.3f} s{mark}"
    if phase.expected or phase.published:
        yield (f"  counts     published {phase.published:,}, delivered {phase.delivered:,}; of {phase.expected:,} "
               f"with the warm-up: lost {phase.lost:,}, duplicates {phase.duplicates:,}, "
               f"out of order {phase.out_of_order:,}")
    odd = {"outstanding": phase.outstanding, "refused": phase.refused, "never sent": phase.unsent,
           "not acknowledged": phase.unacknowledged,
           "connections lost": phase.closed, "foreign messages": phase.foreign,
           "stray acknowledgements": phase.stray_acks}
    if any(odd.values()):
        yield "             " + ", ".join(f"{name} {n:,}" for name, n in odd.items() if n)
    for name, values in (("latency", phase.latency), ("ack", phase.ack), ("handshake", phase.handshake),
                         ("connect", phase.connect), ("send late", phase.lateness)):
        if values["count"]:
            lacks, how = (phase.lost, "lost") if phase.lost else (phase.outstanding, "outstanding")
            without = f"; without {lacks:,} {how} messages" if lacks and name == "latency" else ""
            yield f"  {name:<10} " + ", ".join(f"{label} {values[key]:,.0f}" for label, key in SHOWN) + f" us{without}"
    if phase.broker:
        yield f"  broker     {_process(phase.broker, phase.unit)}{_memory(phase.broker)}"
    yield f"  generator  {_process(phase.generator, phase.unit)}; limited by: {phase.limit}"
    for name, value in phase.extra.items():
        if value is not None:
            yield f"  {name.replace('_', ' ')}: {_figure(value)}"


def _figure(value: float | str) -> str:
    return str(value) if isinstance(value, str) else f"{value:,.2f}" if 0 < value < 10 else f"{value:,.0f}"


SHOWN = (("mean", "mean_us"), ("stdev", "stdev_us"), ("p50", "p50_us"), ("p99", "p99_us"),
         ("p99.9", "p999_us"), ("max", "max_us"))


def _process(values: dict[str, float | None] | dict[str, float], unit: str) -> str:
    return (f"{values['cpu_us_per']:.3f} us CPU per {unit}, {(values['cpu_share'] or 0) * 100:.0f} % of a core, "
            f"busy {(values['busy_share'] or 0) * 100:.0f} %")


def _memory(values: dict[str, float | None]) -> str:
    before, after = values["rss_before_bytes"], values["rss_after_bytes"]
    return "" if before is None or after is None else f", RSS {before / 1e6:,.1f} -> {after / 1e6:,.1f} MB"


def warnings(phase: Phase) -> Iterator[str]:
    """Yield what makes the figures of a phase doubtful."""
    busy = phase.generator.get("busy_share", 0.0)
    if phase.limit == "generator" and phase.seconds >= LIMIT_FROM_S:
        yield (f"WARNING: {phase.name}: the generator was the bottleneck (busy {busy * 100:.0f} %; the limit is "
               f"{BUSY * 100:.0f} %): the broker can carry more than this.")
    if phase.foreign_cpu_share > FOREIGN_SHARE and phase.seconds >= FOREIGN_FROM_S:
        yield (f"WARNING: {phase.name}: other programs used {phase.foreign_cpu_share * 100:.0f} % of a core: rates "
               "and latencies suffer, CPU per message suffers less.")
    late = phase.lateness.get("p99_us", 0.0)
    if isinstance(late, float) and late > LATE_US:
        yield (f"WARNING: {phase.name}: 1 % of the messages were sent {late:,.0f} us or more after their time: the "
               "rate is higher than the broker accepts, or than this machine sends. Their latencies contain this.")


class Progress:
    """Show one line that is overwritten, on a terminal only."""

    EVERY_S = 0.2

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and sys.stderr.isatty()
        self.at, self.received, self.up = time.monotonic(), 0, 0
        self.width = 0

    def __call__(self, what: str, counts: dict[str, int]) -> None:
        now = time.monotonic()
        if not self.wanted or now - self.at < self.EVERY_S:
            return
        rate = (counts["received"] - self.received) / (now - self.at)
        text = (f"{what}: {counts['up']:,} clients, {counts['published']:,} published, {counts['received']:,} "
                f"delivered, {max(rate, 0):,.0f}/s")
        self.at, self.received = now, counts["received"]
        self._write(text)

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self.width))
        sys.stderr.flush()
        self.width = len(text)

    def end(self) -> None:
        if self.width:
            self._write("")
            sys.stderr.write("\r")
            self.width = 0
