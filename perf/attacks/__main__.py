"""Attack a broker and measure what the attacks cost its other clients, beside Debian's Mosquitto.

    dev/attacks                                 # all attacks on mosq and on Mosquitto, about 8 minutes
    dev/attacks --only half-hello --only slow   # attacks whose name contains one of these texts
    dev/attacks --broker mosq --seconds 1       # faster
    dev/attacks --list                          # what there is, and which finding of the review each repeats

Each attack has a fresh broker with memory_limit 100 MB and the default of every other option that it does not need,
victims that behave well in a process of their own, and an attacker in a process at nice 19 on the same machine. The
attacker connects from 127.0.0.2, or from many addresses below 127.1. An attack fails if a victim waits longer than
--limit seconds or is cut off, if RSS exceeds 1.2 x memory_limit, if the broker ends, or if it allows what it must deny.
The goal on a quiet machine is 100 ms (200 ms where the victims use TLS). Only failures of mosq give exit status 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from perf.attacks import every
from perf.attacks.attack import MEMORY_LIMIT, Attack
from perf.attacks.broker import ROOT, certificates, mosquitto, version_of
from perf.attacks.run import Result, run
from perf.lock import bench_lock
from perf.tables import table

BROKERS = ("mosq", "mosquitto")
LIMIT_S = 5.0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev/attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="run attacks whose name contains this text; may be repeated"
    )
    parser.add_argument(
        "--broker", action="append", choices=BROKERS, help="attack this broker; may be repeated (default: both)"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each attack sends (default: 2)")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="longest wait of a victim in seconds (default: 5; the goal is 0.1)"
    )
    parser.add_argument("--lock", action="store_true", help="wait for other measurements on this machine to end")
    parser.add_argument(
        "--dir", type=Path, default=ROOT / "build" / "attacks", help="folder of the results (default: build/attacks)"
    )
    parser.add_argument("--list", action="store_true", help="list the attacks and exit")
    options = parser.parse_args(argv)
    if options.seconds <= 0 or options.limit <= 0:
        parser.error("--seconds and --limit must be above 0")
    return options


def chosen(only: list[str] | None) -> list[Attack]:
    attacks = list(every.ATTACKS.values())
    if not only:
        return attacks
    for text in only:
        if not any(text in one.name for one in attacks):
            sys.exit(f"no attack has {text!r} in its name; dev/attacks --list prints all names")
    return [one for one in attacks if any(text in one.name for text in only)]


# ---------------------------------------------------------------- tables


def ms(seconds: float) -> str:
    return (
        f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.0f}" if seconds >= 0.01 else f"{seconds * 1000:.1f}"
    )


HEADS = ("attack", "finding", "broker", "ping", "PUBACK", "login", "HTTP", "RSS", "files", "result", "notes")


def row(result: Result) -> tuple[str, ...]:
    waits = [
        ms(result.waits[kind][0]) if kind in result.waits else "-" for kind in ("ping", "publish", "login", "http")
    ]
    verdict = "FAILED" if result.failures else "goal met" if result.goal else "passed"
    notes = "; ".join([*result.failures, *result.notes]).replace("|", "/").replace("\n", " ")
    if result.log_bytes > 1_000_000:
        notes += f"; wrote {result.log_bytes / 1e6:.0f} MB of log"
    return (
        result.attack,
        every.ATTACKS[result.attack].finding,
        result.broker,
        *waits,
        f"{result.rss_peak / 1e6:.0f}",
        str(result.descriptors),
        verdict,
        notes,
    )


def page(results: list[Result], versions: dict[str, str], options: argparse.Namespace) -> str:
    """Return the results as a page in Markdown."""
    when = datetime.datetime.now(datetime.UTC)
    text = f"""# Attacks

`dev/attacks --seconds {options.seconds:g}` wrote this page on {when:%Y-%m-%d %H:%M} UTC: {os.cpu_count()} cores,
{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f} at the end; {", ".join(versions.values())}.

Waits are the longest ones of victims during the attack, in milliseconds: PINGREQ to PINGRESP, PUBLISH to PUBACK, a new
connection until CONNACK, a new connection until the answer of GET /api/v1/health. RSS is the peak in MB; memory_limit
is {MEMORY_LIMIT // 1_000_000} MB unless the notes name another one. `files` is the largest number of open descriptors.
The attacker runs at nice 19 on the same machine. The goal is 100 ms (200 ms over TLS) and RSS up to 1.2 x memory_limit;
an attack fails at {options.limit:g} s. `dev/attacks --list` describes each attack.

`dev/turns` searches for the input that makes one turn of the broker's loop longest. The longest turn that it found has
467,552 units of work: 14,782 messages at once to 25,379 subscribers. Three budgets allow 600,000. It took 36 ms on a
loaded machine ([FINDINGS.md](FINDINGS.md#turns-with-a-budget-cost-before-and-after));
[ADR 3](../docs/adr/0003-turn-budget-counts-work.md) describes what bounds it.

"""
    return text + table(HEADS, [row(one) for one in results])


def save(folder: Path, results: list[Result], versions: dict[str, str], options: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attacks.md").write_text(page(results, versions, options))
    about = {
        "versions": versions,
        "seconds": options.seconds,
        "limit_s": options.limit,
        "memory_limit": MEMORY_LIMIT,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "time": time.time(),
    }
    (folder / "attacks.json").write_text(
        json.dumps({**about, "results": [asdict(one) for one in results]}, indent=1) + "\n"
    )


def show(result: Result) -> None:
    cells = row(result)
    widths = (20, 6, 9, 7, 7, 7, 7, 5, 5, 8, 0)
    print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(), flush=True)


# ---------------------------------------------------------------- main


def attack_all(
    attacks: list[Attack], names: list[str], options: argparse.Namespace, versions: dict[str, str]
) -> list[Result]:
    results: list[Result] = []
    pairs = [(attack, name) for attack in attacks for name in names if name == "mosq" or attack.mosquitto]
    terminal = sys.stderr.isatty()
    with tempfile.TemporaryDirectory(prefix="mosq-attack-certs-") as certs:
        certificates(Path(certs))
        widths = (20, 6, 9, 7, 7, 7, 7, 5, 5, 8, 0)
        print("  ".join(head.ljust(width) for head, width in zip(HEADS, widths, strict=True)).rstrip())
        for n, (attack, name) in enumerate(pairs):
            if terminal:
                print(
                    f"\r\033[K{n + 1} of {len(pairs)}: {attack.name} on {name} ...\r",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
            results.append(run(attack, name, options.seconds, options.limit, Path(certs)))
            if terminal:
                print("\r\033[K", end="", file=sys.stderr, flush=True)
            show(results[-1])
            save(options.dir, results, versions, options)  # an interrupted run keeps what it has
    return results


def main(argv: list[str] | None = None) -> int:
    options = parse(sys.argv[1:] if argv is None else argv)
    attacks = chosen(options.only)
    if options.list:
        for one in attacks:
            print(f"{one.name:21} {one.finding:6} {one.what}")
        return 0
    names = list(dict.fromkeys(options.broker or BROKERS))
    if "mosquitto" in names and mosquitto() is None:
        print("mosquitto is not installed (apt-get install mosquitto); only mosq is attacked", file=sys.stderr)
        names.remove("mosquitto")
    versions = {name: version_of(name) for name in names}
    if options.lock:
        with bench_lock(lambda: print("waiting for another measurement", file=sys.stderr)):
            results = attack_all(attacks, names, options, versions)
    else:
        results = attack_all(attacks, names, options, versions)
    ours = [one for one in results if one.broker == "mosq"]
    failed = [one.attack for one in ours if one.failures]
    print(
        f"\n{len(ours)} attacks on mosq: {sum(one.goal for one in ours)} met the goal, {len(failed)} failed"
        + (f": {', '.join(failed)}" if failed else "")
        + f"\ntable: {options.dir / 'attacks.md'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
