"""Fuzz whole sessions of a broker: valid and mutated packets of several clients, cuts, take-overs, reloads, jumps of the clock.

    dev/fuzz-sessions --seconds 600             # all configurations in turn, with a sanitized build
    dev/fuzz-sessions --seed 17 --config tight  # one sequence
    dev/fuzz-sessions --play build/sessions/finding-1.json      # a finding again; exit status 1 if it still fails

Each sequence follows from its seed. All sequences of a round are played against one broker, which is checked after each: it is
alive, no sanitizer has reported, an honest client is served, its counters are what they were. During a sequence, no client may
get a message to which it has not subscribed, or that no client has published. A failing sequence is made shorter and written to
the folder of findings, with the sequences before it if it needs them. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.sessions.checks import Violation
from tests.fuzz.sessions.maker import Step
from tests.fuzz.sessions.play import CONFIGS, Player
from tests.fuzz.sessions.shrink import shrink
from tests.fuzz.sessions.steps import FuzzMaker

ROUND = 100             # sequences for one broker
History = list[list[Step]]


def steps_of(seed: int, config: str) -> list[Step]:
    return FuzzMaker(seed, durable="persistence" in CONFIGS[config]).steps()


def attempt(config: str, history: History, argv: list[str] | None) -> str:
    """Play sequences against a fresh broker; return the first violation, "" if there is none."""
    try:
        with Player(config, argv) as player:
            for steps in history:
                player.play(steps)
    except Violation as violation:
        return str(violation)
    return ""


def kind_of(violation: str) -> str:
    """Return what a violation has in common with others of the same cause."""
    head, _, rest = violation.partition(":")
    if head != "crash":
        return head
    where = re.search(r" in (\w+) ", rest) or re.search(r"([\w/.]+\.(?:c|pyx)):\d+", rest)
    return f"crash in {where[1]}" if where else "crash"


def shortened(config: str, history: History, kind: str, argv: list[str] | None, deadline_s: float) -> tuple[History, bool]:
    """Return the shortest history found in time that fails in the same way, and whether it failed again at all."""
    end = time.monotonic() + deadline_s

    def fails(one: History) -> bool:
        return time.monotonic() < end and bool(one) and kind_of(attempt(config, one, argv)) == kind

    if fails(history[-1:]):
        history = history[-1:]
    elif not fails(history):
        return history, False
    else:
        history = shrink(history, fails)
    last = shrink(history[-1], lambda steps: fails([*history[:-1], steps]))
    return [*history[:-1], last], True


class Fuzzer:
    """Play rounds of sequences, and keep what was found."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.argv = shlex.split(options.broker) if options.broker else None
        self.begin = time.monotonic()
        self.played = self.steps = 0
        self.kinds: dict[str, int] = {}

    def over(self) -> bool:
        limit = self.options.sequences
        return time.monotonic() - self.begin >= self.options.seconds or (limit is not None and self.played >= limit)

    def log(self, text: str = "") -> None:
        took = time.monotonic() - self.begin
        line = f"{took:8.0f} s  {self.played:9,} sequences  {self.steps:11,} steps  {sum(self.kinds.values())} findings  {text}"
        print(line.rstrip(), flush=True)

    def round(self, config: str, seeds: Iterator[int]) -> None:
        history: History = []
        seed = 0
        try:
            with Player(config, self.argv) as player:
                while len(history) < ROUND and not self.over():
                    seed = next(seeds)
                    history.append(steps_of(seed, config))
                    self.played += 1
                    self.steps += len(history[-1])
                    player.play(history[-1])
                    if sys.stderr.isatty():
                        print(f"\r{self.played} sequences, {config} ", end="", file=sys.stderr, flush=True)
        except Violation as violation:
            self.found(config, seed, history, str(violation))

    def found(self, config: str, seed: int, history: History, violation: str) -> None:
        kind = kind_of(violation)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.log(f"{config}, seed {seed}: {violation}")
        again = False
        if self.kinds[kind] <= 3:       # the same cause is usually found again and again
            history, again = shortened(config, history, kind, self.argv, self.options.shrink)
        folder = self.options.dir
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"finding-{re.sub(r'[^a-z0-9_]+', '-', kind.lower())}-{config}-{seed}.json"
        path.write_text(json.dumps({"violation": violation, "kind": kind, "config": config, "seed": seed, "fails again": again,
                                    "history": history}, indent=1, ensure_ascii=False) + "\n")
        self.log(f"written to {path}: {len(history)} sequences, {len(history[-1])} steps in the last one"
                 + ("" if again else "; it did not fail again, or was not tried"))


def play_file(path: Path, argv: list[str] | None) -> int:
    finding: dict[str, Any] = json.loads(path.read_text())
    violation = attempt(finding["config"], [[tuple(step) for step in steps] for steps in finding["history"]], argv)
    print(violation or "it does not fail any more")
    return 1 if violation else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev/fuzz-sessions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to play (default: 60)")
    parser.add_argument("--sequences", type=int, help="end after this number of sequences")
    parser.add_argument("--seed", type=int, help="first seed (default: the time); alone with --config and --sequences 1: one sequence")
    parser.add_argument("--config", choices=CONFIGS, help="one configuration (default: all in turn)")
    parser.add_argument("--broker", help="command of the broker (default: this checkout)")
    parser.add_argument("--shrink", type=float, default=300, metavar="SECONDS", help="how long to shorten a finding (default: 300)")
    parser.add_argument("--dir", type=Path, default=Path("build/sessions"), help="folder of findings (default: build/sessions)")
    parser.add_argument("--play", type=Path, metavar="FILE", help="play a finding again")
    options = parser.parse_args(argv)
    if options.play:
        return play_file(options.play, shlex.split(options.broker) if options.broker else None)
    first = options.seed if options.seed is not None else time.time_ns() // 1_000_000
    print(f"seeds from {first}, process {os.getpid()}", flush=True)
    fuzzer, seeds = Fuzzer(options), itertools.count(first)
    for config in itertools.cycle([options.config] if options.config else CONFIGS):
        if fuzzer.over():
            break
        fuzzer.round(config, seeds)
        fuzzer.log(config)
    fuzzer.log("end" + "".join(f"; {kind}: {n}" for kind, n in fuzzer.kinds.items()))
    return 1 if fuzzer.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
