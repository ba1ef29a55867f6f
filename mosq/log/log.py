"""The log: lines in Mosquitto's form, `<seconds since 1970>: text` without a level, or one JSON object each. Writes to
any number of destinations (destinations.py).

A record comes from the data plane's ring or from `report`. A line written here never causes another record: publishing
a line to $SYS/broker/log causes only lines of type debug, and those are never published.
Invariant: nothing here waits or raises because of a destination; each destination counts the lines it loses.

At a start the lines are held until the broker serves clients (`release`), because the destinations and what they
import take longer than the rest of the start.
"""

import os
import time

from mosq.log.files import open_file
from mosq.log_types import (
    DEBUG,
    ERROR,
    INFORMATION,
    INTERNAL,
    NOTICE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WARNING,
    WEBSOCKETS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mosq.config.model import Config
    from mosq.log.destinations import Stream, Syslog, Topic
    from mosq.log.recent import Recent
    from mosq.records import LogLine

# Control characters are replaced, so that a text from a client cannot begin another line.
_CONTROL = dict.fromkeys((*range(9), *range(10, 32), 127, *range(128, 160), 0x2028, 0x2029), "?")


STDOUT_FD, STDERR_FD = 1, 2
PASSED = "passed"               # a form of lines: JSON for a program that logs the texts, which are those of form text
FLUSH_WITHIN_S = 0.3

# type bit -> severity of syslog, topic below $SYS/broker/log ("": never published)
_KINDS = {ERROR: (3, "E"), WARNING: (4, "W"), NOTICE: (5, "N"), INFORMATION: (6, "I"), DEBUG: (7, ""),
          SUBSCRIBE: (5, "M/subscribe"), UNSUBSCRIBE: (5, "M/unsubscribe"), INTERNAL: (7, ""), WEBSOCKETS: (7, "WS")}


class Log:
    """The destinations of the log and the format of its lines."""

    def __init__(                       # parameters: one for each option of the log
                 self, dests: tuple[str, ...] = (), mask: int = 0, timestamp: bool = True,
                 timestamp_format: str | None = None, facility: int = -1, form: str = "text",
                 hold: bool = False, worker: int = 0, threads: bool = True, node: str | None = None) -> None:
        """`dests`: of none, stdout, stderr, syslog, topic, `file PATH`; empty means stderr. `mask`: the enabled type
        bits. `form`: text, json or PASSED. `open` opens the files. With `hold`, lines wait for `release`.
        `worker`: the number of the worker whose log this is; 0: none. `node`: the name of this node of a cluster.
        Without `threads`, no thread is started: lines that a destination does not take at once are lost."""
        self.mask, self.worker, self._node, self._threads = mask, worker, node, threads
        self.recent: Recent | None = None       # keeps the last lines for the dashboard
        self._held: list[tuple[float, int, str]] | None = [] if hold else None     # time, type bit, text
        self._files: dict[str, int] = {}        # open descriptors, while lines are held
        self.streams: dict[str, Stream] = {}
        self.syslog: Syslog | None = None
        self.topic: Topic | None = None
        self._set_format(timestamp, timestamp_format, form)
        self._set_destinations(_once(dests), facility, {})

    def _set_format(self, timestamp: bool, timestamp_format: str | None, form: str) -> None:
        self.timestamp, self.timestamp_format, self.form = timestamp, timestamp_format, form
        self._second, self._prefix = -1, ""
        self._json: Callable[[LogLine], str] | None = None
        if form != "text":
            from mosq.log.json_lines import json_line

            self._json = lambda record: json_line(record, self.worker, self._node)

    def _set_destinations(self, dests: tuple[str, ...], facility: int, files: dict[str, int]) -> None:
        """Set the destinations. `files`: open descriptors of files."""
        self.dests, self.facility = dests, facility
        if self._held is not None:
            self._files = files
            return
        from mosq.log.destinations import Direct, Stream, Syslog, Topic

        stream_of = Stream if self._threads else Direct
        old, self.streams = self.streams, {}
        for dest in dests:
            if dest in old and dest not in files:
                self.streams[dest] = old.pop(dest)
            elif dest in ("stdout", "stderr"):
                self.streams[dest] = stream_of(STDOUT_FD if dest == "stdout" else STDERR_FD)
            elif dest in files:
                self.streams[dest] = stream_of(files[dest], dest.removeprefix("file "))
        self.syslog = Syslog(facility) if "syslog" in dests else None
        publish = self.topic.publish if self.topic else None
        self.topic = Topic() if "topic" in dests else None
        if self.topic:
            self.topic.publish = publish
        until = time.monotonic() + FLUSH_WITHIN_S
        for stream in old.values():
            stream.close(until)

    # ---- destinations

    def open(self) -> list[str]:
        """Open the files. Return the errors: as in Mosquitto, a file that cannot be opened does not prevent the start.
        Without any other destination, lines go to stderr."""
        files: dict[str, int] = {}
        wrong = []
        for dest in self.dests:
            try:
                files.update(_open_all((dest,)))
            except OSError as error:
                wrong.append(str(error.strerror))
        left = tuple(dest for dest in self.dests if not dest.startswith("file ") or dest in files)
        self._set_destinations(left or ("stderr",), self.facility, files)
        return wrong

    def release(self) -> None:
        """Write the lines that were held, and no longer hold lines."""
        if self._held is None:
            return
        from mosq.records import LogLine

        held, self._held = self._held, None
        self._set_destinations(self.dests, self.facility, self._files)
        self.write([LogLine(int(at), type_bit, text, int(at * 1000) % 1000) for at, type_bit, text in held])

    def reopen(self) -> None:
        """Open the files again under their names, for log rotation. If one cannot be opened, log that and continue in
        the old file."""
        for stream in self.streams.values():
            try:
                stream.reopen()
            except OSError as error:
                self.report(ERROR, f"Error: Unable to open log file {stream.path} for writing: {error.strerror}.")

    def prepare(self, config: "Config") -> dict[str, int]:
        """Open the files of a new configuration, for `change`. Raises OSError, ImportError."""
        if config.log_format != "text":
            import mosq.log.json_lines  # noqa: F401 - a failing import must fail here
        return _open_all(_once(config.log_dest))

    def change(self, config: "Config", mask: int, files: dict[str, int]) -> None:
        """Apply a new configuration; cannot fail."""
        self._set_format(config.log_timestamp, config.log_timestamp_format, config.log_format)
        self._set_destinations(_once(config.log_dest), config.log_facility, files)
        self.mask = mask

    def flush(self) -> None:
        """Wait briefly until the lines so far are written."""
        self.release()
        until = time.monotonic() + FLUSH_WITHIN_S
        for stream in self.streams.values():
            stream.flush(until)

    # ---- lines

    def report(self, type_bit: int, text: str) -> None:
        """Log one line of the control plane, now."""
        now = time.time()
        if self.worker and self.form != "json":
            text = f"Worker {self.worker}: {text}"
        if self._held is not None:
            self._held.append((now, type_bit, text))
            return
        from mosq.records import LogLine

        self.write([LogLine(int(now), type_bit, text, int(now * 1000) % 1000)])

    def publish(self, type_bit: int, text: str) -> None:
        """Publish one line of the control plane to subscribers only. It is the last line that they get."""
        if self.topic and type_bit & self.mask:
            from mosq.records import LogLine

            now = time.time()
            record = LogLine(int(now), type_bit, text, int(now * 1000) % 1000)
            self.topic.put(_KINDS[type_bit][1], self._json(record) if self._json else self._line(record.seconds, text))
            self.topic.publish = None

    def write(self, records: "Iterable[LogLine]") -> None:
        """Write records whose type is enabled."""
        wanted = [record for record in records if record.type & self.mask]
        if not wanted:
            return
        if self.recent is not None:
            self.recent.put(wanted)
        lines = [self._json(record) if self._json else self._line(record.seconds, record.text) for record in wanted]
        if self.streams:
            block = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
            for stream in self.streams.values():
                stream.put(block, len(lines))
        if self.syslog or self.topic:
            for record, line in zip(wanted, lines, strict=True):
                self._send_line(record.seconds, record.type, line)

    def _send_line(self, seconds: int, type_bit: int, line: str) -> None:
        severity, letter = _KINDS.get(type_bit, (7, ""))
        if self.syslog:
            self.syslog.put(seconds, severity, line)
        if self.topic and letter:
            self.topic.put(letter, line)

    def _line(self, seconds: int, text: str) -> str:
        if not text.isprintable():
            text = text.translate(_CONTROL)
        return f"{self._stamp(seconds)}{text}" if self.timestamp else text

    def _stamp(self, seconds: int) -> str:
        if self.timestamp_format is None:
            return f"{seconds}: "
        if seconds != self._second:
            self._second = seconds
            self._prefix = f"{time.strftime(self.timestamp_format, time.localtime(seconds))}: "
        return self._prefix


def log_of(config: "Config", mask: int, threads: bool = True) -> Log:
    """Return the log of a configuration; its files are not open yet, and it holds its lines."""
    return Log(config.log_dest, mask, config.log_timestamp, config.log_timestamp_format,
               config.log_facility, config.log_format, hold=True, worker=config.worker, threads=threads,
               node=config.cluster_node if config.cluster else None)


def _once(dests: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dests or ("stderr",)))


def _open_all(dests: tuple[str, ...]) -> dict[str, int]:
    """Open those destinations that are files. Raises OSError for the first that fails, and then none is open."""
    opened: dict[str, int] = {}
    for dest in dests:
        if not dest.startswith("file "):
            continue
        path = dest.removeprefix("file ")
        try:
            opened[dest] = open_file(path)
        except (OSError, ValueError) as error:
            for fd in opened.values():
                os.close(fd)
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise OSError(getattr(error, "errno", 0) or 0,
                          f"Unable to open log file {path} for writing: {reason}.") from None
    return opened
