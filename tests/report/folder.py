"""Make a folder of results as the lab writes it: the same figures each time, every suite, three repetitions."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

COST = {"mosq": 1.0, "mosquitto-2.0.11": 6.0, "flashmq-1.26.2": 2.5}
ABOUT: dict[str, Any] = {
    "format": 1, "title": "Three brokers, made up", "commit": "0123456789abcdef0123", "dirty": False,
    "machine": {"cores": 2, "kernel": "6.1.0", "processor": "Some Processor", "python": "3.11.7", "memory_bytes": 25_000_000_000,
                "distribution": "Debian GNU/Linux 12"},
    "brokers": {name: {"version": name.partition("-")[2] or "0.2.0", "settings": "allow_anonymous true\nmax_queued_messages 0\n",
                       "program": name.partition("-")[0]} for name in COST},
    "command": "make paper", "started": "2026-11-21T20:00:00+00:00", "ended": "2026-11-21T20:30:00+00:00", "complete": True, "why": ""}
LOCUST: dict[str, Any] = {
    "format": 1, "broker": "mosq", "started": "2026-11-21T20:00:00+00:00", "users": 100, "seconds": 30.0, "complete": True, "why": "",
    "entries": [{"type": kind, "name": name, "requests": 30_000, "failures": failures, "rate": 1000.5, "mean_ms": 1.2, "p50_ms": 0.9,
                 "p95_ms": 3.1, "p99_ms": 8.0, "max_ms": 40.5}
                for kind, name, failures in (("publish QoS 1", "telemetry fan-in", 0), ("deliver QoS 1", "telemetry fan-in", 0),
                                             ("connect", "connect storm", 3))],
    "errors": [{"type": "connect", "name": "connect storm", "error": "no connection: Connection refused", "count": 3}],
    "messages": {"sent": 30_000, "delivered": 30_000, "lost": 0}, "generator": {"cpu_us_per_request": 80.5, "limit": True}}


def times(chance: random.Random, middle_us: float, count: int, buckets: bool = True) -> dict[str, Any]:
    """Return log-normal durations in the form of a histogram of `mosq bench`."""
    found: dict[int, int] = {}
    for _ in range(200):
        ns = int(middle_us * 1e3 * chance.lognormvariate(0, 0.7))
        width = max(1, 1 << max(ns.bit_length() - 8, 0))
        found[ns // width * width] = width
    told: list[list[int]] = [[first, first + found[first], max(1, count // 200)] for first in sorted(found)]

    def at(q: float) -> float:
        return told[min(int(q * len(told)), len(told) - 1)][0] / 1e3

    return {"count": count, "min_us": told[0][0] / 1e3, "mean_us": middle_us * 1.28, "stdev_us": middle_us, "p50_us": at(0.5),
            "p90_us": at(0.9), "p99_us": at(0.99), "p999_us": at(0.999), "p9999_us": at(0.9999), "max_us": told[-1][1] / 1e3,
            **({"buckets_ns": told} if buckets else {})}


def phase(chance: random.Random, name: str, cost_us: float, *, per: int = 100_000, unit: str = "message", rate: float = 0.0,
          rss: int = 20_000_000, **more: Any) -> dict[str, Any]:
    cost_us *= chance.uniform(0.97, 1.03)
    told = {"name": name, "seconds": per * cost_us / 1e6 * 1.1, "published": per, "delivered": per, "per": per, "unit": unit,
            "rate": rate or 0.9e6 / cost_us, "lost": 0, "duplicates": 0, "latency": {"count": 0}, "ack": {"count": 0}, "connect": {"count": 0},
            "broker": {"cpu_us_per": cost_us, "cpu_share": 0.9, "rss_after_bytes": rss, "pss_after_bytes": None},
            "generator": {"cpu_us_per": 0.25 * chance.uniform(0.95, 1.05), "busy_share": 0.4}, "foreign_cpu_share": 0.02, "limit": "broker",
            "complete": True, "timeline": [{"t_s": 0.5, "published": 10, "delivered": 10}], "extra": {}, "exact": True}
    told["connect" if unit == "client" else "latency"] = times(chance, 300 * cost_us if not rate else 100 + 20 * cost_us, per)
    return {**told, **more}


def line(run: dict[str, Any], scenario: str, phases: list[dict[str, Any]], complete: bool = True, why: str = "",
         **options: Any) -> dict[str, Any]:
    return {"format": 1, "scenario": scenario, "complete": complete, "why": why, "exact": True, "started": "2026-11-21T20:00:00+00:00",
            "options": {"scenario": scenario, "qos": 0, "size": 64, "clients": 100, "rate": 0.0, **options}, "machine": ABOUT["machine"],
            "phases": phases, "run": {"x": None, "x_name": "", "variant": "", "command": f"mosq bench {scenario} -p 1883", **run}}


def runs(reps: int = 3, slower: float = 1.0, seed: int = 1) -> list[dict[str, Any]]:
    """Return runs. `slower` is a factor for mosq's cost of fan-in at QoS 0. Each call returns its own objects."""
    return [json.loads(text) for text in _texts(reps, slower, seed)]


def first() -> dict[str, Any]:
    """Return mosq's fan-in at QoS 0."""
    told: dict[str, Any] = json.loads(_texts(1, 1.0, 1)[0])
    return told


@functools.cache
def _texts(reps: int, slower: float, seed: int) -> tuple[str, ...]:
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []

    def add(suite: str, test: str, title: str, case: str, broker: str, rep: int, scenario: str, phases: list[dict[str, Any]],
            x: float | None = None, x_name: str = "", variant: str = "", **options: Any) -> None:
        found.append(line({"suite": suite, "test": test, "title": title, "case": case, "broker": broker, "rep": rep, "x": x, "x_name": x_name,
                           "variant": variant}, scenario, phases, **options))

    for rep in range(reps):
        for broker in COST:
            cost = COST[broker]
            for qos in range(3):
                regress = slower if broker == "mosq" and qos == 0 else 1.0
                add("bench", "fan-in", "50 publishers to one subscriber", f"QoS {qos}", broker, rep, "fan-in",
                    [phase(chance, "fan-in", 0.3 * cost * (1 + qos) * regress)], qos=qos)
            add("bench", "pairs-20k", "100 pairs at 20,000 messages a second", "QoS 1", broker, rep, "pairs",
                [phase(chance, "pairs", 9 + cost, rate=20_000, limit="rate")], qos=1, rate=20_000.0)
            for clients in (1_000, 5_000, 10_000):
                add("bench", "connect", "Idle clients", "", broker, rep, "connect", x=clients, x_name="clients", clients=clients, phases=[
                    phase(chance, "connect", 13 * cost ** 0.3, per=clients, unit="client", rss=int(15e6 + clients * 600 * cost),
                          extra={"bytes_per_client": 600 * cost}), phase(chance, "hold", 0.0001, per=clients, unit="client")])
            for variant in ("", "plain") if broker == "mosq" else ("",):
                add("paper", "paper-1", "10 publishers, 1,000 subscribers", "QoS 1", broker, rep, "fan-out",
                    [phase(chance, "fan-out", 0.4 * cost * (1.4 if variant else 1))], variant=variant, qos=1)
                for size in (100, 10_000, 1_000_000):
                    add("paper", "paper-4", "20 publishers with payloads of many sizes", "", broker, rep, "payloads",
                        [phase(chance, "payloads", (0.4 + size / 4000) * cost * (1.2 if variant else 1), per=200)], size, "bytes", variant)
            add("vendors", "p2p", "Point to point", "QoS 1, 16 B", broker, rep, "pairs", [phase(chance, "pairs", 0.8 * cost)], qos=1)
        for variant, factor in (("", 1.0), ("default again", 1.01), ("no match cache", 1.9), ("plain tree", 2.4), ("no pool", 1.15)):
            add("ablation", "match", "Messages into 100,000 filters", "", "mosq", rep, "match", [phase(chance, "match", 0.7 * factor)], variant=variant)
    return tuple(map(json.dumps, found))


def write(folder: Path, lines: list[dict[str, Any]] | None = None, about: dict[str, Any] | None = None,
          locust: dict[str, Any] | None = LOCUST) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "about.json").write_text(json.dumps(ABOUT if about is None else about))
    (folder / "runs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (runs() if lines is None else lines)))
    if locust is not None:
        (folder / "locust.json").write_text(json.dumps(locust))
    return str(folder)
