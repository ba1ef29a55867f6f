"""Measure the ablation on the running broker.

compare.py of the instrument starts the broker and loads it; the variants take turns. The instrument is outside of this
repository (MOSQ_BENCH is its folder), so this module loads it by its path. It holds the instrument's lock while all
variants run a scenario once.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from perf.ablation.rows import Row
from perf.ablation.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

PORT = 22883
# scenarios beside those of the instrument: the load of a small site, and subscriptions at other sizes
OWN = {
    # 1 publisher, 1 subscriber, 1 topic
    "one": {"args": "pairs --pubs 1 --size 62 --seconds {t} --warmup {w}"},
    # like `match` of the instrument, which has 200 k filters
    "match-1k": {"args": "match --clients 100 --nsubs 1000 --kind mix --pubs 10 --seconds {t} --warmup {w}"},
}
SCENARIOS = ["one", "pairs-q0", "fanin-q0", "match-1k", "match", "connect"]
# in a short run, only the CPU per message and the bytes are exact enough
MEASURES = {"cpu_us_per_msg": "CPU us per message", "bytes_per_sub": "RSS bytes per subscription",
            "bytes_per_conn": "RSS bytes per connection"}
# the brute force over 200 k filters delivers too few messages in a few seconds for a measurement
LEFT_OUT = {("scan", "match")}


def instrument(folder: Path) -> ModuleType:
    """Load compare.py of the instrument with the scenarios of OWN added. Raises FileNotFoundError."""
    spec = importlib.util.spec_from_file_location("compare", folder / "compare.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(folder / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SCENARIOS.update(OWN)
    return module


def rows_of(results: list[dict[str, Any]], scenario: str, variant: str, rep: int) -> Iterator[Row]:
    """Yield the rows of a run's results; a failed run gives a row with its note."""
    for result in results:
        phase = result["phase"]
        place = scenario if phase in ("flat", scenario) else f"{scenario}: {phase}"
        if phase == "error":
            yield Row("broker", MEASURES["cpu_us_per_msg"], scenario, 0, variant, rep, 0, result["notes"][:80])
            continue
        wrong = [f"{result[key]} {key}" for key in ("lost", "dup", "ooo") if result[key]]
        for key, measure in MEASURES.items():
            if key in result and not (key == "bytes_per_sub" and phase != "subscribe"):
                yield Row("broker", measure, place, 0, variant, rep, result[key], ", ".join(wrong))


def run(folder: Path, mosq: str, scenarios: list[str], names: list[str], reps: int, seconds: float) -> Iterator[Row]:
    """Yield the rows of all repetitions, scenarios and variants; `mosq` is the broker's command."""
    compare = instrument(folder)
    compare.raise_nofile()
    chosen = [v for v in VARIANTS if v.name in names]
    settings = argparse.Namespace(seconds=seconds, warmup=0.5, timeout=60, broker_cpu="0", load_cpu="1")
    began = time.monotonic()
    port = PORT
    for rep in range(reps):
        for scenario in scenarios:
            chosen = chosen[1:] + chosen[:1]    # so that no variant is always the first
            load = compare.SCENARIOS[scenario]
            with compare.bench_lock():
                for variant in chosen:
                    if (variant.name, scenario) in LEFT_OUT:
                        continue
                    port = PORT + (port - PORT + 1) % 500
                    command = f"{mosq} {shlex.join(variant.broker)} -c {{conf}}"
                    broker = {"cmd": command, "conf": compare.MOSQ, "persist": compare.MOSQ_PERSIST}
                    results = compare.run_one(variant.name, broker, scenario, load, settings, port)
                    found = list(rows_of(results, scenario, variant.name, rep))
                    figures = ", ".join(f"{row.place} {row.value:.2f} {row.note}".strip() for row in found)
                    took = f"[broker {time.monotonic() - began:4.0f} s] #{rep}"
                    print(took, f"{variant.name}: {figures}", file=sys.stderr, flush=True)
                    yield from found
