"""Run one attack on one broker: start the broker and the victims, send the attack from a process at the lowest
priority, and judge what was measured.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perf.attacks.attack import MEMORY_LIMIT
from perf.attacks.broker import Broker
from perf.attacks.scene import Scene
from perf.attacks.victim import WORST_S, victims

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from perf.attacks.attack import Attack

NICE = 19  # of the attacker, which shares the cores with broker and victims
GOAL_S, GOAL_TLS_S = 0.1, 0.2  # longest wait of a victim on a quiet machine
RSS_RATIO = 1.2  # most memory as a multiple of memory_limit
CALM_S = 0.3  # measured before and after the attack
PREPARE_S, EXTRA_S = 120.0, 120.0  # longest preparation; how much longer than its time an attack may settle
fork = multiprocessing.get_context("fork")


@dataclass
class Result:
    """Hold what one attack did to one broker; times in seconds, sizes in bytes."""

    attack: str
    broker: str
    waits: dict[str, tuple[float, float, int]] = field(default_factory=dict)  # kind: worst, median, number
    rss_before: int = 0
    rss_peak: int = 0
    descriptors: int = 0
    cpu_s: float = 0.0
    log_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    goal: bool = False

    def worst(self) -> float:
        return max((one[0] for one in self.waits.values()), default=0.0)


def attacker(attack: Attack, scene: Scene, parent: Connection) -> None:
    """Prepare, wait for the parent's word, attack, and send notes and breaches. Runs in a process of its own."""
    os.nice(NICE)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    error = ""
    try:
        if attack.prepare:
            scene.end = time.monotonic() + PREPARE_S
            attack.prepare(scene)
        parent.send("ready")
        parent.recv()
        scene.end = time.monotonic() + scene.seconds
        attack.run(scene)
    except OSError as failed:  # a broker may end the connections of an attacker
        scene.note(f"ended by {type(failed).__name__}: {failed}"[:100])
    except Exception:
        error = traceback.format_exc()
    with contextlib.suppress(OSError):
        parent.send((scene.notes, scene.breaches, error))
        parent.recv()  # keeps its connections open until the victims have been measured


class Sampler:
    """Read descriptors of a broker again and again; the kernel itself keeps the peak of the memory."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.descriptors = broker, 0

    def wait(self, pipe: Connection, seconds: float) -> bool:
        """Return True if the pipe has something to read within that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.broker.ended():
            self.descriptors = max(self.descriptors, self.broker.descriptors())
            if pipe.poll(0.05):
                return True
        return pipe.poll(0)


def run(attack: Attack, name: str, seconds: float, limit_s: float, certs: Path) -> Result:
    """Run an attack on a broker. A victim that waits longer than `limit_s` fails the attack."""
    result = Result(attack.name, name)
    try:
        with Broker(name, attack, certs) as broker:
            _measure(attack, broker, seconds, result)
    except RuntimeError as error:
        result.failures.append(str(error))
    _judge(attack, result, limit_s)
    return result


def _process(target: Any, *arguments: Any) -> tuple[Any, Connection]:
    ours, theirs = fork.Pipe()
    process = fork.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _measure(attack: Attack, broker: Broker, seconds: float, result: Result) -> None:
    sampler = Sampler(broker)
    scene = Scene(broker.name, broker.ports, broker.pid, broker.folder, seconds)
    started = []
    try:
        process, to_attacker = _process(attacker, attack, scene)
        started.append(process)
        if not sampler.wait(to_attacker, PREPARE_S * 2):
            raise RuntimeError(f"the preparation failed: {broker.ended() or 'it did not end in time'}")
        if (early := to_attacker.recv()) != "ready":
            raise RuntimeError(f"the preparation failed: {early}")
        ports = {
            k: broker.ports["http" if k == "http" else "tls" if attack.tls else "tcp"]
            for k in attack.victims
            if k != "http" or broker.name == "mosq"
        }
        process, to_victims = _process(victims, ports, attack.tls, attack.user)
        started.append(process)
        if not sampler.wait(to_victims, 60) or to_victims.recv() != "ready":
            raise RuntimeError("the victims cannot connect before the attack")
        result.rss_before, cpu_before = broker.status().get("VmRSS", 0), broker.cpu_s()
        time.sleep(CALM_S)
        to_attacker.send("go")
        if sampler.wait(to_attacker, seconds + EXTRA_S):
            notes, breaches, error = to_attacker.recv()
            result.notes += notes
            result.failures += [f"breach: {one}" for one in breaches]
            if error:
                raise RuntimeError(f"the attack itself failed:\n{error}")
        elif not broker.ended():
            result.notes.append("the attack did not end in time")
        sampler.wait(to_victims, CALM_S)
        to_victims.send("stop")
        if sampler.wait(to_victims, WORST_S + 10):
            result.waits, lost, refused = to_victims.recv()
            result.failures += lost
            (result.notes if attack.may_refuse else result.failures).extend(refused)
        result.rss_peak, result.cpu_s = broker.status().get("VmHWM", 0), broker.cpu_s() - cpu_before
        result.descriptors, result.log_bytes = sampler.descriptors, broker.log.stat().st_size
        if broker.ended():
            result.failures.append(f"the broker {broker.ended()}")
    except EOFError:
        raise RuntimeError(
            f"a process of the measurement ended early; the broker: {broker.ended() or 'runs'}"
        ) from None
    finally:
        for process in started:
            process.kill()
            process.join()


def _judge(attack: Attack, result: Result, limit_s: float) -> None:
    for kind, (worst, _, _) in result.waits.items():
        if worst > limit_s:
            result.failures.append(f"{kind} waited {worst:.1f} s")
    if attack.memory_limit != MEMORY_LIMIT:
        result.notes.append(f"memory_limit {attack.memory_limit // 1_000_000} MB")
    if result.rss_peak > RSS_RATIO * attack.memory_limit:
        result.failures.append(f"RSS {result.rss_peak / attack.memory_limit:.2f} x memory_limit")
    goal_s = GOAL_TLS_S if attack.tls else GOAL_S
    result.goal = not result.failures and result.worst() <= goal_s
