"""Run flows of `mosq bench` whose clients connect to chosen nodes, and count the CPU of all processes of a cluster."""

from __future__ import annotations

import itertools
import socket
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.runner import Runner
from mosq.tools.bench.usage import moment
from perf.workers.flows import Named, carried, silent, spec_of

if TYPE_CHECKING:
    from mosq.tools.bench.result import Phase
    from mosq.tools.bench.spec import Spec
    from mosq.tools.bench.usage import Moment
    from perf.cluster.started import Cluster
    from perf.workers.flows import Load


class Counted(Runner):
    """A runner that counts the CPU of named processes, each with those that it has started. `shares`: seconds of each
    name in the last phase."""

    def __init__(self, spec: Spec, processes: dict[str, int]) -> None:
        super().__init__(spec, [], silent)
        self._processes, self.shares = processes, dict.fromkeys(processes, 0.0)

    def moment(self) -> Moment:
        self._now = {name: moment(pid).broker.cpu_s for name, pid in self._processes.items()}
        found = moment(*self._processes.values())
        self._at = {**getattr(self, "_at", {}), found.at: self._now}
        return found

    def close(self, phase: Phase, end: Moment) -> None:
        super().close(phase, end)
        first, last = self._at[self.start.at], self._at[end.at]
        self.shares = {name: last[name] - first[name] for name in self._processes}


class Spread(Named):
    """A scene whose client i has the name names[i] and connects to the address hosts[i]."""

    def __init__(self, spec: Spec, runner: Runner, names: list[str], hosts: list[str], *, publishers: int) -> None:
        super().__init__(spec, runner, names, publishers=publishers)
        self._hosts = hosts

    def connect(self, first: int, n: int) -> None:
        for host, clients in itertools.groupby(range(first, first + n), key=lambda i: self._hosts[i]):
            some = list(clients)
            self.generator.address(socket.inet_aton(host), self.spec.port)
            super().connect(some[0], len(some))


def across(running: Cluster, load: Load, pairs: int, *, nodes: int = 2) -> dict[str, Any]:
    """Measure pairs whose publisher is at one node and whose subscriber at the next one. Return the figures of the
    run, with the CPU of each message by process. Raises SystemExit if a message was lost, doubled or out of order."""
    publishers = [i * nodes // pairs for i in range(pairs)]
    at = [*publishers, *((node + 1) % nodes for node in publishers)]
    names = running.names([running.worker_at(node) for node in at])
    spec = spec_of(load, host=running.nodes[0].host, port=running.port)
    runner = Counted(spec, running.processes())
    scene = Spread(spec, runner, names, [running.nodes[node].host for node in at], publishers=pairs)
    found = carried(scene)
    return {**found, "parts_us": parts_us(runner)}


def parts_us(runner: Counted) -> dict[str, float]:
    """Return the CPU of each message of the last phase by process."""
    per = runner.phases[-1].per
    return {name: 1e6 * seconds / per for name, seconds in runner.shares.items()}
