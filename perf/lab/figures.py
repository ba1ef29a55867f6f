"""Combine many runs: medians with their spread, and the tables that the terminal shows at the end."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.html import figures as marks
from mosq.tools.bench.result import BUSY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Run = dict[str, Any]
Phase = dict[str, Any]


def median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def spread(values: Iterable[float]) -> float | None:
    """Return half of the distance from least to most, as a share of the median; None for one value, or a median of 0.
    """
    known = list(values)
    middle = median(known)
    return (max(known) - min(known)) / 2 / middle if len(known) > 1 and middle else None


# ---------------------------------------------------------------- one line: one broker, one phase of a case

def label_of(run: Run) -> str:
    """Return the broker's name, with its variant."""
    return f"{run['run']['broker']}: {run['run']['variant']}" if run["run"]["variant"] else str(run["run"]["broker"])


def cost(phase: Phase) -> float | None:
    """Return the broker's CPU in microseconds per message, or None if unknown."""
    value = (phase.get("broker") or {}).get("cpu_us_per")
    return None if value is None else float(value)


def _values(phases: list[Phase], of: Callable[[Phase], float | None]) -> list[float]:
    return [value for phase in phases if (value := of(phase)) is not None]


def number(value: float | None) -> str:
    """Format a number with about three digits."""
    if value is None:
        return "-"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def with_spread(values: list[float]) -> str:
    wide = spread(values)
    return number(median(values)) + (f" ±{wide * 100:.0f}%" if wide is not None else "")


def disturbed(phase: Phase) -> bool:
    return marks.disturbed(phase["foreign_cpu_share"], phase["seconds"])


def limited(phase: Phase) -> bool:
    return marks.limited(phase["limit"], phase["seconds"])


WRONG = ("lost", "duplicates", "out_of_order", "refused", "unsent", "unacknowledged")


def remarks(runs: list[Run], phases: list[Phase]) -> str:
    """Return what a reader must know about the runs of a line."""
    found = []
    if bad := [run for run in runs if not run["complete"]]:
        found.append(f"{len(bad)} of {len(runs)} NOT COMPLETE: {bad[0]['why']}")
    worst = {name: max((phase[name] for phase in phases), default=0) for name in WRONG}
    found += [f"{name.replace('_', ' ')} {n:,}" for name, n in worst.items() if n]
    if marks.mostly(map(limited, phases)):
        found.append("generator-bound")
    if marks.mostly(map(disturbed, phases)):
        share = median(phase["foreign_cpu_share"] for phase in phases) or 0.0
        found.append(f"other programs used {share * 100:.0f} % of a core")
    if dropped := sum(run["run"]["dropped_packets"] for run in runs):
        found.append(f"the kernel dropped {dropped:,} packets")
    for name in phases[0]["extra"] if phases else ():
        values = [value for phase in phases if isinstance(value := phase["extra"].get(name), int | float)]
        if name.startswith("bytes_") and values:
            found.append(f"{name.replace('_', ' ')} {number(median(values))}")
    return "; ".join(found)


def _line(name: str, runs: list[Run], phases: list[Phase], first: float | None) -> tuple[str, ...]:
    costs = _values(phases, cost)
    middle = median(costs)
    delayed = [phase["latency"] for phase in phases if phase["latency"]["count"]]

    def delay(of: Callable[[dict[str, Any]], float | None]) -> str:
        value = median(_values(delayed, of))
        return number(None if value is None else value / 1000)

    return (name, number(median(phase["seconds"] for phase in phases)),
            with_spread([phase["rate"] for phase in phases]), with_spread(costs),
            number(middle / first if middle and first else None), delay(lambda latency: latency["mean_us"]),
            delay(lambda latency: latency.get("stdev_us")), delay(lambda latency: latency["p99_us"]),
            delay(lambda latency: latency["max_us"]), remarks(runs, phases))


# ---------------------------------------------------------------- all runs

def tables(runs: list[Run], order: list[str]) -> Iterator[str]:
    """Yield a table for each case and phase, with a line for each broker in this order.

    Costs are relative to the first.
    """
    titles = ""
    for case in _groups(runs, lambda run: (run["run"]["suite"], run["run"]["test"], run["run"]["case"])):
        run = case[0]["run"]
        if titles != (titles := f"{run['suite']} / {run['test']}: {run['title']}"):
            yield f"\n== {titles}"
            if run.get("note"):
                yield f"   ({run['note']})"
        names = list(dict.fromkeys(phase["name"] for one in case for phase in one["phases"])) or [""]
        for name in names:
            yield f"\n{run['case']}{f', {name}' if len(names) > 1 else ''}"
            yield from _table(case, name, order)


def _table(case: list[Run], name: str, order: list[str]) -> Iterator[str]:
    groups = {label: of for label in order if (of := [one for one in case if label_of(one) == label])}
    phases = {label: [phase for one in of for phase in one["phases"] if phase["name"] == name]
              for label, of in groups.items()}
    unit = next((phase["unit"] for of in phases.values() for phase in of), "message")
    base = next(iter(groups))
    first = median(_values(phases[base], cost))
    heads = ("broker", "took s", f"{unit}s/s", f"CPU us per {unit}", f"x {base}", "delay ms: mean", "deviation", "p99",
             "max", "remarks")
    yield from columns([heads, *(_line(label, of, phases[label], first) for label, of in groups.items())])


def _groups(runs: list[Run], key: Callable[[Run], object]) -> list[list[Run]]:
    found: dict[object, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return list(found.values())


def columns(lines: list[tuple[str, ...]]) -> Iterator[str]:
    """Align the first and the last column to the left, the others to the right; leave out empty columns."""
    kept = [at for at in range(len(lines[0])) if at == 0 or any(line[at] not in ("", "-") for line in lines[1:])]
    widths = {at: max(len(line[at]) for line in lines) for at in kept}
    for line in lines:
        yield "  " + "  ".join(line[at].ljust(widths[at]) if at == 0 else line[at] if at == len(line) - 1
                               else line[at].rjust(widths[at]) for at in kept).rstrip()


def warnings(runs: list[Run]) -> Iterator[str]:
    """Yield the warnings about all runs."""
    phases = [phase for run in runs for phase in run["phases"]]
    bound = sum(map(limited, phases))
    if bound:
        yield (f"WARNING: in {bound} of {len(phases)} phases the generator was the bottleneck (busy for "
               f"{BUSY * 100:.0f} % and more): the broker can carry more than its rate there; compare the CPU.")
    dropped = sum(run["run"]["dropped_packets"] > 0 for run in runs)
    if dropped:
        yield (f"WARNING: in {dropped} of {len(runs)} runs the kernel dropped packets between sockets of this machine, "
               "and TCP sent them again 200 ms later: raise net.core.netdev_max_backlog (sysctl).")
    foreign = sum(map(disturbed, phases))
    if foreign:
        yield (f"WARNING: in {foreign} of {len(phases)} phases other programs used more than a quarter of a core: "
               "rates and latencies suffer, CPU per message suffers less.")
