"""Print the figures of a run of the instrument (`make relay` writes build/bench.jsonl) as one table of ratios.

    python perf/summary.py build/bench.jsonl

Each cell: CPU per message as a multiple of the relay's in the same run (medians over the repetitions), in brackets the
microseconds; last column: mosq's bound, and whether it was kept. Exit status 1 if it was not, or if a message was lost,
doubled or reordered.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

# scenario: title, most CPU as a multiple of the relay's
PROMISED = {
    "fanin-q0": ("fan-in QoS 0, 50 to 1", 1.15),
    "fanout-q0": ("fan-out QoS 0, 1 to 1000", 1.4),
    "pairs-q0": ("100 pairs QoS 0", 1.5),
    "pairs-q0-b1": ("100 pairs QoS 0, one message per send", 1.05),
    "pairs-q1": ("100 pairs QoS 1", 1.6),
    "pairs-q2": ("100 pairs QoS 2", 1.6),
    "big": ("1 MB payloads", 1.12),
    "latency-20k": ("a fixed 20 k msg/s, QoS 0", 1.12),
    "latency-20k-q1": ("a fixed 20 k msg/s, QoS 1", 1.12),
    "connect": ("connect 10 k idle clients", 1.35),
}
IDLE_BYTES_MAX = 600
P99_RATIO_MAX = 1.5

Row = dict[str, Any]


def cell(rows: list[Row], base: list[Row]) -> tuple[float, str]:
    """Return the ratio of the medians of CPU per message, and its text."""
    cpu = statistics.median(r["cpu_us_per_msg"] for r in rows)
    floor = statistics.median(r["cpu_us_per_msg"] for r in base)
    return cpu / floor, f"{cpu / floor:.2f} ({cpu:.2f})"


def main(path: str) -> int:
    with open(path) as file:
        rows = [row for line in file if (row := json.loads(line))["phase"] != "error"]
    brokers = [b for b in dict.fromkeys(r["broker"] for r in rows) if b != "relay"]
    kept = True
    print("| scenario | relay us | " + " | ".join(brokers) + " | promised |")
    print("|---" * (len(brokers) + 3) + "|")
    for key, (title, most) in PROMISED.items():
        of = {b: [r for r in rows if r["broker"] == b and r["key"] == key] for b in ("relay", *brokers)}
        if not of["relay"] or not of.get("mosq"):
            continue
        cells = {b: cell(of[b], of["relay"]) for b in brokers if of[b]}
        good = cells["mosq"][0] <= most
        kept &= good and not any(r["lost"] or r["dup"] or r["ooo"] for r in of["mosq"])
        floor = statistics.median(r["cpu_us_per_msg"] for r in of["relay"])
        print(f"| {title} | {floor:.2f} | " + " | ".join(cells[b][1] if b in cells else "-" for b in brokers)
              + f" | {most} {'kept' if good else 'NOT KEPT'} |")
        if key.startswith("latency"):
            best = {b: min(r["p99_us"] for r in of[b]) for b in of if of[b]}
            good = best["mosq"] <= P99_RATIO_MAX * best["relay"]
            kept &= good
            print(f"| best p99 of it, us | {best['relay']:.0f} | "
                  + " | ".join(f"{best[b]:.0f}" for b in brokers if b in best)
                  + f" | {P99_RATIO_MAX} x relay {'kept' if good else 'NOT KEPT'} |")
        if key == "connect":
            size = {b: statistics.median(r["bytes_per_conn"] for r in of[b]) for b in of if of[b]}
            good = size["mosq"] <= IDLE_BYTES_MAX
            kept &= good
            print(f"| RSS per idle client, bytes | {size['relay']:.0f} | "
                  + " | ".join(f"{size[b]:,.0f}" for b in brokers if b in size)
                  + f" | {IDLE_BYTES_MAX} {'kept' if good else 'NOT KEPT'} |")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
