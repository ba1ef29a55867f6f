"""Connect locust to a Run: arguments, tags, begin and end of a test, workers, and the file of results.

A test ends when its messages are delivered or lost, before locust stops the users. The master asks its workers to drain
and to report before it ends: locust itself waits only half a second for their last figures.
"""

from __future__ import annotations

import datetime
import functools
import logging
import sys
import time
from pathlib import Path
from typing import Any

import gevent
import locust.argument_parser
import locust.runners
import locust.stats
from gevent.event import Event
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from mosq.tools.bench.result import BUSY
from perf.load import results
from perf.load.options import OptionError, Settings, Target, add_arguments
from perf.load.run import Run

DRAIN, DRAINED = "mqtt drain", "mqtt drained"
MARGIN_S = 5.0                  # time for workers to answer, beside the timeout of a message
WRITE_S = 0.5                   # interval of writing the result
CPU_S = 2.0                     # locust measures every ten seconds, which is too long for a short test
MISSING = "missing"             # locust's state of a worker that no longer answers
SHOWN = ("version", "qos", "size", "rate", "backlog")           # options that the result contains

logger = logging.getLogger(__name__)


def install() -> None:
    """Install the hooks; the locustfile calls it once, before locust reads its arguments."""
    locust.stats.STATS_TYPE_WIDTH = 14
    locust.stats.bucket_response_time = results.bucket
    locust.runners.CPU_MONITOR_INTERVAL = CPU_S
    # a worker calls it a hundred times when the number of users changes, which would block it for half a second
    locust.argument_parser.default_args_dict = functools.cache(locust.argument_parser.default_args_dict)
    events.init_command_line_parser.add_listener(lambda parser: add_arguments(parser))
    events.init.add_listener(lambda environment, runner, **_: Hooks(environment, runner))


def choose(environment: Any) -> None:
    """Choose the users by --tags and --exclude-tags: locust itself would start users that have nothing to do."""
    options = environment.parsed_options
    tags, excluded = set(options.tags or ()), set(options.exclude_tags or ())
    names = {user: tags_of(user) for user in environment.user_classes}
    chosen = [user for user, own in names.items() if (not tags or own & tags) and not own & excluded]
    if not chosen:
        known = ", ".join(sorted(set().union(*names.values())))
        logger.error("no scenario is left; the tags are %s", known)
        sys.exit(1)
    environment.user_classes[:] = chosen


def tags_of(user: Any) -> set[str]:
    """Return the tags of a class of users."""
    return set().union(*(getattr(task, "locust_tag_set", ()) for task in user.tasks))


class Hooks:
    """Connect one process of locust to its Run: a master, a worker, or a single process."""

    def __init__(self, environment: Any, runner: Any) -> None:
        self.environment, self.runner = environment, runner
        self.options = environment.parsed_options
        self.run: Run | None = None
        self.reports: dict[str, dict[str, float]] = {}          # by worker
        self.cpu_warning = False
        self.why = ""
        self.started, self.began_s, self.seconds, self.users = "", 0.0, 0.0, 0
        self._all_drained, self._waiting = Event(), set[str]()
        self._writer: gevent.Greenlet | None = None
        choose(environment)
        self._check()
        gevent.get_hub().loop.update_now()      # imports took time, which must not shorten the --run-time
        listen = environment.events
        listen.test_start.add_listener(self._start)
        listen.test_stopping.add_listener(self._stopping)
        listen.test_stop.add_listener(self._stop)
        listen.cpu_warning.add_listener(self._busy)
        if isinstance(runner, MasterRunner):
            listen.worker_report.add_listener(self._reported)
            runner.register_message(DRAINED, self._drained)
        elif isinstance(runner, WorkerRunner):
            listen.report_to_master.add_listener(self._report)
            runner.register_message(DRAIN, self._drain, concurrent=True)

    def _check(self) -> None:
        try:
            if Target.of(self.environment.host).tls:
                Settings.of(self.options).tls_context()
        except OptionError as e:
            logger.error("%s", e)
            sys.exit(1)

    # ---------------------------------------------------------------- a test

    def _start(self, **_: object) -> None:
        self.started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.began_s, self.seconds, self.why, self.users, self.cpu_warning = time.monotonic(), 0.0, "", 0, False
        self.reports.clear()
        if not isinstance(self.runner, MasterRunner):
            self.environment.mqtt = self.run = Run(
                self.environment, Settings.of(self.options), Target.of(self.environment.host))
        if self.options.mqtt_result and not isinstance(self.runner, WorkerRunner):
            self._writer = gevent.spawn(self._write_again)

    def _stopping(self, **_: object) -> None:
        self.seconds = time.monotonic() - self.began_s
        if isinstance(self.runner, MasterRunner):
            self._drain_workers()
        elif self.run is not None:
            self.run.drain()

    def _stop(self, **_: object) -> None:
        if self.run is not None:
            self.reports["local"] = self.run.report()
            self.run.close()
        if self._writer is not None:
            self._writer.kill()
            self._writer = None
            wanted_s = self.options.run_time
            if not self.why and wanted_s and self.seconds < wanted_s - 0.5:
                self.why = f"ended after {self.seconds:.1f} of {wanted_s} s"
            self._write()

    def _busy(self, cpu_usage: float, **_: object) -> None:
        self.cpu_warning = True

    # ---------------------------------------------------------------- master

    def _drain_workers(self) -> None:
        workers = {node.id: node.state for node in self.runner.clients.all}
        self._waiting = {worker for worker, state in workers.items() if state != MISSING}
        missing = len(workers) - len(self._waiting) + max(0, (self.options.expect_workers or 0) - len(workers))
        self._all_drained.clear()
        for worker in list(self._waiting):
            self.runner.send_message(DRAIN, None, worker)
        if self._waiting and not self._all_drained.wait(Settings.of(self.options).timeout_s + MARGIN_S):
            missing += len(self._waiting)
        if missing:
            self.why = f"{missing} worker{'s' if missing > 1 else ''} went missing"

    def _drained(self, msg: Any, **_: object) -> None:
        self._waiting.discard(msg.node_id)
        if not self._waiting:
            self._all_drained.set()

    def _reported(self, client_id: str, data: dict[str, Any]) -> None:
        if "mqtt" in data:
            self.reports[client_id] = data["mqtt"]

    # ---------------------------------------------------------------- worker

    def _drain(self, **_: object) -> None:
        if self.run is not None:
            self.run.drain()
        data: dict[str, Any] = {}
        self.environment.events.report_to_master.fire(client_id=self.runner.client_id, data=data)
        self.runner.send_message("stats", data)
        self.runner.send_message(DRAINED)

    def _report(self, client_id: str, data: dict[str, Any]) -> None:
        if self.run is not None:
            data["mqtt"] = {**self.run.report(), "cpu_warning": float(self.cpu_warning)}

    # ---------------------------------------------------------------- results

    def _write_again(self) -> None:
        while True:
            gevent.sleep(WRITE_S)
            if self.run is not None:
                self.reports["local"] = self.run.report()
            self._write(unfinished=True)

    def _write(self, *, unfinished: bool = False) -> None:
        stats, reports = self.environment.stats, self.reports.values()
        seconds = self.seconds or time.monotonic() - self.began_s
        self.users = max(self.users, self.runner.target_user_count)
        total = {key: int(sum(report.get(key, 0) for report in reports))
                 for key in ("sent", "delivered", "lost", "duplicates", "out_of_order", "foreign")}
        cpu_s, requests = (sum(report[key] for report in reports) for key in ("cpu_s", "requests"))
        busy = max((report["busy"] for report in reports), default=0.0)
        warned = self.cpu_warning or any(report.get("cpu_warning") for report in reports)
        why = self.why or ("still running" if unfinished else "")
        results.write(Path(self.options.mqtt_result), {
            "broker": Target.of(self.environment.host).url, "started": self.started, "users": self.users,
            "seconds": seconds, "scenarios": sorted(set().union(*map(tags_of, self.environment.user_classes))),
            "options": {key: getattr(self.options, f"mqtt_{key}") for key in SHOWN},
            "entries": results.entries(stats, seconds), "errors": results.errors(stats), "messages": total,
            "generator": {"processes": [{"sent": int(report["sent"]), "delivered": int(report["delivered"]),
                                         "busy": report["busy"]} for report in reports],
                          "requests": int(requests), "cpu_s": cpu_s, "busy": busy,
                          "cpu_us_per_request": cpu_s / requests * 1e6 if requests else 0.0,
                          "limit": busy >= BUSY or warned},
            "complete": not why, "why": why})
