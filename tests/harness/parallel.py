"""Run collected tests in several processes: ``pytest --jobs 4``.

One process collects the tests and then forks the others, which share the collected tests with it. (With xdist each process
collects all tests.) A process gets one test at a time: it goes through one file, then asks for the next file, and takes half of
the rest of another process's file if no file is left, so that fixtures of a module are set up in few processes. Tests that are
marked `spark` form one group that stays in one process, since each process would start a JVM.

If a process dies, the test that it ran fails, and a new process continues with the next test.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
import traceback
import warnings
from collections import deque
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

from tests.harness.progress import Progress

END = -1                # sent instead of an item's number: no test is left
TICK_S = 1.0
GRACE_S = 20.0          # for processes that tear down after the end of the run


class Next:
    """The `nextitem` of a test: requested only when pytest tears fixtures down after it, so that no test waits behind another."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._asked = False
        self._item: pytest.Item | None = None

    def get(self) -> pytest.Item | None:
        if not self._asked:
            self._asked, self._item = True, self.worker.ask()
        return self._item

    def __bool__(self) -> bool:
        return self.get() is not None

    def listchain(self) -> list[Any]:
        item = self.get()
        assert item is not None
        return item.listchain()


class Worker:
    """A forked process: it runs tests."""

    def __init__(self, session: pytest.Session, number: int, connection: Connection) -> None:
        self.session, self.connection = session, connection
        config = session.config
        # only the first process writes to the terminal and to files
        for name in ("terminalreporter", "junitxml", "lfplugin", "nfplugin", "stepwiseplugin"):
            config.pluginmanager.unregister(name=name)
        config.pluginmanager.register(self)
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None and capture.is_globally_capturing():
            # forked processes share the file of the captured output
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        factory = config._tmp_path_factory                      # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"process-{number}"
        factory._basetemp.mkdir(mode=0o700, exist_ok=True)
        os.environ["MOSQ_TEST_PROCESS"] = str(number)

    def ask(self) -> pytest.Item | None:
        self.connection.send(("next",))
        number: int = self.connection.recv()
        return None if number == END else self.session.items[number]

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self.connection.send(("report", config.hook.pytest_report_to_serializable(config=config, report=report)))

    @pytest.hookimpl
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any) -> None:
        w = warning_message
        self.connection.send(("warning", w.category.__name__, str(w.message), w.filename, w.lineno, when, nodeid, location))

    def run(self) -> None:
        config, item = self.session.config, self.ask()
        while item is not None:
            following = Next(self)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following.get()
        config._ensure_unconfigure()        # reports objects that no test has awaited or closed
        self.connection.send(("end",))


def ending(status: int) -> str:
    """Return the name of a signal or the exit status, for people."""
    return signal.Signals(-status).name if status < 0 else f"status {status}"


class Process:
    """A forked process, as the first process sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.connection: Connection
        self.queue: deque[int] = deque()
        self.shared = True              # other processes may take half of the rest of the queue
        self.pidfd = -1                 # readable when the process has ended, also while a child of it holds the pipe
        self.running: int | None = None
        self.problem = False            # it has reported why it ends
        self.ended = False


class Parallel:
    """The plugin of the first process."""

    def __init__(self, config: pytest.Config, jobs: int) -> None:
        self.config, self.jobs = config, jobs
        self.progress = Progress(config)
        config.pluginmanager.register(self.progress)
        self.processes: list[Process] = []
        self.groups: deque[tuple[deque[int], bool]] = deque()

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if session.config.option.collectonly:
            return True
        self.session = session
        self.config._tmp_path_factory.getbasetemp()             # type: ignore[attr-defined]
        self.divide()
        self.progress.begin(session.items)
        for number in range(min(self.jobs, len(session.items))):
            self.start(number)
        try:
            self.loop()
        finally:
            self.stop()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def divide(self) -> None:
        """Make groups: one of all tests that need a JVM, one for each mark `together`, one of each file. The longest come first."""
        groups: dict[str, deque[int]] = {}
        for n, item in enumerate(self.session.items):
            together = item.get_closest_marker("together")
            name = "spark" if item.get_closest_marker("spark") else f"together {together.args[0]}" if together else str(item.path)
            groups.setdefault(name, deque()).append(n)

        def seconds(name: str) -> float:
            return sum(self.progress.expected_s(self.session.items[n]) for n in groups[name])

        for name in sorted(groups, key=lambda name: (name == "spark", seconds(name)), reverse=True):
            self.groups.append((groups[name], name != "spark" and not name.startswith("together ")))
        self.progress.chain = [self.session.items[n] for n in groups.get("spark", ())]

    def start(self, number: int, queue: deque[int] | None = None, shared: bool = True) -> None:
        process = Process(number)
        if queue is not None:
            process.queue, process.shared = queue, shared
        process.connection, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)     # Python 3.12: some libraries start threads at import
            process.pid = os.fork()
        if process.pid == 0:
            status = 1
            atexit._clear()             # the first process's
            try:
                process.connection.close()
                for other in self.processes:
                    other.connection.close()
                self.config.pluginmanager.unregister(self.progress)
                self.config.pluginmanager.unregister(self)
                Worker(self.session, number, theirs).run()
                status = 0
            except (EOFError, BrokenPipeError, KeyboardInterrupt, pytest.exit.Exception):   # type: ignore[attr-defined]
                self.session._setupstate.teardown_exact(None)
            except BaseException as error:
                theirs.send(("problem", "".join(traceback.format_exception(error))))
                status = 0                      # the error has been reported
            finally:
                atexit._run_exitfuncs()
                os._exit(status)
        theirs.close()
        process.pidfd = os.pidfd_open(process.pid)
        self.processes.append(process)

    def loop(self) -> None:
        while living := [p for p in self.processes if not p.ended]:
            ready = wait([one for p in living for one in (p.connection, p.pidfd)], TICK_S)
            for process in living:
                if process.connection in ready:
                    self.receive(process)
                elif process.pidfd in ready and not process.connection.poll():
                    self.died(process)
            self.progress.show()

    def receive(self, process: Process) -> None:
        try:
            kind, *what = process.connection.recv()
        except (EOFError, ConnectionResetError):
            self.died(process)
            return
        hook = self.config.hook
        if kind == "report":
            report = hook.pytest_report_from_serializable(config=self.config, data=what[0])
            hook.pytest_runtest_logreport(report=report)
        elif kind == "next":
            process.running = self.next_for(process)
            process.connection.send(END if process.running is None else process.running)
        elif kind == "warning":
            category, message, filename, lineno, when, nodeid, location = what
            made = warnings.WarningMessage(f"{category}: {message}", UserWarning, filename, lineno)
            hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": made, "when": when, "nodeid": nodeid, "location": location})
        elif kind == "problem":
            process.problem = True
            self.failed(f"tests/[process {process.number}]", what[0])
        elif kind == "end":
            status = self.ended(process)
            if status:
                self.failed(f"tests/[process {process.number}]", f"the process ended with {ending(status)} after its last test")

    def next_for(self, process: Process) -> int | None:
        """Return the number of the test that this process runs next; None = the process ends."""
        if self.session.shouldfail or self.session.shouldstop:
            return None
        if not process.queue:
            if self.groups:
                process.queue, process.shared = self.groups.popleft()
            else:
                victim = max((p for p in self.processes if p.shared), key=lambda p: len(p.queue), default=None)
                if victim is None or not victim.queue:
                    return None
                process.queue, process.shared = deque(), True
                for _ in range((len(victim.queue) + 1) // 2):
                    process.queue.appendleft(victim.queue.pop())
        return process.queue.popleft()

    def ended(self, process: Process) -> int:
        """Wait for the end of the process, at most GRACE_S. Return its exit status, or minus the number of a signal."""
        process.ended = True
        process.connection.close()
        if not wait([process.pidfd], GRACE_S):
            os.kill(process.pid, signal.SIGKILL)
        os.close(process.pidfd)
        return os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])

    def died(self, process: Process) -> None:
        why = ending(self.ended(process))
        if process.running is None:
            if not process.problem:
                self.failed(f"tests/[process {process.number}]", f"the process ended with {why} and without a report")
            return
        self.failed(self.session.items[process.running].nodeid, f"the process that ran this test ended with {why}")
        self.start(process.number, process.queue, process.shared)

    def failed(self, nodeid: str, text: str) -> None:
        """Report the problem as a failed test."""
        file = nodeid.split("::", maxsplit=1)[0]
        self.config.hook.pytest_runtest_logreport(report=pytest.TestReport(
            nodeid, (file, None, nodeid), {}, "failed", text, "call", duration=0.0, start=time.time(), stop=time.time()))

    def stop(self) -> None:
        """End the processes that an interrupted run has left."""
        living = [p for p in self.processes if not p.ended]
        for process in living:
            process.connection.close()
        deadline = time.monotonic() + GRACE_S
        for process in living:
            while os.waitpid(process.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(process.pid, signal.SIGKILL)
                    os.waitpid(process.pid, 0)
                    break
                time.sleep(0.05)
