"""Play random sessions on mosq and on Mosquitto, and compare what their clients receive.

    dev/differential --seconds 600                      # all configurations in turn, with Debian's Mosquitto
    dev/differential --mosquitto PATH                   # with another Mosquitto, such as a build of 2.1
    dev/differential --seed 17 --config tight --sessions 1
    dev/differential --play build/differential/FILE.json        # a finding again; exit status 1 if the brokers still differ

Each session follows from its seed. The rules of tests/differential/rules.py filter known differences; each names its row of
docs/differences.md. A session with another difference is made shorter and written to the folder of findings: the steps, and what
each broker has sent, as bytes and as packets. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.differential.pair import CONFIGS, Pair, configs_of, steps_of, version_of
from tests.differential.rules import Difference
from tests.differential.side import Ended
from tests.differential.show import cause_of, shown
from tests.fuzz.sessions.shrink import shrink
from tests.fuzz.sessions.maker import Step

ROUND = 40            # sessions for one pair of brokers
DEBIANS = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"


class Runner:
    """Play rounds of sessions, and keep what was found."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.mosquitto = shlex.split(options.mosquitto)
        self.peer = version_of(self.mosquitto)
        self.begin = time.monotonic()
        self.played = self.steps = 0
        self.known: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()

    def over(self) -> bool:
        limit = self.options.sessions
        return time.monotonic() - self.begin >= self.options.seconds or (limit is not None and self.played >= limit)

    def log(self, text: str) -> None:
        took = time.monotonic() - self.begin
        print(f"{took:6.0f} s  {self.played:7,} sessions  {self.steps:9,} steps  {sum(self.known.values())} known, "
              f"{sum(self.causes.values())} unexplained  {text}".rstrip(), flush=True)

    def pair(self, config: str) -> Pair:
        return Pair(config, self.mosquitto, self.peer, shlex.split(self.options.broker or "") or None, "compat true\n" if self.options.compat else "")

    def round(self, config: str, seeds: Iterator[int]) -> None:
        count = 0
        with self.pair(config) as pair:
            while count < ROUND and not self.over():
                seed, count = next(seeds), count + 1
                steps = steps_of(seed, config, self.peer)
                self.played += 1
                self.steps += len(steps)
                try:
                    outcome = pair.play(steps)
                    self.known += outcome.known
                    if outcome.unexplained is not None:
                        self.found(pair, seed, outcome.unexplained)
                except Ended as ended:
                    self.keep(config, seed, steps, "a broker ended", str(ended))
                    return
                if sys.stderr.isatty():
                    print(f"\r{self.played} sessions, {config} ", end="", file=sys.stderr, flush=True)

    def found(self, pair: Pair, seed: int, difference: Difference) -> None:
        """Make the session of a difference that is not known shorter, and keep it."""
        cause, steps = cause_of(difference), difference.steps
        if self.causes[cause] < self.options.each:      # the same cause is usually found again and again
            end = time.monotonic() + self.options.shrink

            def differs(some: list[Step]) -> bool:
                if time.monotonic() > end or not some:
                    return False
                other = pair.play(some).unexplained
                return other is not None and cause_of(other) == cause

            steps = shrink(steps, differs)
        record: list = []
        again = pair.play(steps, record).unexplained
        difference = again or difference
        note = "" if again else "It did not happen again in a shorter session.\n"
        self.keep(pair.config, seed, steps, cause, note + shown(record), note + shown([(steps[-1], difference.ours, difference.theirs)], steps))

    def keep(self, config: str, seed: int, steps: list[Step], cause: str, text: str, last: str = "") -> None:
        """Write a finding; print its last step."""
        self.causes[cause] += 1
        if self.causes[cause] > self.options.each:
            return
        folder = self.options.dir
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.peer}-{config}-{seed}.json"
        path.write_text(json.dumps({"cause": cause, "peer": self.peer, "config": config, "seed": seed, "steps": steps}, indent=1) + "\n")
        path.with_suffix(".txt").write_text(f"{cause}\n\n{text}\n")
        self.log(f"{config}, seed {seed}: {cause}")
        print(f"{last or text}\nwritten to {path.with_suffix('.txt')}: {len(steps)} steps", flush=True)


def play_file(runner: Runner, path: Path) -> int:
    finding = json.loads(path.read_text())
    record: list = []
    with runner.pair(finding["config"]) as pair:
        outcome = pair.play([tuple(step) for step in finding["steps"]], record)
    print(shown(record))
    for row, count in outcome.known.items():
        print(f"{count} known: {row}")
    if outcome.unexplained is None:
        print("no difference that is not known")
        return 0
    print(f"unexplained: {cause_of(outcome.unexplained)}")
    return 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev/differential", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to play (default: 60)")
    parser.add_argument("--sessions", type=int, help="end after this number of sessions")
    parser.add_argument("--seed", type=int, default=None, help="first seed (default: the time)")
    parser.add_argument("--config", choices=CONFIGS, help="one configuration (default: all in turn)")
    parser.add_argument("--mosquitto", default=DEBIANS, help="command of Mosquitto (default: Debian's)")
    parser.add_argument("--broker", help="command of mosq (default: this checkout)")
    parser.add_argument("--compat", action="store_true", help="run mosq with the option compat")
    parser.add_argument("--shrink", type=float, default=60, metavar="SECONDS", help="how long to shorten a finding (default: 60)")
    parser.add_argument("--each", type=int, default=2, metavar="N", help="how many findings of one cause to shorten and keep (default: 2)")
    parser.add_argument("--dir", type=Path, default=Path("build/differential"), help="folder of findings (default: build/differential)")
    parser.add_argument("--play", type=Path, metavar="FILE", help="play a finding again")
    options = parser.parse_args(argv)
    runner = Runner(options)
    if options.play:
        return play_file(runner, options.play)
    first = options.seed if options.seed is not None else time.time_ns() // 1_000_000
    print(f"seeds from {first}, Mosquitto {runner.peer}", flush=True)
    seeds = itertools.count(first)
    for config in itertools.cycle([options.config] if options.config else configs_of(runner.peer)):
        if runner.over():
            break
        runner.round(config, seeds)
        runner.log(config)
    for row, count in runner.known.most_common():
        print(f"{count:7,} known: {row}")
    for cause, count in runner.causes.most_common():
        print(f"{count:7,} unexplained: {re.sub(chr(10), ' ', cause)[:200]}")
    return 1 if runner.causes else 0


if __name__ == "__main__":
    sys.exit(main())
