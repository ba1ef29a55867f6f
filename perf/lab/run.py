"""Run a plan: each case with a fresh broker for each entry; entries take turns, and results go to a folder.

The load is `mosq bench` in its own process, on another core than the broker if there are two; this process sleeps in
between. A failed run is kept with its measurements and marked, and the others continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.result import Result
from mosq.tools.bench.run import machine
from mosq.tools.bench.spec import Spec
from perf.lab.broker import Broker, NotThereError, RunningBroker
from perf.lab.folder import Folder, now
from perf.lab.peers import MOSQ, ROOT, Found, made, settings
from perf.lab.progress import EVERY_S, Progress
from perf.lock import bench_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perf.lab.plan import Load

LOOPBACK = "127.0.0.1"
GRACE_S = 20.0                  # time for a generator to end after SIGINT


@dataclass(frozen=True)
class Entry:
    """Name a broker to measure: a family, mosq with an optimisation switched off, or a running broker."""

    name: str
    variant: str = ""
    flags: tuple[str, ...] = ()
    found: Found | None = None
    where: tuple[str, int] = (LOOPBACK, 0)

    @property
    def label(self) -> str:
        return f"{self.name}: {self.variant}" if self.variant else self.name

    def lacks(self, load: Load) -> str:
        """Return what this load needs and the broker lacks; "" if nothing."""
        if self.found is None:
            return "a listener of its own" if load.test.transport != "tcp" else ""
        if load.mqtt_5 and not self.found.peer.mqtt_5:
            return "MQTT 5"
        if self.found.peer.scenarios and load.test.scenario not in self.found.peer.scenarios:
            return f"{load.test.scenario} of mosq bench"
        return load.test.transport if load.test.transport not in self.found.peer.listener else ""


@dataclass(frozen=True)
class How:
    """Hold the options of all runs."""

    reps: int
    broker_core: int | None
    core: int | None            # core of the generator
    timeout_s: float = 600.0
    patience_s: float = 60.0    # most seconds of a run that is repeated
    username: str | None = None


@dataclass
class Lab:
    """Hold the plan and its results so far."""

    folder: Folder
    loads: list[Load]
    entries: list[Entry]
    how: How
    runs: list[dict[str, Any]] = field(default_factory=list)
    out: set[tuple[Entry, str, bool]] = field(default_factory=set)      # brokers that did not start for such a test
    left_out: dict[str, None] = field(default_factory=dict)     # sentences, each once
    cert: str = ""
    key: str = ""
    dropped: int = 0            # packets that the kernel had dropped before the run

    def perform(self) -> str:
        """Run everything; return why it is not complete, or ""."""
        for entry in self.entries:
            if (found := entry.found) is None:
                where = f"it was running already, at {entry.where[0]}:{entry.where[1]}"
                self.folder.broker(entry.name, version="unknown", settings=where, program="")
            else:
                self.folder.broker(entry.name, version=found.version, settings=settings(found),
                                   program=found.program.name if found.peer.programs else found.name)
        steps = [(rep, load, entry) for rep in range(self.how.reps) for load in self.loads for entry in self.entries]
        self.progress = Progress([((load.key, entry), load.hint_s) for _, load, entry in steps])
        try:
            with certificate(any(load.test.transport == "tls" for load in self.loads)) as (self.cert, self.key):
                for rep in range(self.how.reps):
                    for at, load in enumerate(self.loads):
                        turn = (at + rep) % len(self.entries)
                        self._case(load, self.entries[turn:] + self.entries[:turn], rep)
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            self.progress.close()
        bad = [run for run in self.runs if not run["complete"]]
        if bad or not self.runs:
            return f"{len(bad)} of {len(self.runs)} runs are not complete" if bad else "nothing was measured"
        return ""

    def _case(self, load: Load, entries: list[Entry], rep: int) -> None:
        """Run a case with all entries under one lock, so that all have the same neighbours."""
        with bench_lock(lambda: self.progress.log("another measurement uses this machine; waiting for its end")):
            for entry in entries:
                step = ((load.key, entry), load.hint_s)
                if why := self._why_not(load, entry):
                    self.left_out.setdefault(why)
                    self.progress.end(step, "", measured=False)
                    continue
                self.dropped = dropped_packets()
                self.progress.begin(f"{load.test.id}, {load.text}: {entry.label} #{rep}")
                try:
                    result = self._run(load, entry, rep)
                except Interrupted as stopped:
                    self._keep(stopped.result, load, entry, rep)
                    raise KeyboardInterrupt from None
                except NotThereError as error:
                    self.left_out.setdefault(f"{entry.name} was left out of {load.test.transport}: {error}")
                    self.progress.end(step, "", measured=False)
                    continue
                self._keep(result, load, entry, rep)
                self.progress.end(step, outcome(result))

    def _why_not(self, load: Load, entry: Entry) -> str:
        if self._way(load, entry) in self.out:
            return f"{entry.label} was left out of {load.test.id}: it did not start"
        if lacking := entry.lacks(load):
            return f"{entry.name} was left out of {load.test.id}: it has no {lacking} here"
        if self.progress.took.get((load.key, entry), 0.0) > self.how.patience_s:
            return (f"{load.test.id}, {load.text}: {entry.label} took more than {self.how.patience_s:g} s, so it was "
                    "not repeated")
        return ""

    def _way(self, load: Load, entry: Entry) -> tuple[Entry, str, bool]:
        return entry, load.test.transport, load.test.durable

    def _keep(self, result: dict[str, Any], load: Load, entry: Entry, rep: int) -> None:
        test = load.test
        result["run"] = {"suite": load.suite, "test": test.id, "title": load.title, "case": load.text, "x": load.x,
                         "x_name": test.x_name if load.x is not None else "", "broker": entry.name,
                         "variant": entry.variant, "rep": rep, "note": load.note, "start": self._start(load, entry),
                         "command": self._shown(load, entry), "dropped_packets": dropped_packets() - self.dropped}
        self.folder.add(result)
        self.runs.append(result)
        if not result["complete"]:
            self.progress.log(f"NOT COMPLETE: {load.test.id}, {load.text}: {entry.label}: {result['why']}")

    # ---------------------------------------------------------------- one run

    def _run(self, load: Load, entry: Entry, rep: int) -> dict[str, Any]:
        """Run a load. A foreign broker that does not start with TLS or WebSockets was built without them."""
        for attempt in (0, 1):      # another process may have taken the free port
            broker = self._broker(load, entry)
            try:
                with broker:
                    result = self._load(load, broker)
                    if (ended := broker.ended()) and not result["complete"]:
                        result["why"] += f"; {entry.label} {ended}"
                break
            except NotThereError as error:
                result = failed(load, str(error))
                if attempt:
                    self.out.add(self._way(load, entry))
                    if load.test.transport != "tcp" and entry.found and entry.found.peer is not MOSQ:
                        raise
            except KeyboardInterrupt:
                raise Interrupted(failed(load, "interrupted")) from None
        return result

    def _broker(self, load: Load, entry: Entry) -> Broker | RunningBroker:
        if entry.found is None:
            return RunningBroker(entry.name, *entry.where)
        return Broker(entry.found, entry.flags, core=self.how.broker_core, transport=load.test.transport,
                      durable=load.test.durable, cert=self.cert, key=self.key)

    def _command(self, load: Load, host: str, port: int) -> list[str]:
        parts = ["mosq", "bench", *load.arguments]
        if self.how.core is not None:
            parts += ["--cpu", str(self.how.core)]
        if self.how.username is not None:
            parts += ["--username", self.how.username]
        if host != LOOPBACK:
            parts += ["--host", host]
        return [*parts, "--port", str(port)]

    def _shown(self, load: Load, entry: Entry) -> str:
        """Return the command line of the load for a broker that was just started by hand."""
        if entry.found is None:
            return shlex.join(self._command(load, *entry.where))
        return shlex.join(self._command(load, LOOPBACK, 1883)) + " --broker-pid $!"

    def _start(self, load: Load, entry: Entry) -> str:
        """Return the command line of the broker, as a user types it before that of the load."""
        if entry.found is None:
            return ""
        one = made(entry.found, port=1883, folder=Path("DIR"), flags=entry.flags, transport=load.test.transport,
                   durable=load.test.durable)
        program, *rest = one.command
        command = ["mosq", *rest[2:]] if program == sys.executable else [Path(program).name, *rest]
        return shlex.join(command) + " &"

    def _load(self, load: Load, broker: Broker | RunningBroker) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="mosq-lab-") as name:
            out = Path(name, "result.json")
            command = self._command(load, broker.host, broker.port)
            if broker.pid:
                command += ["--broker-pid", str(broker.pid)]
            with generator([sys.executable, "-m", *command, "--json", str(out), "--quiet"], name) as process:
                try:
                    why = self._wait(process)
                    stopped = False
                except KeyboardInterrupt:
                    stop(process)
                    why, stopped = "interrupted", True
                output = Path(name, "output").read_text(errors="replace").strip().splitlines()
            try:
                result = json.loads(out.read_text())
            except (OSError, ValueError):
                last = output[-1].removeprefix("Error: ") if output else "mosq bench printed nothing"
                result = failed(load, why or last)
        if why:
            result["complete"], result["why"] = False, why
        if stopped:
            raise Interrupted(result)
        return result  # type: ignore[no-any-return]

    def _wait(self, process: subprocess.Popen[bytes]) -> str:
        end = time.monotonic() + self.how.timeout_s
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EVERY_S)
                return ""
            if time.monotonic() > end:
                stop(process)
                return f"not done after {self.how.timeout_s:g} s"
            self.progress.tick()


class Interrupted(Exception):  # noqa: N818 - not an error of the program
    """End the lab after a SIGINT; `result` has the measurements of the current run."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result


@contextlib.contextmanager
def certificate(wanted: bool) -> Iterator[tuple[str, str]]:
    """Create a self-signed certificate and its key for TLS listeners; yield the two files."""
    with tempfile.TemporaryDirectory(prefix="mosq-lab-") as folder:
        paths = (f"{folder}/broker.crt", f"{folder}/broker.key")
        if wanted:
            from mosq._bench import self_signed

            for path, text in zip(paths, self_signed("DNS:localhost,IP:127.0.0.1"), strict=True):
                Path(path).write_bytes(text)
        yield paths


@contextlib.contextmanager
def generator(command: list[str], folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the generator in its own process group:

    Ctrl-C goes to the lab, which stops the generator before the broker.
    """
    with Path(folder, "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output,
                                   start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the generator, so that it writes its results."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)


def dropped_packets() -> int:
    """Return the packets that the kernel dropped between sockets of this machine.

    The kernel drops packets if more than net.core.netdev_max_backlog wait at one core. TCP sends them again after 200
    ms.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        return sum(int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())
    return 0


def failed(load: Load, why: str) -> dict[str, Any]:
    """Return the result of a run that has none."""
    return Result(Spec(load.test.scenario).as_dict(), machine(), now(), [], False, why).as_dict()


def outcome(result: dict[str, Any]) -> str:
    """Return a short summary of one run."""
    if not result["complete"]:
        return "NOT COMPLETE"
    parts = []
    for phase in result["phases"]:
        cpu = (phase["broker"] or {}).get("cpu_us_per")
        parts.append(f"{phase['rate']:,.0f}/s" + (f", {cpu:.2f} us" if cpu else "")
                     + ("" if phase["exact"] else ", NOT EXACT"))
    return "; ".join(parts)
