"""Keep one pair of brokers for a configuration, and play sessions on both."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.differential.rules import Difference, rule_of, without_take_over
from tests.differential.shadow import Limits, Shadow
from tests.differential.side import Heard, Side
from tests.differential.steps import KEEPALIVES, VARIANTS, SessionMaker, with_prefix
from tests.fuzz.sessions.maker import Step
from tests.harness.broker import command

@dataclass
class Config:
    text: str                   # the options of a listener follow the listener's line
    limits: Limits = field(default_factory=Limits)
    ours: str = ""              # options that only mosq gets
    keepalives: tuple[int, ...] = KEEPALIVES
    with_2_0: bool = True       # 2.0 counts other bytes in its queues, has fewer options of listeners, and a keepalive is no reason to refuse


BOTH = "max_packet_size 2000000\nallow_duplicate_messages true\n"         # defaults of 2.1 that 2.0 has not
LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
ACL = "topic readwrite #\ntopic deny +/deny/#\nuser ann\ntopic read +/deny/x\npattern readwrite +/of/%u\n"
CONFIGS = {
    "plain": Config(BOTH + LISTENER),
    "compat": Config(BOTH + LISTENER, Limits(compat=True), ours="compat true\n"),
    "tight": Config("allow_duplicate_messages true\nmax_inflight_messages 2\nmax_queued_messages 4\nmax_packet_size 1200\n" + LISTENER, Limits(window=2, max_queued=4)),
    "bytes": Config(BOTH + "max_inflight_bytes 300\nmessage_size_limit 1000\nqueue_qos0_messages true\n" + LISTENER, Limits(window_bytes=300), with_2_0=False),
    "limits": Config(BOTH + "retain_available false\n" + LISTENER + "max_qos 1\nmax_topic_alias 2\nallow_zero_length_clientid false\n", with_2_0=False),
    "keepalive": Config(BOTH + "max_keepalive 100\n" + LISTENER, Limits(max_keepalive=100), keepalives=(60,) * 30 + KEEPALIVES, with_2_0=False),
    "odd": Config(BOTH + "upgrade_outgoing_qos true\nauto_id_prefix x-\n" + LISTENER),
    "single": Config("max_packet_size 2000000\nallow_duplicate_messages false\n" + LISTENER),
    "rules": Config(BOTH + "acl_file {dir}/acl\n" + LISTENER),
}
VARIANT = ["", "queue_qos0_messages true\n", "max_queued_messages 3\n", "upgrade_outgoing_qos true\n"]
assert len(VARIANT) == VARIANTS


def steps_of(seed: int, config: str, peer: str = "2.1") -> list[Step]:
    one = CONFIGS[config]
    return SessionMaker(seed, window=one.limits.window, unreleased=not one.limits.window_bytes, keepalives=one.keepalives, peer=peer).steps()


def configs_of(peer: str) -> list[str]:
    """Return the configurations in which a Mosquitto can be compared."""
    return [name for name, one in CONFIGS.items() if peer != "2.0" or one.with_2_0]


def version_of(mosquitto: list[str]) -> str:
    """Return "2.0" or "2.1", from the first line of its help."""
    text = subprocess.run([*mosquitto, "-h"], capture_output=True, text=True, check=False, timeout=60).stdout
    found = re.search(r"mosquitto version (\d+\.\d+)", text)
    if found is None:
        raise SystemExit(f"{' '.join(mosquitto)} -h does not print the version of a Mosquitto")
    return found[1]


@dataclass
class Outcome:
    """Hold what a session has shown: known differences by row, and perhaps one that is not known, which is in the last of the steps."""

    steps: list[Step] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    unexplained: Difference | None = None


class Pair:
    """Run mosq and Mosquitto with the same configuration."""

    def __init__(self, config: str, mosquitto: list[str], peer: str, ours: list[str] | None = None, extra: str = "") -> None:
        self.config, self.peer, self.played = config, peer, 0
        files = {"acl": ACL}
        self.ours = Side(ours or command(), extra + CONFIGS[config].ours + CONFIGS[config].text, files)
        self.theirs = Side(mosquitto, CONFIGS[config].text, files)
        self.sides = (self.ours, self.theirs)

    def __enter__(self) -> Self:
        for side in self.sides:
            side.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for side in self.sides:
            side.close()

    def play(self, steps: list[Step], log: list[tuple[Step, Heard, Heard]] | None = None) -> Outcome:
        """Play a session on both brokers up to the first difference from which on their states differ. `log` gets each step with
        what both have sent."""
        self.played += 1
        shadow = Shadow(self.peer, CONFIGS[self.config].limits)
        outcome = Outcome()
        reloaded = False
        try:
            for plain in steps:
                step = with_prefix(plain, self.played)
                if step[0] == "reload":
                    step, reloaded = ("reload", VARIANT[step[1]]), True
                outcome.steps.append(plain)
                rows = shadow.begin(step)
                ours, theirs = self.both(step)
                if self.peer == "2.0" and step[0] == "open":
                    ours = without_take_over(ours)
                if log is not None:
                    log.append((plain, ours, theirs))
                client = self.ours.clients.get(step[1])
                rows = shadow.end(step, ours, theirs, client.acted if client else []) + rows
                difference = Difference(self.peer, self.config, outcome.steps, ours, theirs, step, shadow, tuple(rows))
                rule = rule_of(difference)
                if difference.differing() and rule is None:
                    outcome.unexplained = difference
                elif rows or rule is not None:
                    outcome.known[rule.row if rule else rows[0]] += 1
                if outcome.unexplained or rows or (rule is not None and not rule.goes_on):
                    break
        finally:
            for side in self.sides:
                side.finish()
                if reloaded:
                    side.reload("")
        return outcome

    def both(self, step: Step) -> tuple[Heard, Heard]:
        ours, theirs = (side.play(step) for side in self.sides)
        return ours, theirs
