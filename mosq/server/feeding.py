"""Feeds persistence plugins: lets them restore what they have kept, and reports to them what has changed in the store.

    start: the plugins restore -> deciding.py: the store counts, or the plugin's content becomes the store
    then:  a thread for each plugin: records since the last look -> differences.py -> its mark -> the plugin's thread
    end:   the rest is sent; without `persistence true` the store is removed, because the plugin has everything

While the broker runs the store is the truth: the events come after the records are written, in the order of
differences.py. A change that the plugin has not got, because the broker was killed, is found at the next start, when
its content is compared with the store's. The data plane knows nothing of this: the threads read the files of the store.
Cost: a second of work for about 100,000 events, without the plugin's own; a look reads one segment (16 MiB) from the
page cache, and each 256 events wait once for the disk.
"""

import threading
import time
from array import array

from mosq.log_types import INFORMATION, WARNING
from mosq.server.handover import has_segments
from mosq.tools.db import deciding, kinds
from mosq.tools.db.copy_mark import CLEAN, FAILED, LOSSY, MATCHED, WORTHLESS, CopyMark, remove_store
from mosq.tools.db.differences import Differences
from mosq.tools.db.followed import Changed, Followed
from mosq.tools.db.kept import Kept
from mosq.tools.db.read import decoded
from mosq.tools.db.store import StoreError, StoreSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from mosq.auth.runner import Runner

    Report = Callable[[int, str], None]
    Each = Callable[[int, int, dict[Any, Any], int], None]

LOOK_S = 0.5                    # period of the looks at the store, when it has changed
BATCH = 256                     # events in one call of the plugin's thread: logins wait for no more
FULL_S = 0.05                   # pause if too many calls wait for the plugin's thread
DISK_S = 1.0                    # pause if the mark cannot be written
TRIES = 10                      # of reading a store from the beginning while the broker drops segments
FINISH_WITHIN_S = 5.0           # at the end of the broker
BODIES = frozenset((kinds.MSG, kinds.INBOX, kinds.WILL, kinds.CLIENT_WILL))


class StoppedError(Exception):
    """The feeding was stopped before all events were sent."""


class Feed(threading.Thread):
    """The feeding of one plugin."""

    def __init__(self, runner: "Runner", kept: Kept, mark: CopyMark, store: str, ports: "Mapping[int, int]",
                 commits: "Callable[[], int]") -> None:  # parameters: the plugin, its content, the store, its changes
        """`commits` returns the number of batches that the store has written."""
        super().__init__(name=f"mosq-feed-{runner.name}"[:40], daemon=True)
        self.runner, self._kept, self._store, self._ports, self._commits = runner, kept, store, ports, commits
        self._source: StoreSource
        self._stopping, self._given_up = threading.Event(), False
        self.mark = mark
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._contents = array("Q")     # fingerprint of what the plugin has after each of them
        self._at_lsn = 0
        self.failed = False             # an event failed
        self._differences: Differences | None = None
        self.complete = False           # the plugin has everything

    def run(self) -> None:
        try:
            self._run()
        except StoppedError:
            pass
        except Exception as error:      # a defect; the store is not concerned
            self.runner.failed("persist", f"the feeding has ended: {type(error).__name__}: {error}")

    def stop(self, within_s: float) -> None:
        """Send what is missing, for at most `within_s` seconds."""
        self._stopping.set()
        self.join(within_s)
        self._given_up = True

    def _run(self) -> None:
        seen, last = -1, False
        while not last:
            last = self._stopping.wait(LOOK_S) if seen >= 0 else False
            commits = self._commits()
            if commits == seen and not last:
                continue
            try:
                self._look()
                seen = commits
            except (StoreError, OSError) as error:
                self.runner.failed("persist", f"the store cannot be read: {error}")
                seen = max(seen, 0)
        self.complete = True

    def _look(self) -> None:
        if not has_segments(self._store):       # it gets the first one with the first record
            return
        if self._differences is not None and self._tail():
            return
        self._source = StoreSource(self._store)
        for _ in range(TRIES):
            if self._begin():
                return
        raise StoreError(f"{self._store}: the broker dropped segments before they were read, {TRIES} times")

    # -- reading

    def _scan(self, each: "Each", after: "Callable[[], None]", from_lsn: int) -> "dict[str, Any]":
        def records(several: "list[tuple[int, int, int, bytes]]") -> None:
            kind = 0
            for record in decoded(several):
                each(*record)
                kind = record[1]
            if kind != kinds.MSG:       # the next record may name its publisher
                after()

        loss = self._source.scan(records, from_lsn)
        after()
        return loss

    def _begin(self) -> bool:
        """Read the store from the beginning; report what the plugin lacks. False: a segment was dropped unread."""
        state = Followed()

        def forget() -> None:
            state.changed = Changed()   # all of it counts, below

        loss = self._scan(state.apply, forget, 0)
        if loss["moved"]:
            return False
        state.changed, end_lsn = state.all_changed(), int(loss["end_lsn"])
        if self._differences is None:
            self._differences = Differences(state, self._give, self._ports)
            self._differences.adopt(self._kept)
            self._kept = Kept("")       # its memory is free again
            sessions, deliveries = self._differences.foreign
            if sessions or deliveries:
                self.runner.plugin.warn(        # type: ignore[attr-defined]
                    f"Warning: Plugin {self.runner.name} had {sessions} sessions and {deliveries} queued messages that "
                    f"the store {self._store} has not. They are deleted there.")
        else:
            self._differences.rejoin(state)
        needs = self._differences.needs

        held: list[tuple[int, int, dict[Any, Any]]] = []       # a message whose publisher may come next

        def bodies(lsn: int, kind: int, f: "dict[Any, Any]", _size: int) -> None:
            if held:
                if kind == kinds.PUBLISHER:
                    held[0][2]["publisher"] = f
                needs(*held.pop())
            if kind in BODIES and lsn < end_lsn:
                held.append((lsn, kind, f))

        again = self._scan(bodies, lambda: None, 0)
        if held:
            needs(*held.pop())
        if again["moved"] or again["tail_lsn"] > loss["tail_lsn"]:      # cleaning has moved records: the order would
            return False                                                # be that of their copies
        self._differences.changes(state.changed)
        self._send()
        self._at_lsn = end_lsn
        return self._tail()

    def _tail(self) -> bool:
        """Report the changes since the last look. False: some of the log was dropped unread."""
        differences = self._differences
        assert differences is not None
        state = differences.state

        def record(lsn: int, kind: int, f: "dict[Any, Any]", size: int) -> None:
            state.apply(lsn, kind, f, size)
            if kind in BODIES:
                differences.bodies[lsn] = f

        loss = self._scan(record, lambda: differences.changes(state.changed), self._at_lsn)
        self._send()
        if loss["moved"] or loss["tail_lsn"] > self._at_lsn:
            return False
        self._at_lsn = int(loss["end_lsn"])
        return True

    # -- sending

    def _give(self, event: int, fields: "dict[str, Any]", content: int) -> None:
        self._events.append((event, fields))
        self._contents.append(content)
        if len(self._events) >= BATCH:
            self._send()

    def _send(self) -> None:
        """Report the collected events in the plugin's thread; wait for it."""
        events, self._events = self._events, []
        contents, self._contents = self._contents, array("Q")
        if not events:
            return
        self._note(contents)
        done, failed = threading.Event(), dict[int, int]()

        def work() -> None:
            try:
                failed.update(self.runner.plugin.report_stored(events))     # type: ignore[attr-defined]
            finally:
                done.set()

        while not self.runner.put(work):
            if self._given_up or self._stopping.is_set():       # a reload has removed the plugin, or it hangs
                raise StoppedError
            time.sleep(FULL_S)
        while not done.wait(FULL_S):
            if self._given_up:
                raise StoppedError
        for event, result in failed.items():
            self.failed = True
            self.runner.failed(f"event {event} of persistence", f"it returned {result}")

    def _note(self, contents: "array[int]") -> None:
        """Write the mark before the plugin gets the events. On a full disk the plugin waits."""
        while True:
            try:
                self.mark.note(contents)
                return
            except OSError as error:
                self.runner.failed("persist", f"{self.mark.path} cannot be written: {error}")
                if self._given_up or self._stopping.wait(DISK_S):
                    raise StoppedError from None

    # -- the end

    @property
    def content(self) -> int:
        """The fingerprint of what the plugin has."""
        return 0 if self._differences is None else self._differences.fingerprint

    def rows(self) -> tuple[int, ...]:
        """Return how many sessions, subscriptions, deliveries and retained messages the plugin has."""
        return (0, 0, 0, 0) if self._differences is None else self._differences.rows()


class Feeder:
    """The persistence plugins of one broker."""

    def __init__(self, report: "Report", commits: "Callable[[], int]") -> None:
        self._report, self._commits = report, commits
        self._kept: dict[Runner, Kept] = {}
        self._marks: dict[Runner, CopyMark] = {}
        self._feeds: dict[Runner, Feed] = {}
        self._ended: list[Feed] = []        # those that were fed until the end of the broker

    def restore(self, runners: "list[Runner]") -> None:
        """Let the plugins restore that have not been asked. Waits for them, as Mosquitto does."""
        for runner in runners:
            if runner not in self._kept and runner not in self._feeds:
                kept = self._kept[runner] = Kept(runner.path, lambda line: self._report(WARNING, f"Warning: {line}"))
                result = runner.plugin.restore(kept.take)       # type: ignore[attr-defined]
                kept.report_rest()
                if result:
                    self._report(WARNING, f"Warning: Plugin {runner.name} returned {result} for 'persist-restore'; "
                                          "the parts that it has restored count.")
                if kept:
                    self._report(INFORMATION, f"Plugin {runner.name} has {len(kept.clients)} sessions and "
                                              f"{len(kept.retained)} retained messages.")

    def settle(self, store: str, bridges: "Collection[bytes]") -> None:
        """Decide whether the store counts, before it is opened. Raises OSError if that cannot be decided."""
        self._marks.update(deciding.settle(store, self._kept, bridges, self._report))

    def feed(self, runners: "list[Runner]", store: str | None, ports: "Mapping[int, int]") -> None:
        """Feed these plugins from now on, and no others. None: there is no store."""
        for runner in [one for one in self._feeds if one not in runners]:
            self._feeds.pop(runner).stop(0)
        for runner in runners:
            if store is None:
                self._report(WARNING, f"Warning: Plugin {runner.name} keeps nothing, because this broker has no store. "
                                      "It gets one at the next start, if durability is not none.")
            elif runner not in self._feeds and self._may_feed(runner, store):
                feed = self._feeds[runner] = Feed(runner, self._kept.pop(runner), self._marks.pop(runner), store, ports,
                                                  self._commits)
                feed.start()

    def _may_feed(self, runner: "Runner", store: str) -> bool:
        """Prepare a plugin. One that a reload has added gets nothing if its content might be newer than the store."""
        if runner in self._marks:
            return True
        self.restore([runner])
        try:
            self._marks[runner] = deciding.begin_or_refuse(store, runner.name, self._kept[runner])
        except OSError as error:
            self._report(WARNING, f"Warning: {error} Until then the plugin gets nothing.")
            return False
        return True

    def finish(self) -> None:
        """Send what is missing, after the data plane has ended."""
        give_up_s = time.monotonic() + FINISH_WITHIN_S
        for runner, feed in self._feeds.items():
            feed.stop(max(0.1, give_up_s - time.monotonic()))
            if not feed.complete:
                self._report(WARNING, f"Warning: Plugin {runner.name} has not got all changes; it gets them at the "
                                      "next start.")
        self._ended, self._feeds = list(self._feeds.values()), {}

    def end(self, store: str, own: bool, database: str | None) -> None:
        """Mark what the plugins have, after their end. A store that only they have asked for is removed: they have
        everything, so no second copy of it can become older than theirs. `own`: the configuration asks for the store
        too. `database`: that of persist-sqlite, which reports no failed commit."""
        if not self._ended:
            return
        failed = [feed for feed in self._ended if feed.failed]
        whole = all(feed.complete and feed.runner.plugin.ended for feed in self._ended)     # type: ignore[attr-defined]
        try:
            if database is not None and whole and not deciding.has_rows(database, self._ended[0].rows()):
                self._report(WARNING, f"Warning: {database} has not got everything. It gets it at the next start.")
                failed = self._ended
            for feed in failed:
                feed.mark.add_flags(FAILED)
            if failed or not whole:
                return
            for feed in self._ended:
                if own:
                    feed.mark.begin([feed.content], CLEAN | feed.mark.flags & (MATCHED | LOSSY))
                else:
                    feed.mark.add_flags(WORTHLESS)
            if not own:
                remove_store(store)
        except OSError as error:
            self._report(WARNING, f"Warning: {store}: {error.strerror}. It counts at the next start.")
