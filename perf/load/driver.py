"""Run `make load` and `make load-ui`: a fresh mosq unless a broker is given, locust as a child process, and a witness.

The witness is an idle connection that notices when the broker goes away.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from mosq.tools.bench import started
from mosq.tools.bench.spec import BenchError
from perf.load import results
from perf.load.options import Settings, Target, without_login

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 5.0                # timeout of the first connection
GONE_S = 2.0                    # time after which a broker is gone; paho reconnects every second
POLL_S = 0.05
SHOWN_ERRORS = 10


@dataclass(frozen=True)
class Plan:
    """Hold the options of the command."""

    users: int = 50
    seconds: int = 15
    scenarios: list[str] = field(default_factory=list)          # tags; empty: all
    broker: str = ""                                            # URL; empty: a fresh mosq
    workers: int = 1
    web_port: int | None = None                                 # port of locust's page; None: no page
    out: Path = Path("build/load")
    locust: list[str] = field(default_factory=list)             # further arguments of locust
    settings: Settings = field(default_factory=Settings)        # settings of the witness


class Refused(Exception):       # noqa: N818
    """State why there is nothing to measure."""


def run(plan: Plan) -> int:
    """Run a test; return the exit status, 1 if a person must look at the result."""
    now = datetime.datetime.now(datetime.UTC)
    folder = plan.out / now.strftime("%Y%m%d-%H%M%S")
    shown = without_login(plan.broker) or "mosq"
    try:
        with broker(plan) as target, Witness(target, plan.settings) as witness:
            shown = target.url
            folder.mkdir(parents=True, exist_ok=True)
            status = Locust(plan, target.url, folder, witness).run()
    except (Refused, BenchError, ValueError, KeyboardInterrupt) as e:
        why, path = str(e) or "interrupted", folder / "locust.json"
        begun = {"broker": shown, "started": now.isoformat(timespec="seconds"), "users": plan.users, "seconds": 0.0,
                 "entries": [], **(results.read(path) or {})}
        results.write(path, {key: value for key, value in begun.items() if key != "format"}
                      | {"complete": False, "why": why})
        log(why)
        return 1
    return status


@contextlib.contextmanager
def broker(plan: Plan) -> Iterator[Target]:
    """Yield the broker to measure; start a fresh mosq if none is given."""
    if plan.broker:
        yield Target.of(plan.broker)
        return
    log("starting a fresh mosq")
    with started.broker() as place:
        yield Target.of(f"mqtt://{place['host']}:{place['port']}")


class Witness:
    """Check that the broker exists and accepts the login, and notice when it goes away."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.target = target
        self.losses = 0
        self._lost_at: float | None = None
        self._answer: list[str] = []
        self._heard = threading.Event()
        v5 = settings.mqtt == "5"
        client = self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, f"{settings.prefix}-witness-{os.getpid()}", None if v5 else True, None,
            mqtt.MQTTv5 if v5 else mqtt.MQTTv311, target.transport)
        client.connect_timeout = PATIENCE_S
        client.reconnect_delay_set(1, 1)
        if target.transport == "websockets":
            client.ws_set_options(target.path)
        if target.tls:
            client.tls_set_context(settings.tls_context())
        user, password = settings.login(0)
        if user:
            client.username_pw_set(user, password or None)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect

    def __enter__(self) -> Witness:
        try:
            self._client.connect(self.target.host, self.target.port)
        except OSError as e:
            raise Refused(f"no broker at {self.target.url}: {e.strerror or e}") from None
        self._client.loop_start()
        try:
            answered = self._heard.wait(PATIENCE_S)
        except KeyboardInterrupt:
            self.__exit__()
            raise
        why = self._answer[0] if self._answer else "does not answer"
        if not answered or why:
            self.__exit__()
            raise Refused(f"the broker at {self.target.url} {why}")
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(self, client: object, userdata: object, flags: Any, reason: Any, properties: object) -> None:
        self._answer.append(f"refused the login: {reason}" if reason.is_failure else "")
        if not reason.is_failure:
            self._lost_at = None
        self._heard.set()

    def _on_disconnect(self, *_: object) -> None:
        if not self._heard.is_set():
            self._answer.append("closed the connection")
            self._heard.set()
        elif self._lost_at is None:
            self.losses += 1
            self._lost_at = time.monotonic()

    @property
    def gone(self) -> bool:
        """Return whether the broker is gone. A broker that disconnects the witness, or restarts, accepts it again."""
        lost_at = self._lost_at
        return lost_at is not None and time.monotonic() - lost_at > GONE_S


class Locust:
    """Run locust as a child process. However it ends, a file of results describes it."""

    def __init__(self, plan: Plan, url: str, folder: Path, witness: Witness) -> None:
        self.plan, self.url, self.folder, self.witness = plan, url, folder, witness
        self.path = folder / "locust.json"
        self.why = ""
        self.interrupted = False

    def run(self) -> int:
        """Run locust to its end; return the exit status."""
        plan = self.plan
        what = ", ".join(plan.scenarios) or "all scenarios"
        port = None if plan.web_port is None else plan.web_port or free_port()
        if port is None:
            log(f"{plan.users} users, {what}, {plan.seconds} s, against {self.url}")
        # a session of its own: Ctrl-C goes to this process, which lets locust end its test
        process = subprocess.Popen(self._command(port), stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True)
        try:
            if port is not None:
                self._open_page(port, process)
            self._watch(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if port is not None and self.interrupted and not self.path.exists():
            return 0                            # the user measured nothing on the page
        return self._finish(process.returncode)

    def _command(self, port: int | None) -> list[str]:
        plan, folder = self.plan, self.folder
        command = [sys.executable, "-m", "locust", "-f", str(ROOT / "perf/locustfile.py"), "--host", self.url,
                   "--users", str(plan.users), "--spawn-rate", str(max(1.0, plan.users / 2)),
                   "--logfile", str(folder / "locust.log"), "--result", str(self.path)]
        if plan.workers > 1:
            command += ["--processes", str(plan.workers), "--master-bind-host", "127.0.0.1",
                        "--master-bind-port", (at := str(free_port())), "--master-port", at]
        if port is None:
            command += ["--headless", "--only-summary", "--run-time", f"{plan.seconds}s",
                        "--csv", str(folder / "locust"), "--html", str(folder / "locust.html")]
        else:
            command += ["--web-host", "127.0.0.1", "--web-port", str(port), "--class-picker"]
        command += plan.locust
        return command + (["--tags", *plan.scenarios] if plan.scenarios else [])

    def _open_page(self, port: int, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(POLL_S)
        else:
            return
        page = f"http://127.0.0.1:{port}"
        log(f"locust's page: {page} (Ctrl-C ends it); the broker: {self.url}")
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(page)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        shown, moved = sys.stderr.isatty() and self.plan.web_port is None, 0.0
        while process.poll() is None:
            try:
                time.sleep(POLL_S)
                if self.witness.gone and not self.why and not self.interrupted:
                    self.why = f"the broker at {self.url} went away during the test"
                    log(self.why)
                    if self.plan.web_port is None:
                        process.terminate()
                if shown and time.monotonic() - moved > 1:
                    moved = time.monotonic()
                    self._progress()
            except KeyboardInterrupt:
                if self.interrupted:
                    raise
                self.interrupted = True
                if self.plan.web_port is None:
                    self.why = self.why or "interrupted"
                process.terminate()

    def _progress(self) -> None:
        if (result := results.read(self.path)) is not None:
            requests = sum(entry["requests"] for entry in result["entries"])
            failures = sum(entry["failures"] for entry in result["entries"])
            print(f"\r{result['seconds']:.0f} of {self.plan.seconds} s: {requests:,} requests, {failures:,} failures ",
                  end="", file=sys.stderr, flush=True)

    def _finish(self, status: int) -> int:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        result, log_file = results.read(self.path), self.folder / "locust.log"
        if result is None:
            result = {"broker": self.url, "started": "", "users": self.plan.users, "seconds": 0.0, "entries": [],
                      "complete": False, "why": ""}
            self.why = self.why or f"locust ended with status {status} before it began; see {log_file}"
        elif result["why"] == "still running" and not self.why:
            self.why = f"locust ended during the test with status {status}; see {log_file}"
        elif result["complete"] and self.witness.losses:
            times = "" if self.witness.losses == 1 else f" ({self.witness.losses} times)"
            self.why = f"the broker at {self.url} went away, or disconnected an idle client, and was back{times}"
        if self.why:
            result |= {"complete": False, "why": self.why}
        results.write(self.path, {key: value for key, value in result.items() if key != "format"})
        for line in summary(result):
            log(line)
        log(f"results: {self.path}, and locust's own files beside it")
        failures = sum(entry["failures"] for entry in result["entries"])
        return 0 if result["complete"] and not failures and (not status or self.interrupted) else 1


def summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a result for the terminal."""
    requests, failures = (sum(entry[key] for entry in result["entries"]) for key in ("requests", "failures"))
    messages, generator = result.get("messages"), result.get("generator")
    if messages:
        yield ("messages: {sent:,} sent, {delivered:,} delivered, {lost:,} lost, {duplicates:,} twice, "
               "{out_of_order:,} out of order".format(**messages))
    if generator and generator["requests"]:
        processes = len(generator["processes"])
        yield (f"locust: {generator['cpu_us_per_request']:.0f} us CPU per request, "
               f"{'the busiest of ' + str(processes) + ' processes' if processes > 1 else 'its process'} busy for "
               f"{min(generator['busy'], 1):.0%} of the time")
        if generator["limit"]:
            yield ("warning: locust was the limit, not the broker: these rates and times are its own. Use more "
                   "WORKERS=, a lower --rate, or `mosq bench`")
    if failures:
        yield f"{failures:,} of {requests:,} requests failed:"
        for error in result.get("errors", [])[:SHOWN_ERRORS]:
            yield f"  {error['count']:,} x {error['type']}, {error['name']}: {error['error']}"
    if not result["complete"]:
        yield f"not complete: {result['why']}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def log(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


