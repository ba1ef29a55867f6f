"""Keep one pair of brokers for a configuration, and play sessions on both."""

from __future__ import annotations

import re
import subprocess
from types import TracebackType
from typing import Self

from tests.differential.rules import Difference, without_take_over
from tests.differential.side import Heard, Side
from tests.differential.steps import VARIANTS, SessionMaker, with_prefix
from tests.fuzz.sessions.steps import Step
from tests.harness.broker import command

BOTH = "max_packet_size 2000000\nallow_duplicate_messages true\n"         # defaults of 2.1 that 2.0 has not
LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
ACL = "topic readwrite #\ntopic deny +/deny/#\nuser ann\ntopic read +/deny/x\npattern readwrite +/of/%u\n"
CONFIGS = {         # the options of a listener follow the listener's line
    "plain": BOTH + LISTENER,
    "tight": "allow_duplicate_messages true\nmax_inflight_messages 2\nmax_queued_messages 4\nmax_packet_size 1200\n" + LISTENER,
    "bytes": BOTH + "max_inflight_bytes 300\nmessage_size_limit 1000\nqueue_qos0_messages true\n" + LISTENER,
    "limits": BOTH + "retain_available false\n" + LISTENER + "max_qos 1\nmax_topic_alias 2\nallow_zero_length_clientid false\n",
    "keepalive": BOTH + "max_keepalive 100\n" + LISTENER,
    "odd": BOTH + "upgrade_outgoing_qos true\nauto_id_prefix x-\n" + LISTENER,
    "single": "max_packet_size 2000000\nallow_duplicate_messages false\n" + LISTENER,
    "rules": BOTH + "acl_file {dir}/acl\n" + LISTENER,
}
VARIANT = ["", "queue_qos0_messages true\n", "max_queued_messages 3\n", "upgrade_outgoing_qos true\n"]
assert len(VARIANT) == VARIANTS


def steps_of(seed: int, config: str) -> list[Step]:
    return SessionMaker(seed, receive_maximums=(1, 2) if config == "tight" else (1, 2, 100, 0xFFFF)).steps()


def configs_of(peer: str) -> list[str]:
    """Return the configurations in which a Mosquitto can be compared. 2.0 counts other bytes in its queues, has fewer options of
    listeners, and does not refuse 3.x clients because of their keepalive."""
    return [name for name in CONFIGS if peer != "2.0" or name not in ("bytes", "limits", "keepalive")]


def version_of(mosquitto: list[str]) -> str:
    """Return "2.0" or "2.1", from the first line of its help."""
    text = subprocess.run([*mosquitto, "-h"], capture_output=True, text=True, check=False, timeout=60).stdout
    found = re.search(r"mosquitto version (\d+\.\d+)", text)
    if found is None:
        raise SystemExit(f"{' '.join(mosquitto)} -h does not print the version of a Mosquitto")
    return found[1]


class Pair:
    """Run mosq and Mosquitto with the same configuration."""

    def __init__(self, config: str, mosquitto: list[str], peer: str, ours: list[str] | None = None, extra: str = "") -> None:
        self.config, self.peer, self.played = config, peer, 0
        files = {"acl": ACL}
        self.ours = Side(ours or command(), extra + CONFIGS[config], files)
        self.theirs = Side(mosquitto, CONFIGS[config], files)
        self.sides = (self.ours, self.theirs)

    def __enter__(self) -> Self:
        for side in self.sides:
            side.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for side in self.sides:
            side.close()

    def play(self, steps: list[Step], log: list[tuple[Step, Heard, Heard]] | None = None) -> Difference | None:
        """Play a session on both brokers up to the first difference. `log` gets each step with what both have sent."""
        self.played += 1
        done: list[Step] = []
        reloaded = False
        try:
            for plain in steps:
                step = with_prefix(plain, self.played)
                if step[0] == "reload":
                    step, reloaded = ("reload", VARIANT[step[1]]), True
                done.append(plain)
                ours, theirs = (side.play(step) for side in self.sides)
                if self.peer == "2.0" and step[0] == "open":
                    ours = without_take_over(ours)
                if log is not None:
                    log.append((plain, ours, theirs))
                difference = Difference(self.peer, self.config, done, ours, theirs)
                if difference.differing():
                    return difference
        finally:
            for side in self.sides:
                side.finish()
                if reloaded:
                    side.reload("")
        return None
