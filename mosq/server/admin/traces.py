"""`$CONTROL/mosq/trace/v1`: traces of a client, a topic filter or an address (docs/trace.md).

    startTrace -> {"trace": 1}      readTrace -> one batch of events      stopTrace      listTraces

A reader asks for each batch. The answer has no data, and the batch follows when there is an event. So a reader that
does not ask gets nothing, and its events wait here until WAITING_MAX bytes; further ones are counted and
dropped. The answers go only to the client that began the trace. A trace ends with that client's connection.

With several workers, a trace runs in all of them, with the same limits in each. The others send their events to the
worker of the reader, where they wait with its own (mosq/server/workers/traces.py).

The data plane decides which event belongs to a trace and limits the rate. This module knows the forms of events, not
packets.
"""

import json
import time
from binascii import b2a_base64
from collections import deque
from errno import EAGAIN, EINVAL

from mosq.records import CommandAnswer
from mosq.server.admin.commands import CommandError, Commands
from mosq.server.admin.inspect import workers_away
from mosq.stat_names import DROPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mosq.engine import Engine
    from mosq.records import Answer, TraceEvent
    from mosq.server.admin.commands import Fields
    from mosq.server.admin.control import Requester
    from mosq.server.workers.traces import Begin, Elsewhere

TOPIC = "$CONTROL/mosq/trace/v1"
ANSWER = f"{TOPIC}/response"
WAITING_MAX = 1 << 20           # bytes of encoded events that wait for their reader
BATCH_MAX = 1 << 16             # bytes after which a batch ends
PAYLOAD, PAYLOAD_MAX = 128, 16384
RATE, RATE_MAX = 1000, 100_000
SECONDS, SECONDS_MAX = 3600, 86400
COUNT_MAX = 1 << 40
FULL_S = 0.5                    # how often events are taken while no trace has room: the data plane counts the others
UNREAD_MAX = 4                  # ended traces whose last events were not read
PORT_MAX = 65535

KINDS = ("", "received", "sent", "access", "queued", "dropped", "closed", "ended")
RECEIVED, SENT, ACCESS, QUEUED, DROPPED, CLOSED, ENDED = range(1, 8)
VERDICTS = ("denied", "allowed", "plugin")
ACCESSES = {1: "read", 2: "write", 4: "subscribe", 8: "unsubscribe"}
ENDS = ("stopped", "time", "owner", "count")
GONE = "No such trace"
ROLE = "role #"                 # begins the data plane's text of a role's rule; its number follows


class Trace:
    """One trace and the events that wait for its reader."""

    def __init__(self, number: int, requester: "Requester | None", what: "dict[str, Any]", payload: int) -> None:
        """`requester`: the reader; None if it is at another worker."""
        self.number, self.what, self.payload = number, what, payload
        self.handle, self.client_id = (0, "") if requester is None else (requester.handle, requester.client_id)
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.passed = self.missed = 0           # events so far; those that the reader was too slow for
        self.ended: str | None = None
        self.is_done = False                    # the reader has received the end
        self.wants = False                      # the reader has asked for a batch
        self.is_full = False                    # an event found no room since the last batch
        self.losses = (0, 0)                    # above the rate, without room, at the end
        self.correlation: bytes | None = None
        self.at: int | None = None              # place of the worker that has the reader; None: this one
        self.spec: dict[str, Any] = {}          # for the other workers
        self.elsewhere: dict[int, tuple[int, int, int]] = {}    # `losses` and `missed` of other workers, by place

    def put(self, event: "TraceEvent", roles: "Sequence[str]" = (), worker: int | None = None) -> None:
        """Append an event, or count it as missed. `roles`: the names of the roles."""
        encoded = b""
        if not self.is_full:
            data = form(event, self.payload, roles)
            if worker is not None:
                data["worker"] = worker
            encoded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        self.put_encoded(encoded)

    def put_encoded(self, encoded: bytes) -> None:
        """Append an event in its form, or count it as missed."""
        self.is_full = self.is_full or self.waiting_bytes + len(encoded) > WAITING_MAX
        if self.is_full:
            self.missed += 1
            return
        self.passed += 1
        self.waiting.append(encoded)
        self.waiting_bytes += len(encoded)

    def events(self) -> list[bytes]:
        """Return the events of one batch, and forget them."""
        room = BATCH_MAX
        events = []
        while self.waiting and room > 0:
            events.append(self.waiting.popleft())
            room -= len(events[-1])
        self.waiting_bytes -= BATCH_MAX - room
        self.is_full = False
        return events

    def has_news(self) -> bool:
        """Return whether a batch can be made."""
        return bool(self.waiting) or self.ended is not None

    def batch(self, losses: tuple[int, int]) -> bytes:
        """Return the next events as the JSON of one response, and forget them."""
        first = self.passed - len(self.waiting)
        events = self.events()
        rate, ring, reader = (sum(one) for one in zip((*losses, self.missed), *self.elsewhere.values(), strict=True))
        about = {"trace": self.number, "first": first, "lost": {"rate": rate, "ring": ring, "reader": reader}}
        if self.ended is not None and not self.waiting:
            about["ended"] = self.ended
            self.is_done = True
        return b'%b,"events":[%b]}' % (json.dumps(about).encode()[:-1], b",".join(events))


class Traces:
    """The traces of a broker."""

    def __init__(self, engine: "Callable[[], Engine]") -> None:
        self._engine = engine
        self.role_names: Callable[[], Sequence[str]] = tuple    # of the rules in force, in their order
        self.running: dict[int, Trace] = {}     # by number; ended ones too, until their reader has all events
        self.foreign: dict[tuple[int, int], Trace] = {}     # of readers at other workers: by place and number there
        self._taken_s = 0.0
        self._of_slot: dict[int, deque[Trace]] = {}     # a new trace may begin before the end of the last was read

    # ------------------------------------------------------------ commands

    def start(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        """Begin a trace. Raises CommandError."""
        spec = _wanted(fields)
        payload = fields.number("payload", PAYLOAD, PAYLOAD_MAX)
        spec |= {"owner": requester.handle, "payload": payload, "rate": fields.number("rate", RATE, RATE_MAX, 1),
                 "seconds": fields.number("seconds", SECONDS, SECONDS_MAX, 1),
                 "most": fields.number("count", COUNT_MAX, COUNT_MAX, 1)}
        try:
            number, slot = self._begun(spec)
        except ValueError:
            raise CommandError("Invalid topic: expected a filter (# only as the last level) without $share") from None
        except OSError as error:
            raise CommandError("Too many traces at once" if error.errno == EAGAIN else "No memory") from None
        trace = Trace(number, requester, {"kind": spec["kind"], "what": spec["shown"]}, payload)
        trace.spec = spec
        unread = [one.number for one in self.running.values() if one.ended is not None]
        if len(unread) >= UNREAD_MAX:           # their readers may be gone
            del self.running[unread[0]]
        self.running[number] = trace
        self._of_slot.setdefault(slot, deque()).append(trace)
        return {"trace": number, "payload": payload, "rate": spec["rate"], "seconds": spec["seconds"]}

    def _begun(self, spec: "dict[str, Any]") -> tuple[int, int]:
        """Begin a trace in all workers; return its number and its slot here. Raises ValueError and OSError."""
        number, slot = self._engine().trace(spec)
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            elsewhere.rows = self._rows
            try:
                elsewhere.begin(number, spec)
            except OSError:
                self._engine().trace_stop(number)
                self._of_slot.setdefault(slot, deque()).append(Trace(number, None, {}, 0))      # takes the end
                elsewhere.end(number)
                raise
        return number, slot

    def _elsewhere(self) -> "Elsewhere | None":
        found: Elsewhere | None = getattr(self._engine(), "elsewhere", None)
        return found

    def read(self, requester: "Requester", fields: "Fields") -> None:
        """Ask for a batch; `serve` sends it."""
        trace = self._own(requester, fields)
        trace.wants, trace.correlation = True, requester.correlation

    def stop(self, requester: "Requester", fields: "Fields") -> None:
        """End a trace; its last events can still be read."""
        self._engine().trace_stop(self._own(requester, fields).number)

    def list_traces(self, requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        """Return the traces of all clients, also of those of other workers."""
        elsewhere = self._elsewhere()
        if elsewhere is None:
            return {"traces": self._rows()}
        lists = {elsewhere.place: self._rows(), **elsewhere.lists()}
        return {"traces": [{**row, "worker": place + 1} for place, rows in sorted(lists.items()) for row in rows],
                **workers_away(self._engine())}

    def _rows(self) -> "list[dict[str, Any]]":
        """Return the traces whose readers are here. Any thread may call this."""
        return [{"trace": one.number, **one.what, "clientid": one.client_id}
                for one in list(self.running.values()) if one.ended is None]

    def _own(self, requester: "Requester", fields: "Fields") -> Trace:
        trace = self.running.get(fields.number("trace", 0, COUNT_MAX))
        if trace is None or trace.handle != requester.handle:
            raise CommandError(GONE)
        return trace

    # ------------------------------------------------------------ events

    def has_work(self) -> bool:
        """Return whether `serve` has something to do."""
        elsewhere = self._elsewhere()
        return self._has_traces() or (elsewhere is not None and bool(elsewhere.notices))

    def _has_traces(self) -> bool:
        """Return whether there are traces, or unread events of ended ones."""
        return bool(self.running or self.foreign) or any(self._of_slot.values())

    def serve(self) -> "list[Answer]":
        """Distribute the new events; return the batches for readers that wait."""
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            self._take_notices(elsewhere)
        traces = *self.running.values(), *self.foreign.values()
        has_room = any(one.ended is None and not one.is_full for one in traces)
        if has_room or time.monotonic() >= self._taken_s + FULL_S:
            self.take()
        answers: list[Answer] = []
        for trace in list(self.running.values()):
            if trace.wants and trace.has_news():
                trace.wants = False
                answers.append(CommandAnswer(trace.handle, [(ANSWER, self._response(trace))], trace.correlation))
            if trace.is_done:
                del self.running[trace.number]
        if elsewhere is not None:
            self._send(elsewhere)
        return answers

    # ------------------------------------------------------------ with other workers

    def _take_notices(self, elsewhere: "Elsewhere") -> None:
        while elsewhere.notices:
            name, args = elsewhere.notices.popleft()
            if name == "trace_begin":
                self._begin_foreign(args[0])
            elif name == "trace_end":
                self._end_foreign(args)
            elif name == "trace_news":
                self._arrive(*args)
            else:
                self._peer(elsewhere, *args)

    def _begin_foreign(self, begin: "Begin") -> None:
        """Begin a trace whose reader is at another worker, which counts all events."""
        key = begin.place, begin.number
        try:
            if key not in self.foreign:
                number, slot = self._engine().trace({**begin.what, "owner": 0, "most": COUNT_MAX})
                trace = Trace(number, None, {}, begin.what["payload"])
                trace.at = begin.place
                self.foreign[key] = trace
                self._of_slot.setdefault(slot, deque()).append(trace)
        except OSError as error:
            begin.error = error
        except ValueError as error:     # of a hostile node: the worker of a reader has checked it
            begin.error = OSError(EINVAL, str(error))
        begin.done.set()

    def _end_foreign(self, key: "tuple[int, int]") -> None:
        trace = self.foreign.pop(key, None)
        if trace is not None and trace.ended is None:
            self._engine().trace_stop(trace.number)

    def _peer(self, elsewhere: "Elsewhere", place: int, begins: bool) -> None:
        """Begin the traces at a worker that has been started, or end those of a worker that has ended."""
        for key in [key for key in self.foreign if key[0] == place and not begins]:
            self._end_foreign(key)
        for trace in self.running.values() if begins else ():
            if trace.ended is None:
                elsewhere.begin_at(place, trace.number, trace.spec)

    def _arrive(self, number: int, place: int, events: "list[bytes]", missed: "tuple[int, int, int]") -> None:
        """Take the events of another worker."""
        trace = self.running.get(number)
        if trace is None:
            return
        trace.elsewhere[place] = missed
        elsewhere = self._elsewhere()
        if elsewhere is not None and number in elsewhere.refused:
            trace.elsewhere[elsewhere.place] = 0, 0, elsewhere.refused[number]
        for encoded in events:
            trace.put_encoded(encoded)
        if trace.ended is None and trace.passed > trace.spec["most"]:
            self._engine().trace_stop(number)

    def _send(self, elsewhere: "Elsewhere") -> None:
        """Send the events of traces of other workers there. What a worker does not take waits here."""
        for (place, number), trace in list(self.foreign.items()):
            while trace.waiting:
                events = trace.events()
                if not elsewhere.send(place, number, events, (*self._losses_of(trace), trace.missed)):
                    for encoded in events:
                        trace.waiting.append(encoded)
                        trace.waiting_bytes += len(encoded)
                    trace.waiting.rotate(len(events))
                    elsewhere.again()
                    break

    def take(self, role_names: "Sequence[str] | None" = None) -> None:
        """Distribute the new events. Called also when the roles change, because events have only their numbers.
        `role_names`: names of the numbers in these events; None: those of the rules in force."""
        if not self._has_traces():
            return
        self._taken_s = time.monotonic()
        for event in self._engine().trace_events():
            for slot, traces in list(self._of_slot.items()):
                if event.slots >> slot & 1 and traces:
                    self._put(event, slot, traces, self.role_names() if role_names is None else role_names)

    def _put(self, event: "TraceEvent", slot: int, traces: "deque[Trace]", role_names: "Sequence[str]") -> None:
        elsewhere = self._elsewhere()
        if event.event != ENDED:
            traces[0].put(event, role_names, None if elsewhere is None else elsewhere.place + 1)
            return
        trace = traces.popleft()
        trace.losses = self._engine().trace_losses(slot) if not traces else trace.losses
        trace.ended = ENDS[event.code]
        if trace.at is None and elsewhere is not None:
            elsewhere.end(trace.number)
        if trace.ended == "owner" and trace.at is None:
            self.running.pop(trace.number, None)

    def _response(self, trace: Trace) -> bytes:
        return b'{"responses":[{"command":"readTrace","data":%b}]}' % trace.batch(self._losses_of(trace))

    def _losses_of(self, trace: Trace) -> tuple[int, int]:
        slot = next((slot for slot, traces in self._of_slot.items() if traces and traces[0] is trace), None)
        if slot is not None:
            trace.losses = self._engine().trace_losses(slot)
        return trace.losses

    def take_over(self, earlier: "Traces") -> None:
        """Continue the traces after a reload."""
        self.running, self._of_slot, self.foreign = earlier.running, earlier._of_slot, earlier.foreign

    def stop_all(self) -> None:
        """End all traces: no topic for them is left."""
        for trace in (*self.running.values(), *self.foreign.values()):
            self._engine().trace_stop(trace.number)
        self._engine().trace_events()
        self.running.clear()
        self.foreign.clear()
        self._of_slot.clear()


def commands(traces: Traces, report: "Callable[[int, str], None]") -> Commands:
    """Return the handler of the topic."""
    def quiet(kind: int, line: str) -> None:
        if not line.endswith(" | readTrace"):
            report(kind, line)

    return Commands("Trace", TOPIC, {"startTrace": traces.start, "readTrace": traces.read, "stopTrace": traces.stop,
                                     "listTraces": traces.list_traces}, quiet)


def _wanted(fields: "Fields") -> "dict[str, Any]":
    """Return what a trace follows, for the engine. Raises CommandError."""
    given = [name for name in ("clientid", "topic", "address") if fields.optional(name) is not None]
    if len(given) != 1:
        raise CommandError("Expected one of clientid, topic and address")
    text = fields.text(given[0])
    if given[0] == "address":
        return {"kind": "address", "what": b"", "shown": text, **_network(text)}
    return {"kind": "client" if given[0] == "clientid" else "topic", "what": text.encode(), "shown": text}


def _network(text: str) -> "dict[str, Any]":
    """Return network, bits and port of `ADDRESS`, `ADDRESS/BITS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`."""
    from ipaddress import IPv4Network, ip_network  # slow to load

    host, port = text, 0
    if text.startswith("[") or text.count(":") == 1:
        host, _, digits = text.rpartition(":") if not text.endswith("]") else (text, "", "0")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 5 or int(digits) > PORT_MAX:
            raise CommandError("Invalid address: expected ADDRESS, ADDRESS/BITS, ADDRESS:PORT or [ADDRESS]:PORT")
        host, port = host.strip("[]"), int(digits)
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        raise CommandError("Invalid address: expected ADDRESS, ADDRESS/BITS, ADDRESS:PORT or [ADDRESS]:PORT") from None
    is_v4 = isinstance(network, IPv4Network)
    packed = network.network_address.packed
    return {"network": bytes(10) + b"\xff\xff" + packed if is_v4 else packed,
            "bits": network.prefixlen + (96 if is_v4 else 0), "port": port}


def _rule(text: str, roles: "Sequence[str]") -> str:
    """Return the text of a rule with the name of its role in place of its number."""
    number, _, rule = text.removeprefix(ROLE).partition(": ")
    if not text.startswith(ROLE) or not number.isdecimal() or int(number) >= len(roles):
        return text
    return f"role {roles[int(number)]}: {rule}"


def form(event: "TraceEvent", payload_max: int, roles: "Sequence[str]" = ()) -> "dict[str, Any]":
    """Return an event in the words of the API. `roles`: the names of the roles of dynamic security, by number."""
    data: dict[str, Any] = {"time": event.us, "event": KINDS[event.event], "clientid": event.client_id}
    if event.client:
        data |= {"connection": event.client, "address": event.address, "port": event.port,
                 "listener": event.listener, "version": event.version}
    if event.topic:
        data["topic"] = event.topic
    if event.event in (RECEIVED, SENT):
        data |= {"ownAddress": event.own_address, "size": event.total, "head": len(event.head),
                 "frame": b2a_base64(event.head + event.payload[:payload_max], newline=False).decode()}
    elif event.event == ACCESS:
        data |= {"verdict": VERDICTS[event.code], "access": ACCESSES.get(event.qos, "?"),
                 "rule": _rule(event.text, roles)}
    elif event.event == QUEUED:
        data |= {"qos": event.qos, "queue": event.queue}
    elif event.event == DROPPED:
        data["reason"] = DROPS[event.code] if event.code < len(DROPS) else str(event.code)
    elif event.event == CLOSED:
        data["reason"] = event.text
    return data
