"""The parent of the workers (`cluster_local N`). It reads the configuration, opens the listening sockets, writes the
pid file, starts the workers, and watches them. It never reads a byte of a client.

    check -> listen -> pid file -> worker 1 -> the other workers -> watch ... SIGTERM or SIGINT -> stop all -> exit 0
                                                                      |
            SIGHUP: round.py   a worker ended or is silent: start again   SIGUSR2, SIGRTMIN: to all workers
                                                                          SIGUSR1: saving.py

A worker is a fork without exec. It has the configuration, the sockets and the modules in memory already, so it starts
again at once, and the memory of the modules is shared. The price is that the parent must have no thread: a thread could
hold a lock at the fork. So its log has none (log/destinations.py:Direct), and it waits for nothing but poll.

Rights: a parent that root has started acts as the broker's user, and keeps root as its saved user id, which only a new
worker uses: it must read again what the first one has read as root, such as keys, and then gives these rights up.
"""

import _socket
import gc
import os
import select
import signal
import time
import traceback

from mosq.config.check import check_workers
from mosq.config.errors import ConfigError
from mosq.engine import (
    continue_when_parent_ends,
    counts_ended,
    reload_counted,
    watch_signal,
)
from mosq.log.log import log_of
from mosq.log_types import ERROR, INFORMATION, WARNING
from mosq.server import process, signals, systemd
from mosq.server.control import (
    EXIT_CANNOT_START,
    EXIT_CONFIG,
    EXIT_OK,
    UPGRADE_VARIABLE,
    CannotStartError,
    report_failure,
    report_start,
    report_user,
    serve,
)
from mosq.server.opening import opening_lines, reachable
from mosq.server.reload import address_of, reason_of, refuse, report_applied
from mosq.server.saving import Polled, Saver
from mosq.server.settings import log_mask
from mosq.server.storage import key_of, may_divide, may_take_over
from mosq.server.workers.channel import channel_pair
from mosq.server.workers.order import Order
from mosq.server.workers.reading import content_of
from mosq.server.workers.round import Round
from mosq.server.workers.shared import Shared
from mosq.server.workers.slot import Slot
from mosq.server.workers.terms import not_shared, of_worker
from mosq.server.workers.worker import Worker
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.auth.dynsec.document import Document
    from mosq.config.model import Config
    from mosq.embed.apart import Owner
    from mosq.server.signals import Signals
    from mosq.server.workers.channel import Channel, Message
    from mosq.server.workers.shared import Given
    from mosq.server.workers.trial import TrialSlot

TURN_S = 1.0                    # the longest wait
ADMIT_WITHIN_S = 1.0            # time that clients wait for the bridges of other workers, when all workers are ready
READS_MAX = 5                   # of one reload, if its files change again and again
STOP_S = 3.0                    # from SIGTERM to SIGKILL; a worker needs less than one second
PARENT_NAME = "mosq"
SIGNAL_BYTES = 128              # what a signalfd returns
ARRIVAL_REFUSED = "the new configuration has workers (cluster_local), which cannot take over; restart mosq"


def serve_workers(config: "Config", *, taken: "Signals", quiet: bool = False, verbose: bool = False,
                  background: bool = False, load: "Callable[[], Config]") -> int:
    """Run the parent and its workers until they are stopped; return the exit status."""
    return serve_parent(Parent(config, taken, quiet, verbose, load), taken, background)


def serve_parent(parent: "Parent", taken: "Signals", background: bool) -> int:
    """Run a parent until it is stopped; return the exit status."""
    try:
        parent.prepare()
        in_background = process.Background() if background else None
        process.room_for_descriptors()
        taken.defer()
        parent.listen()
        return parent.run(in_background)
    except signals.Stopped:
        return EXIT_OK
    except CannotStartError as error:
        if not error.reported:
            report_failure(parent.log, error.text)
        return error.status
    finally:
        parent.close()


def _refuse_arrival() -> None:
    """Refuse the clients of another process, which has no workers. Raises CannotStartError, and OSError for a wrong
    environment."""
    if UPGRADE_VARIABLE not in os.environ:
        return
    from mosq.server.upgrade.arrival import Arrival

    Arrival().refuse(ARRIVAL_REFUSED)
    raise CannotStartError(f"Error: Upgrade: {ARRIVAL_REFUSED}")


class Parent:
    """The parent of the workers of one broker."""

    saver: Saver                        # writes mosquitto.db
    document: "Document | None" = None  # of dynamic security, of a cluster that has one

    def __init__(self, config: "Config", taken: "Signals", quiet: bool, verbose: bool,
                 load: "Callable[[], Config]", owner: "Owner | None" = None) -> None:
        self.config, self.signals, self._load = config, taken, load
        self._owner = owner             # a program that has started this process; None: a command line
        self._quiet, self._verbose = quiet, verbose
        self.log = log_of(config, log_mask(config, quiet, verbose), threads=False)
        self.slots = [Slot(place) for place in range(config.cluster_local)]
        self._order = Order(self.slots)
        self._round: Round | None = None
        self._trial: TrialSlot | None = None    # the process that checks a configuration without workers
        self._rounds = 0                # since the start
        self._reads = 0                 # of the present reload
        self._asked = self._covered = 0     # SIGHUPs until now; those that the present or last reload covers
        self._reload_fd = -1            # readable while SIGHUP is pending
        self._mask: set[int] | None = None  # of signals, before SIGHUP was blocked
        self._again = False             # SIGHUP came during a round, or while a worker starts
        self._user: process.Account | None = None
        self._acting = process.Acting(None)
        self._shared = Shared()
        self._pid_file: str | None = None
        self._status = EXIT_OK
        self._changes = (0, 0)          # messages and batches that all workers have written
        self._writing: Polled | None = None     # the process that writes mosquitto.db now

    @property
    def given(self) -> "Given":
        """Return what all workers get."""
        return self._shared.given

    # ---- start

    def prepare(self) -> None:
        """Find the user and open the log. Raises CannotStartError."""
        self._mask = signals.block_reload()
        try:
            _refuse_arrival()
            self._user = process.find_account(self.config.user)
            process.set_umask()
            with process.Acting(self._user):
                wrong = self.log.open()
            for text in wrong:
                os.write(2, f"Error: {text}\n".encode("utf-8", "backslashreplace"))
        except LookupError as error:
            raise CannotStartError(f"Error: {error}", EXIT_CONFIG) from None
        except (OSError, ValueError) as error:
            raise CannotStartError(f"Error: {reason_of(error)}") from None

    def listen(self) -> None:
        """Open what all workers share, write the pid file, and give up root's rights. Raises CannotStartError."""
        if self._owner is None:
            report_start(self.log, self.config)
            for text in not_shared(self.config):
                self.log.report(WARNING, f"Warning: {text}")
        self.log.release()
        try:
            key = self._key()
            self._shared.listen(reachable(self.config))
            for listener in self.config.listeners:
                for line in opening_lines(listener):
                    self.log.report(INFORMATION, line)
            self._shared.connect(key, len(self.slots))
            self._reload_fd = watch_signal(signals.RELOAD)
            self.saver = Saver(self.config, lambda: self._changes, self.log.report, self._write, key)
            self._settle()
        except ValueError as error:
            raise CannotStartError(f"Error: {error}", EXIT_CONFIG) from None
        except OSError as error:
            raise CannotStartError(f"Error: {reason_of(error)}") from None

    def _key(self) -> bytes:
        """Return the key that names the worker of a client id; afterwards `slots` has a place for each worker. Raises
        OSError, ValueError and CannotStartError."""
        if may_divide(self.config) or may_take_over(self.config):
            process.load_now(process.LOADED_FOR_TAKE_OVER)
        with process.Acting(self._user), self.signals.reading:
            return key_of(self.config, self.log.report)

    def _settle(self) -> None:
        if self.config.pid_file is not None:
            try:
                process.write_pid_file(self.config.pid_file)
            except OSError as error:
                raise OSError(f"Unable to write pid file {self.config.pid_file}: {error.strerror}") from None
            self._pid_file = self.config.pid_file
        process.name_process(PARENT_NAME, arguments=False)
        if self._user is not None:
            process.load_for(self._user)
            for listener in self.config.listeners:
                if listener.path is not None:
                    os.chown(listener.path, self._user.uid, self._user.gid, follow_symlinks=False)
        self._acting = process.Acting(self._user)
        self._acting.__enter__()
        if self._owner is None:         # a program knows its own user
            report_user(self.log, self._user)
        gc.freeze()                     # objects of before the first fork stay in shared memory

    def _repair_passage(self, slot: Slot) -> None:
        """Replace the passage of a worker, at its start, if it was shut down."""
        if not self._shared.repair_passage(slot.place):
            return
        for peer in self.slots:
            if peer is not slot and peer.channel is not None:
                peer.channel.send({"do": "passage", "peer": slot.place}, [self.given.passages[slot.place]])
        self.log.report(WARNING, f"Warning: the socket for connections to {slot.name} was shut down, and is replaced.")

    def _fork(self, slot: Slot) -> None:
        self._repair_passage(slot)
        self._fork_as(slot, f"mosq: worker {slot.place + 1}",
                      lambda channel, before: self._serve_as(slot.place, channel, before))

    def _fork_as(self, slot: Slot, name: str, serve: "Callable[[Channel, set[int]], int]") -> None:
        """Start a process that is like a worker. `serve` is its work, and returns the exit status."""
        own, theirs = channel_pair()
        before = signals.block_all()    # a signal must not reach the new process before it has its own handlers
        try:
            pid = os.fork()
            if pid == 0:
                own.close()
                self._become(name, lambda: serve(theirs, before))
        finally:
            signals.unblock(before)
        theirs.close()
        slot.began(pid, own, time.monotonic())

    def _become(self, name: str, serve: "Callable[[], int]") -> None:
        """Be a worker, or a process that is like one, until its end. Never returns."""
        status = EXIT_CANNOT_START
        try:
            continue_when_parent_ends()         # Worker.ready repeats it, after the change of the user
            self._acting.__exit__(None, None, None)
            process.name_process(name, arguments=True)
            self._let_go()
            for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC"):
                os.environ.pop(name, None)
            status = serve()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else EXIT_CANNOT_START
        except BaseException:
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        finally:
            os._exit(status)

    def _let_go(self) -> None:
        """Close in a new worker what belongs to the parent."""
        for slot in self.slots:
            if slot.channel is not None:
                slot.channel.close()
        if self._trial is not None and self._trial.channel is not None:
            self._trial.channel.close()
        os.close(self.signals.read_fd)
        os.close(self.signals.write_fd)
        os.close(self._reload_fd)
        if self._writing is not None:
            os.close(self._writing.fd)

    def _worker(self, place: int, channel: "Channel") -> Worker:
        """Return the part of a worker, in its process."""
        return Worker(place, channel, self._shared, self._covered)

    def _serve_as(self, place: int, channel: "Channel", before: "set[int]") -> int:
        count = self.config.cluster_local
        worker = self._worker(place, channel)

        def load() -> "Config":
            config = self._load()
            worker.compare(config)
            config.cluster_local = count        # a change takes effect at the next start
            return of_worker(config, place + 1, self.given.key)

        with signals.Signals() as taken:
            # a reload is decided by the parent: all workers, or none
            signal.signal(signals.RELOAD, signal.SIG_IGN)
            signals.unblock(before - {signals.RELOAD})
            return serve(of_worker(reachable(self.config), place + 1, self.given.key), taken=taken, quiet=self._quiet,
                         verbose=self._verbose, load=load, worker=worker)

    # ---- run

    def run(self, in_background: "process.Background | None") -> int:
        """Start the workers, and watch them until a signal ends them; return the exit status."""
        if not self._begin():
            return self._stop()
        self.log.report(INFORMATION, f"mosq version {VERSION} running")
        if in_background is not None:
            in_background.ready()
        if self._owner is not None:
            self._owner.ready(self._shared.sockets)
        systemd.notify("READY=1")
        process.load_now(process.LOADED_FOR_SAVING if self.saver.saves() else ())
        ping_s = (systemd.watchdog_s() or 0.0) / 3
        pinged_s = 0.0
        while self._turn():
            if ping_s and time.monotonic() >= pinged_s + ping_s:
                pinged_s = time.monotonic()
                systemd.notify("WATCHDOG=1")
        systemd.notify("STOPPING=1")
        status = self._stop()
        self.saver.finish()
        return status

    def _begin(self) -> bool:
        """Start all workers. Return False if a signal asks for the stop. Raises CannotStartError."""
        # worker 1 first: an error that only a worker can find is reported once
        if not self._start(self.slots[:1]) or not self._start(self.slots[1:]):
            return False
        self.log.report(INFORMATION, f"{len(self.slots)} workers serve the clients.")
        return True

    def _start(self, slots: list[Slot]) -> bool:
        """Start workers, and wait until they serve clients. Return False if a signal asks for the stop. Raises
        CannotStartError if one of them ends: it has reported why."""
        for slot in slots:
            self._fork(slot)
        while not all(slot.ready for slot in slots):
            if not self._turn(starting=True):
                return False
            failed = next((slot for slot in self.slots if slot.status is not None), None)
            if failed is not None:
                self._stop()
                why = failed.failure or {"text": f"Error: {failed.name} cannot start", "wrong_config": False}
                raise CannotStartError(why["text"], max(failed.status or 0, EXIT_CANNOT_START), why["wrong_config"],
                                       reported=failed.failure is not None)
        return True

    def _turn(self, starting: bool = False) -> bool:
        """Wait for one event, and serve all that is due. Return False if the broker shall stop."""
        poll = select.poll()
        for fd in self._descriptors():
            poll.register(fd, select.POLLIN)
        before_s = time.monotonic()
        readable = [fd for fd, _ in poll.poll(1000 * self._wait_s(before_s))]
        now_s = time.monotonic()
        if now_s - before_s > TURN_S + self.config.cluster_watchdog / 2:
            for slot in self.slots:     # this process was stopped, or the machine is very busy: no worker was late
                slot.seen_s = now_s
        for slot in self.slots:
            self._receive(slot, now_s)
        for slot in self.slots:
            self._look(slot, now_s, starting)
        self._look_at_trial()
        self._decide(now_s)
        # a worker prepares a reload with the rules of that moment, so no change comes between
        self._order.look(now_s, self._round is None and not self._again)
        self._admit(now_s)
        self._save(readable)
        if self._reload_fd in readable:
            self._ask_reload(by_signal=True)
        return (self._owner is None or self._owner.serve(self.slots, self.given.key)) and self._signals()

    def _descriptors(self) -> list[int]:
        """Return the descriptors at which an event may come."""
        found = [self.signals.read_fd, self._reload_fd]
        found += [slot.channel.fileno() for slot in self.slots if slot.channel is not None]
        if self._trial is not None and self._trial.channel is not None:
            found.append(self._trial.channel.fileno())
        if self._owner is not None:
            found.append(self._owner.fileno())
        if self._writing is not None:
            found.append(self._writing.fd)
        return found

    def _wait_s(self, now_s: float) -> float:
        due = [slot.due_s - now_s for slot in self.slots if slot.due_s is not None and self._round is None]
        due += [slot.held_s - now_s for slot in self.slots if slot.held_s is not None]
        save_s = self.saver.due_in_s() if self._writing is None else None
        return max(0.0, min([TURN_S, *due, *([] if save_s is None else [save_s])]))

    def _receive(self, slot: Slot, now_s: float) -> None:
        for message, fds in slot.channel.receive() if slot.channel is not None else ():
            slot.seen_s = now_s
            if message["is"] == "ready":
                self._link(slot)
                slot.ready = True
                self._report_ready(slot)
                slot.held_s = now_s + ADMIT_WITHIN_S if self.config.bridges else None
            elif message["is"] == "failed":
                slot.failure = message
            elif message["is"] == "bridged":
                slot.bridged = True
            elif message["is"] == "checked" and self._round is not None:
                self._round.answered(slot, message)
            elif message["is"] == "reload":
                self._ask_reload()
            elif message["is"] == "changes":
                self._changes = (self._changes[0] + message["messages"], self._changes[1] + message["commits"])
            elif message["is"] == "figures":
                self._take_figures(slot, message["text"])
            elif message["is"] in ("look", "write", "uses"):
                self._take_of_document(slot, message, fds)
            self._order.received(slot, message, fds, now_s)

    def _take_figures(self, slot: Slot, text: str) -> None:
        """Take what a worker of a cluster notes about itself."""

    def _take_of_document(self, slot: Slot, message: "Message", fds: list[int]) -> None:
        """Take what a worker of a cluster sends about the document of dynamic security."""

    def _report_ready(self, slot: Slot) -> None:
        if slot.status is not None:
            self.log.report(INFORMATION, f"{slot.name} (process {slot.pid}) serves clients again.")

    def _admit(self, now_s: float) -> None:
        """Let workers serve clients when the first attempts of all bridges have ended, or the time is over: the first
        message must find the bridges. During a reload they wait for its end."""
        if self._round is not None or self._again:
            return
        here = [slot for slot in self.slots if slot.is_here]
        ended = all(slot.bridged for slot in here)
        linked = all(slot.ready for slot in here)       # before, a worker serves no client
        for slot in self.slots:
            if slot.held_s is None or slot.channel is None:
                continue
            if not linked:
                slot.held_s = now_s + ADMIT_WITHIN_S
            elif ended or now_s >= slot.held_s:
                slot.held_s = None
                slot.channel.send({"do": "admit"})

    def _link(self, slot: Slot) -> None:
        """Connect a worker with each of those that are ready: one stream socket for each direction. A worker that was
        started again gets new ones, and so do its peers."""
        for other in self.slots:
            if not other.ready or other is slot or other.channel is None or slot.channel is None:
                continue
            pairs = [_socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK) for _ in range(2)]
            (out, their_in), (back, their_out) = pairs
            slot.channel.send({"do": "link", "peer": other.place}, [out.fileno(), back.fileno()])
            other.channel.send({"do": "link", "peer": slot.place}, [their_out.fileno(), their_in.fileno()])
            for pair in pairs:
                for one in pair:
                    one.close()

    def _unlink(self, slot: Slot) -> None:
        """Let the others know that a worker has ended: nothing waits for it until there is another one."""
        for other in self.slots:
            if other is not slot and other.ready and other.channel is not None:
                other.channel.send({"do": "link", "peer": slot.place})

    def _look(self, slot: Slot, now_s: float, starting: bool) -> None:
        """Start a worker that is due, kill one that is silent, and note the end of one."""
        if slot.due_s is not None and now_s >= slot.due_s and self._round is None:
            self._fork(slot)
        elif slot.ready and now_s - slot.seen_s > self.config.cluster_watchdog:
            if slot.killed_for:         # a device may keep it
                self.log.report(ERROR, f"Error: {slot.name} (process {slot.pid}) was killed, and does not end.")
            slot.killed_for = f"has given no sign of life for {self.config.cluster_watchdog} seconds"
            slot.kill(signal.SIGKILL)
            slot.seen_s = now_s
        elif slot.pid and not slot.ready and now_s - slot.seen_s > self.config.cluster_watchdog:
            self._look_at_start(slot, now_s)
        ended = slot.reap()
        if ended is None:
            return
        counts_ended(self.given.counts_fd, slot.place)
        self._unlink(slot)
        if self._round is not None:
            self._round.lost(slot)
        self._order.ended(slot, now_s)
        if not starting:
            self._ended(slot, ended, now_s)

    def _ended(self, slot: Slot, how: str, now_s: float) -> None:
        """Decide what follows the end of a worker."""
        pause_s = slot.wait_s(now_s)
        slot.due_s = now_s + pause_s
        self.log.report(ERROR, f"Error: {how}. It is started again in {pause_s:g} seconds.")

    def _look_at_start(self, slot: Slot, now_s: float) -> None:
        """Kill a process that was stopped (SIGSTOP) during its start, and report a start that takes long for another
        reason, such as a large store or a plugin."""
        watchdog_s = self.config.cluster_watchdog
        slot.seen_s = now_s
        if slot.is_stopped():
            slot.killed_for = f"was stopped during its start for up to {watchdog_s} seconds"
            slot.kill(signal.SIGKILL)
        else:
            self.log.report(WARNING, f"Warning: {slot.name} (process {slot.pid}) has not finished its start for "
                                     f"{watchdog_s} more seconds. Reloads and commands of dynamic security wait.")

    # ---- signals

    def _signals(self) -> bool:
        for number in self.signals.taken():
            if number in signals.STOP:
                return False
            if number == signals.UPGRADE:
                from mosq.server.upgrade.leaving import refuse_workers

                refuse_workers(self.log.report)
            elif number == signals.SAVE:
                self.saver.save()
            elif number in (signals.PRINT_TREES, signals.REOPEN_LOG):
                for slot in self.slots:
                    if slot.ready:      # before, the signals would have no effect
                        slot.kill(number)
                if number == signals.REOPEN_LOG:
                    self.log.reopen()
        return self._status == EXIT_OK

    def _ask_reload(self, by_signal: bool = False) -> None:
        """Let all workers hold new clients from now on, and reload as soon as possible."""
        self._asked = reload_counted(self.given.counts_fd)
        if by_signal:           # counted before the kernel forgets it; taken before the workers go on, and look again
            os.read(self._reload_fd, SIGNAL_BYTES)
        self._reload()

    def _reload(self) -> None:
        # a worker that starts now, or was not started yet, has the configuration of before; one that ended gets the new
        starting = any(slot.is_starting for slot in self.slots)
        if self._round is not None or self._order.busy or starting:
            self._again = True
            return
        self._again = False
        self._covered = self._asked
        systemd.reloading()
        self.log.report(INFORMATION, "Reloading config.")
        try:
            with self.signals.reading:
                config = self._load()
            content = content_of(config)
            config = reachable(config)
            config.cluster_local, wanted = self.config.cluster_local, config.cluster_local
            check_workers(config)       # a file with another number may contain what this number does not allow
            if [*map(address_of, config.listeners)] != [*map(address_of, self.config.listeners)]:
                raise ConfigError("With workers, a reload cannot add, remove or move a listener yet. Restart mosq.")
            if wanted != config.cluster_local:
                config.warnings.append("'cluster_local' has changed; the change takes effect at the next start.")
        except signals.Stopped:
            return                      # the signal is in the pipe
        except Exception as error:
            refuse(self.log, reason_of(error), 0)
            self._reads = 0
            self._ask_all("drop")
            systemd.notify("READY=1")
            return
        self._rounds += 1
        self._reads += 1
        taking_part = [slot for slot in self.slots if slot.ready] or [self._begin_trial()]
        self._round = Round(self._rounds, config, content, self._covered, taking_part, time.monotonic())

    def _begin_trial(self) -> Slot:
        """Start a process that checks the configuration, because no worker serves clients."""
        from mosq.server.workers.trial import Trial, TrialSlot

        self._trial = TrialSlot()

        def check(channel: "Channel", before: "set[int]") -> int:
            trial = Trial(channel, self.given.http)
            trial.document = self.document
            return trial.run(reachable(self.config), self._user, self.log, self._load, before)

        self._fork_as(self._trial, "mosq: check", check)
        return self._trial

    def _look_at_trial(self) -> None:
        if self._trial is None or self._round is None:
            return
        for message, _ in self._trial.channel.receive() if self._trial.channel is not None else ():
            if message["is"] == "checked":
                self._round.answered(self._trial, message)
        if self._trial.reap() is not None:
            self._round.lost(self._trial)

    def _end_trial(self) -> None:
        if self._trial is not None:
            self._trial.end()
            self._trial = None

    def _ask_all(self, what: str) -> None:
        for slot in self.slots:
            if slot.ready and slot.channel is not None:
                slot.channel.send({"do": what, "reloads": self._covered})

    def _decide(self, now_s: float) -> None:
        current = self._round
        if current is None:
            if self._again:
                self._reload()
            return
        if not current.over(now_s):
            return
        self._round = None
        self._end_trial()
        if current.changed and self._reads < READS_MAX:
            self._reload()              # the next `check` replaces this one
            return
        self._reads = 0
        current.tell()
        if current.error:
            self._status = refuse(self.log, current.error, current.status)
        else:
            self._apply(current.config)
        systemd.notify("READY=1")

    def _apply(self, config: "Config") -> None:
        old, self.config = self.config, config
        self.saver.config = config
        try:
            self.log.change(config, log_mask(config, self._quiet, self._verbose), self.log.prepare(config))
        except (OSError, ImportError) as error:
            self.log.report(ERROR, f"Error: {reason_of(error)}")        # the workers have opened it before
        report_applied(self.log, old, config)

    # ---- Mosquitto's file

    def _write(self, job: list[str]) -> Polled:
        """Begin to write the file in another process, which keeps nothing of this one open."""
        writing = Polled(job, self.given.key, self._become_writer)
        self._writing = None if writing.ended else writing
        return writing

    def _become_writer(self) -> None:
        """Give up root's rights and all descriptors."""
        self._acting.__exit__(None, None, None)
        if self._user is not None:
            process.become(self._user)
        os.closerange(process.STDERR_FD + 1, process.MOST_DESCRIPTORS)

    def _save(self, readable: list[int]) -> None:
        if self._writing is not None and self._writing.fd in readable:
            self._writing.look()
            if self._writing.ended:
                self._writing = None
        self.saver.serve()

    # ---- stop

    def _stop(self) -> int:
        """End all workers; return the exit status."""
        until_s = time.monotonic() + STOP_S
        late: list[Slot] = []
        for slot in self.slots:
            slot.due_s = None
            slot.kill(signal.SIGTERM)
        while any(slot.pid for slot in self.slots):
            poll = select.poll()
            for slot in self.slots:
                if slot.channel is not None:
                    poll.register(slot.channel.fileno(), select.POLLIN)
            poll.poll(20)
            for slot in self.slots:
                if slot.channel is not None:
                    slot.channel.receive()
                if slot.pid and time.monotonic() >= until_s and slot not in late:
                    late.append(slot)
                    self.log.report(ERROR, f"Error: {slot.name} did not stop in time, and is killed.")
                    slot.kill(signal.SIGKILL)
                slot.reap()
        self.log.report(INFORMATION, f"mosq version {VERSION} terminating")
        return self._status

    def close(self) -> None:
        """Close the listening sockets, and remove the pid file if this process wrote it."""
        self._end_trial()
        for slot in self.slots:
            slot.kill(signal.SIGKILL)   # only after an error of the parent itself
        self._shared.close()
        if self._pid_file is not None:
            process.remove_pid_file(self._pid_file)
        if self._mask is not None:
            signals.unblock(self._mask)
        self.log.flush()
