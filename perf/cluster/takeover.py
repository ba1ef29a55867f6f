"""Measure a take-over: messages are queued for sessions that are away, at workers of another node than the publishers';
that node is killed; the sessions come back at the other one.

    queue      CPU of each message until all are acknowledged to their publishers
    take-over  seconds from the moment at which the other node observes the death until all its workers serve clients
    drain      CPU of each message when the sessions connect to the other node
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.runner import Stopped
from perf.cluster.flows import Counted, Spread, cost
from perf.cluster.started import POLL_S, WaitError, cluster
from perf.workers.flows import Load, spec_of

if TYPE_CHECKING:
    from perf.cluster.started import Cluster, Node

PUBLISHERS, AT_ONCE = 50, 5000      # AT_ONCE: sessions that connect together, to be made
STAYS, DIES = 0, 1                  # nodes
TAKE_OVER_S = 120.0
LIMITS = {"queue": 8.0, "drain": 8.0, "take-over": 5.0}


def sessions_of(running: Cluster, sessions: int) -> Spread:
    """Return a scene of publishers at one node, and of clients whose sessions are at the workers of the other one."""
    dying = [worker for worker, node in enumerate(running.home) if node is running.nodes[DIES]]
    places = [running.worker_at(STAYS)] * PUBLISHERS + [dying[i % len(dying)] for i in range(sessions)]
    hosts = [running.home[place].host for place in places]
    spec = spec_of(Load(qos=1, durable=True), host=hosts[0], port=running.port)
    return Spread(spec, Counted(spec, running.processes()), running.names(places), hosts, publishers=PUBLISHERS)


def queued(scene: Spread, each: int) -> dict[str, Any]:
    """Make the sessions, and publish `each` messages for each of them while they are away. Return what it costs."""
    sessions, runner = scene.receivers, scene.runner
    topics = [f"{scene.root}/away/{i}" for i in range(sessions)]
    scene.sources(topics, [0] * sessions, stride=PUBLISHERS)
    scene.generator.streams([(i, 1) for i in range(sessions)])
    scene.greet(clean=False)
    for first in range(0, sessions, AT_ONCE):
        n = min(AT_ONCE, sessions - first)
        scene.connect(PUBLISHERS + first, n)
        scene.subscribe(topics[first : first + n], PUBLISHERS + first, n)
        scene.generator.leave(PUBLISHERS + first, n)
        runner.reach("disconnecting")
    scene.connect(0, PUBLISHERS)
    with runner.phase("queue") as phase:
        runner.flow(phase, messages=each * sessions)
        phase.per = each * sessions
    return cost(runner)


def taken_over(dying: Node, other: Node, workers: int) -> dict[str, Any]:
    """Kill a node, and return when the other one observes its death and serves clients of its workers, in seconds."""
    served = other.serving()
    begun = time.monotonic()
    dying.kill()
    found = {"observed": seen(other, f"of node {dying.name}, which is dead", 1) - begun}
    found["recovered"] = seen(other, "in Redis:", served + workers) - begun - found["observed"]
    found["served"] = seen(other, "serves clients.", served + workers) - begun - found["observed"]
    return found


def seen(node: Node, text: str, times: int) -> float:
    """Return the time at which a node has logged a text so often. Raises WaitError."""
    end = time.monotonic() + TAKE_OVER_S
    while node.log().count(text) < times:
        if time.monotonic() > end:
            raise WaitError(f"node {node.name} has not logged `{text}` {times} times:\n{node.log()[-2000:]}")
        time.sleep(POLL_S)
    return time.monotonic()


def drained(scene: Spread, running: Cluster, clients: int, each: int) -> dict[str, Any]:
    """Let the first clients come back at the node that lives, and return what their messages cost."""
    runner = scene.runner
    runner.processes = running.processes()
    scene.hosts = [running.nodes[STAYS].host] * scene.clients
    with runner.phase("drain") as phase:
        scene.generator.expect(each * clients)
        scene.connect(PUBLISHERS, clients)
        scene.generator.receive()
        runner.reach("receiving")
        runner.stop_clock()
        phase.per = each * clients
    if phase.lost or phase.duplicates or phase.out_of_order:
        raise SystemExit(f"messages were lost, doubled or out of order: {phase.lost}, {phase.duplicates}, "
                         f"{phase.out_of_order}")
    return cost(runner)


def run(sessions: int, each: int, workers: int, back: int) -> dict[str, Any]:
    """Return the figures of one take-over of so many sessions with `each` messages, of which `back` come back."""
    with cluster(workers=2 * workers) as running:
        running.start()
        try:
            scene = sessions_of(running, sessions)
            begun = time.monotonic()
            queue = queued(scene, each)
            print(f"{sessions:,} sessions and {sessions * each:,} messages after {time.monotonic() - begun:.0f} s",
                  flush=True)
            times = taken_over(running.nodes[DIES], running.nodes[STAYS], workers)
            drain = drained(scene, running, min(back, sessions), each)
        except Stopped as stopped:
            raise SystemExit(f"the run is not complete: {stopped}") from None
    return {"queue": queue, "times": times, "drain": drain}


def measure(sessions: int, each: int, workers: int, back: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each round."""
    rows = []
    for _ in range(rounds):
        found = run(sessions, each, workers, back)
        rows.append({"sessions": sessions, "messages": sessions * each, "workers": workers, **found, "limits": LIMITS})
        times, queue, drain = found["times"], found["queue"], found["drain"]
        print(f"queue {queue['cpu_us']:.2f} us {shown(queue)}, drain {drain['cpu_us']:.2f} us {shown(drain)}; death "
              f"observed after {times['observed']:.2f} s; from then on, stores read after {times['recovered']:.2f} s, "
              f"all served after {times['served']:.2f} s", flush=True)
    return rows


def shown(figures: dict[str, Any]) -> str:
    """Return the CPU of each process in brackets."""
    return "(" + ", ".join(f"{name} {us:.2f}" for name, us in figures["parts_us"].items()) + ")"
