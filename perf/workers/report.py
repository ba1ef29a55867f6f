"""Write the section of perf/RESULTS.md about several workers, and its picture, from the figures in
perf/results/workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf.tables import Row, digits, files, parts_of, plot_bars, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path



def section(folder: Path) -> Iterator[str]:
    """Yield the parts of the section."""
    every = files(folder)
    machine = every[0][1]["machine"] if every else {}
    yield ("## Several workers\n\n`python -m perf.workers` measures a broker with `cluster_local N` beside one of one "
           f"process: {machine.get('cores')} cores, {machine.get('processor')}, Linux {machine.get('kernel')}. The "
           "modules of [workers](workers) describe each measurement.\n\n"
           "![Clients within and across workers](plots/workers-pairs.svg)\n"
           "![Beside FlashMQ](plots/workers-peers.svg)\n")
    yield from parts_of(folder, PARTS)


def _limit(row: Row, value: float, least: bool = False) -> str:
    if not row.get("limit"):
        return ""
    met = value >= row["limit"] if least else value <= row["limit"]
    return f"{'least' if least else 'most'} {row['limit']:g}: {'met' if met else '**missed**'}"


def _pairs(row: Row) -> list[str]:
    return [row["load"], row["placement"], digits(row["cpu_us"]), f"{row['ratio']:.2f}",
            f"{row['ratios'][0]:.2f} to {row['ratios'][1]:.2f}", _limit(row, row["ratio"]),
            f"{row['messages_per_s'] / 1000:,.0f}", f"{row['counted']} of {len(row['runs'])}"]


def _tls(row: Row) -> list[str]:
    return [row["handshake"], str(row["workers"]), digits(row["cpu_us"]), digits(row["thread_us"]),
            ", ".join(f"{one:.2f}" for one in row["cores"]), f"{row['other_cores']:.2f}",
            f"{row['rate']:,.0f} ({row['rate_ratio']:.2f} x)",
            f"{row['capacity']:,.0f} ({row['capacity_ratio']:.2f} x)",
            f"{row['simple']:,.0f} ({row['simple_ratio']:.2f} x)", _limit(row, row["simple_ratio"], least=True)]


def _subscribe(row: Row) -> list[str]:
    known, arrived = row["suback_ms"], row["message_ms"]
    limit = {**row, "limit": row.get("limit_ms")}
    note = f" ({row['workers_note']})" if row.get("workers_note") else ""
    return [f"{row['workers']}{note}", f"{row['samples']:,}",
            *(f"{known[name]:.3f}" for name in ("p50", "p99", "max")),
            _limit(limit, known["p99"]), ", ".join(f"{one['p99']:.3f}" for one in row["runs"]),
            *(f"{arrived[name]:.3f}" for name in ("p50", "p99"))]


def _routes(row: Row) -> list[str]:
    return [row["kind"], f"{row['filters']:,}", f"{row['text']:.0f}", f"{row['foreign']:.0f}", f"{row['one_more']:.0f}",
            _limit(row, row["foreign"]), f"{row['foreign_rss']:.0f}", f"{row['local']:.0f}" if row["local"] else "",
            f"{row.get('own_rss') or 0:.0f}"]


def _peers(row: Row) -> list[str]:
    return [row["load"], row["broker"], str(row["workers"]), digits(row["cpu_us"]),
            " to ".join(digits(one) for one in row["spread"]), f"{row['rate'] / 1000:,.0f}", f"{row['cores']:.2f}",
            digits(row["generator_us"])]


def _instructions(row: Row) -> list[str]:
    return [row["load"], f"{row['before']:,.0f}", f"{row['now']:,.0f}", f"{row['ratio']:.3f}",
            _limit(row, row["ratio"])]


PARTS: tuple[tuple[str, str, str, list[str], Callable[[Row], list[str]]], ...] = (
    ("pairs", "Messages within a worker and across two",
     "100 pairs, 64 B, as many messages as possible. CPU of all processes of the broker for each delivered "
     "message, medians of the runs; the multiple is that of one process's median, then of the least and the most "
     "run. Only runs count during which other programs used less than 0.2 of a core. *within*: both clients of a "
     "pair are at one worker, both workers have pairs; *one*: all at one worker; *half* of the pairs, or all, are "
     "*across* workers.",
     ["load", "clients", "us", "x one process", "in runs", "limit", "k messages/s", "runs"], _pairs),
    ("tls", "TLS handshakes",
     "*full*: a handshake with CONNECT and DISCONNECT; *half*: a recorded ClientHello, to which the broker answers "
     "with its signature, and a close. The generators use the same two cores, so a run's rate (*made*) is not the "
     "broker's limit. *could make* is 1 / the largest of the busiest thread's CPU and half of all CPU for each "
     "handshake; *workers / CPU* is that with one core for each worker. *cores* are those that each worker used.",
     ["handshake", "workers", "CPU, us", "busiest thread, us", "cores", "other processes", "made/s", "could make/s",
      "workers / CPU", "limit"], _tls),
    ("subscribe", "A subscription is known everywhere",
     "From SUBSCRIBE to SUBACK, which all workers have confirmed, and to a message that another worker's client "
     "publishes at once; each of them arrived. Milliseconds, an idle broker.",
     ["workers", "samples", "SUBACK p50", "p99", "longest", "limit of p99", "p99 of each round", "message p50",
      "p99"],
     _subscribe),
    ("routes", "Memory of routes",
     "Bytes for each filter beyond its text. *foreign*: counted at one other worker; *one more*: at a further one; "
     "RSS of the other worker; *local*: counted for the subscription at its own worker; *own*: RSS there beyond "
     "that of one process, once for all others. *again*: all workers have a local subscription of each filter, and "
     "get it as a route.",
     ["filters", "number", "text", "foreign", "one more", "limit", "foreign, RSS", "local", "own, RSS"], _routes),
    ("peers", "Beside FlashMQ",
     "CPU of the broker for each delivered message; brokers in turns in one run. The clients' names are not chosen,"
     " so about half of the pairs are across workers. The generator has a core at most, and takes it from the two "
     "of the broker.",
     ["load", "broker", "workers or threads", "us", "in rounds", "k messages/s", "cores", "generator, us"], _peers),
    ("instructions", "One process",
     "Instructions for each message with one process, beside main before the workers (callgrind; two runs of one "
     "build differ by about 15).",
     ["load", "before", "now", "x", "limit"], _instructions),
)


def plot(folder: Path, plots: Path) -> None:
    """Draw CPU per message by placement, and beside FlashMQ."""
    placed: dict[str, dict[str, float]] = {}
    for row in rows_of(folder, "pairs"):
        placed.setdefault(row["load"], {})[row["placement"]] = row["cpu_us"]
    beside: dict[str, dict[str, float]] = {}
    for row in rows_of(folder, "peers"):
        beside.setdefault(row["load"], {})[f"{row['broker']}, {row['workers']}"] = row["cpu_us"]
    for name, title, panel in (("pairs", "clients within and across 2 workers", placed),
                               ("peers", "1 and 2 workers or threads", beside)):
        plot_bars(plots / f"workers-{name}.svg", {title: panel}, "us of CPU for each message")
