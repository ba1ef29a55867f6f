"""The thread of a worker that reports the worker's figures to the parent (mosq/cluster/figures.py has their form)."""

import threading

from mosq.cluster.figures import text_of
from mosq.cluster.terms import now_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.engine import Engine
    from mosq.server.workers.channel import Channel

REPORTS = 2                     # in each lease


class Lag:
    """Measures the time for which a store has committed nothing although something waits, to the nearest look."""

    def __init__(self) -> None:
        self._since_s = self._commits = 0.0

    def look(self, at_s: float, waiting: int, commits: int) -> float:
        """Return the lag in seconds. `waiting`: bytes that are not committed; `commits`: batches since the start."""
        if not waiting or commits != self._commits:
            self._since_s, self._commits = at_s, commits
        return at_s - self._since_s


class Reporter:
    """Reports the figures of one worker until the process ends."""

    def __init__(self, engine: "Engine", channel: "Channel", token: int, lease_s: float) -> None:
        self._engine, self._channel, self._token = engine, channel, token
        self._every_s, self._lag, self._begun_s = lease_s / REPORTS, Lag(), now_s()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="mosq-figures", daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                links, stats = self._engine.link_figures(), self._engine.stats()
            except RuntimeError:
                continue                # the loop has not begun, or has ended
            lag_s = self._lag.look(now_s(), stats["disk_waiting_bytes"], stats["disk_commits"])
            if self._channel.is_read():
                text = text_of(self._token, links, int(1000 * lag_s), stats, int(now_s() - self._begun_s))
                self._channel.send({"is": "figures", "text": text})
