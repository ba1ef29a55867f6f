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
        self.processes, self.shares = processes, dict.fromkeys(processes, 0.0)
        self._at: dict[float, dict[str, float]] = {}    # seconds of each name at the moments of this run

    def moment(self) -> Moment:
        shares = {name: moment(pid).broker.cpu_s for name, pid in self.processes.items()}
        found = moment(*self.processes.values())
        self._at[found.at] = shares
        return found

    def close(self, phase: Phase, end: Moment) -> None:
        super().close(phase, end)
        first, last = self._at[self.start.at], self._at[end.at]
        self.shares = {name: last[name] - first[name] for name in self.processes}


class Spread(Named):
    """A scene whose client i has the name names[i] and connects to the address hosts[i]."""

    runner: Counted

    def __init__(self, spec: Spec, runner: Counted, names: list[str], hosts: list[str], *, publishers: int) -> None:
        super().__init__(spec, runner, names, publishers=publishers)
        self.hosts = hosts

    def connect(self, first: int, n: int) -> None:
        for host, clients in itertools.groupby(range(first, first + n), key=lambda i: self.hosts[i]):
            some = list(clients)
            self.generator.address(socket.inet_aton(host), self.spec.port)
            super().connect(some[0], len(some))


def across(running: Cluster, load: Load, pairs: int, *, nodes: int = 2) -> dict[str, Any]:
    """Measure pairs whose publisher is at one node and whose subscriber at the next one. Return the figures of the
    run, with the CPU of each message by process. Raises SystemExit if a message was lost, doubled or out of order."""
    publishers = [i * nodes // pairs for i in range(pairs)]
    at = [*publishers, *((node + 1) % nodes for node in publishers)]
    names = running.names([running.worker_at(node) for node in at])
    return spread(running.port, running.processes(), load, names, [running.nodes[node].host for node in at])


def spread(port: int, processes: dict[str, int], load: Load, names: list[str], hosts: list[str]) -> dict[str, Any]:
    """Measure pairs, of which client i has the name names[i] and connects to hosts[i]: first all publishers."""
    spec = spec_of(load, host=hosts[0], port=port)
    runner = Counted(spec, processes)
    found = carried(Spread(spec, runner, names, hosts, publishers=len(names) // 2))
    return {**found, "parts_us": parts_us(runner)}


def parts_us(runner: Counted) -> dict[str, float]:
    """Return the CPU for each message or client of the last phase, by process."""
    per = runner.phases[-1].per
    return {name: 1e6 * seconds / per for name, seconds in runner.shares.items()}


def cost(runner: Counted) -> dict[str, Any]:
    """Return the figures of the last phase. Raises SystemExit if its CPU is unknown."""
    phase = runner.phases[-1]
    if not phase.broker:
        raise SystemExit(f"a process of the cluster has started or ended during {phase.name}")
    return {"cpu_us": phase.broker["cpu_us_per"], "parts_us": parts_us(runner), "rate": phase.rate,
            "others": phase.foreign_cpu_share}
