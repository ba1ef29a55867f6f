"""The ablation against the running broker: compare.py of the instrument starts it and loads it, variants take turns.

The instrument lies outside of this repository (MOSQ_BENCH is its folder), so it is loaded by its path; its lock is held
while all variants go through a scenario once.
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
# besides those of the instrument: what a small site does, and subscriptions at other sizes
OWN = {
    # 1 publisher, 1 subscriber, 1 topic
    "one": {"args": "pairs --pubs 1 --size 62 --seconds {t} --warmup {w}"},
    # as `match` of the instrument with its 200 k
    "match-1k": {"args": "match --clients 100 --nsubs 1000 --kind mix --pubs 10 --seconds {t} --warmup {w}"},
}
SCENARIOS = ["one", "pairs-q0", "fanin-q0", "match-1k", "match", "connect"]
# where a figure of a short run says little else: bytes are exact enough from one
MEASURES = {"cpu_us_per_msg": "CPU us per message", "bytes_per_sub": "RSS bytes per subscription",
            "bytes_per_conn": "RSS bytes per connection"}
# the brute force over 200 k filters delivers too little in a few seconds to be measured
LEFT_OUT = {("scan", "match")}


def instrument(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", folder / "compare.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(folder / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SCENARIOS.update(OWN)
    return module


def rows_of(results: list[dict[str, Any]], scenario: str, variant: str, rep: int) -> Iterator[Row]:
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
    compare = instrument(folder)
    compare.raise_nofile()
    chosen = [v for v in VARIANTS if v.name in names]
    settings = argparse.Namespace(seconds=seconds, warmup=0.5, timeout=60, broker_cpu="0", load_cpu="1")
    began = time.monotonic()
    port = PORT
    for rep in range(reps):
        for scenario in scenarios:
            chosen = chosen[1:] + chosen[:1]    # nobody is always first
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
                    said = ", ".join(f"{row.place} {row.value:.2f} {row.note}".strip() for row in found)
                    took = f"[broker {time.monotonic() - began:4.0f} s] #{rep}"
                    print(took, f"{variant.name}: {said}", file=sys.stderr, flush=True)
                    yield from found
