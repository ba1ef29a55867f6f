"""Run flows of `mosq bench` whose clients have chosen names, so that their workers are known."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.runner import Runner, Stopped
from mosq.tools.bench.scenarios import Scene
from mosq.tools.bench.spec import BenchError, Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.tools.bench.result import Phase


OTHERS, TRIES = 0.2, 4           # cores that other programs may use; runs until then
PAUSE_S = 1.0


@dataclass(frozen=True)
class Load:
    """Hold how long and with which QoS; `durable`: with sessions on the disk."""

    qos: int = 0
    seconds: float = 2.0
    durable: bool = False
    rate: float = 0.0


class Named(Scene):
    """A scene whose client i has the name names[i]."""

    def __init__(self, spec: Spec, runner: Runner, names: list[str], *, publishers: int) -> None:
        super().__init__(spec, runner, publishers=publishers, receivers=len(names) - publishers)
        self._names = names

    def _name(self, i: int) -> tuple[bytes, bytes | None, bytes | None]:
        return self._names[i].encode(), None, None


def calm(run: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Return the figures of a run during which other programs were quiet, if one of a few is."""
    for _ in range(TRIES):
        found = run(*arguments)
        if found["others"] < OTHERS:
            break
        time.sleep(PAUSE_S)
    return found


def quiet(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs during which other programs were quiet; all, if none was."""
    return [one for one in runs if one.get("others", 0.0) < OTHERS] or runs


def flow(port: int, pid: int, load: Load, names: list[str], publishers: int) -> dict[str, Any]:
    """Measure a flow: as many publishers as subscribers are pairs, and each subscriber of one publisher gets all.
    Return the figures of the run. Raises SystemExit if a message was lost, doubled or out of order."""
    spec = spec_of(load, port=port, broker_pid=pid)
    return carried(Named(spec, Runner(spec, [], silent), names, publishers=publishers))


def spec_of(load: Load, **where: Any) -> Spec:
    """Return the options of a flow to a broker at this place."""
    return Spec("pairs", qos=load.qos, seconds=load.seconds, rate=load.rate, stall=30.0, session=load.durable, **where)


def silent(_what: str, _counts: dict[str, int]) -> None:
    """Show no progress."""


def carried(scene: Named) -> dict[str, Any]:
    """Run a flow with the clients of a scene, and return its figures. Raises SystemExit as `flow`."""
    publishers, subscribers = scene.publishers, scene.receivers
    fans = [subscribers // publishers] * publishers
    topics = [f"{scene.root}/flow/{i}" for i in range(publishers)]
    filters = [topics[i % publishers] for i in range(subscribers)]
    try:
        scene.sources(topics, fans)
        scene.generator.streams([(i % publishers, 1) for i in range(subscribers)])
        scene.greet(clean=not scene.spec.session)
        scene.connect(0, scene.clients)
        scene.subscribe(filters, publishers, subscribers)
        scene.measured_flow("flow")
        scene.end()
    except (Stopped, BenchError) as error:
        raise SystemExit(f"the run is not complete: {error}") from None
    return figures(scene.runner.phases[0])


def figures(phase: Phase) -> dict[str, Any]:
    """Return the figures of a flow. Raises SystemExit as `flow`."""
    if not phase.exact:
        raise SystemExit(f"messages were lost, doubled or out of order: {phase.lost}, {phase.duplicates}, "
                         f"{phase.out_of_order}")
    if not phase.broker:
        raise SystemExit("a process of the broker has ended")
    latency = phase.latency
    return {"cpu_us": phase.broker["cpu_us_per"], "rate": phase.rate, "busy": phase.broker["busy_share"],
            "cores": phase.broker["cpu_share"], "generator_us": phase.generator["cpu_us_per"], "limit": phase.limit,
            "others": phase.foreign_cpu_share, "p50_us": latency.get("p50_us"), "p99_us": latency.get("p99_us")}
