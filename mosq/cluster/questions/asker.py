"""The connections for questions between this worker and all others of the cluster.

    any thread        ask, tell, notify -> waits for the answers, ANSWER_S at most
    reach.py's thread event, turn       -> reads and writes all connections; it reads no JSON
    mosq-asked-far    answers the others' questions, from its own worker only, so two workers never wait for each other

A connection carries the questions of the worker that has dialled, and the answers to them. A message has a head with
its length and the number of the question; 0 is a notice, which has no answer. Its content is that of forms.py.

A worker that has not answered in time is not asked again until it sends something, so one that is stopped delays one
question only. An answer that comes too late, or that no question waits for, is read and not kept.

Bounds: QUESTION_BYTES and ANSWER_BYTES for a message; a larger one ends the connection. HELD_BYTES for all answers that
are kept; one beyond that counts as none. One question of each other worker is read, answered and sent at a time, and
an answer that is not read for UNREAD_S ends its connection. SEND_BYTES of questions wait for one worker.
"""

import select
import signal
import socket
import struct
import threading
from queue import SimpleQueue

from mosq.cluster.questions.forms import (
    ANSWER_BYTES,
    QUESTION_BYTES,
    NoAnswerError,
    answer_of,
    question_of,
    read_answer,
    read_question,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

ANSWER_S = 1.0
UNREAD_S = 5.0
HELD_BYTES = 64 << 20
SEND_BYTES = 1 << 21
PART_BYTES = 1 << 18
HEAD = struct.Struct(">IQ")     # length of the content, number of the question


class _Asked:
    """One question to several workers. `open`: their places, by the number of the question to each."""

    def __init__(self, name: str, args: "tuple[Any, ...]") -> None:
        self.name, self.args = name, args
        self.open: dict[int, int] = {}
        self.answers: dict[int, bytes] = {}     # by place
        self.done = threading.Event()


class _Line:
    """A connection. `own`: this worker has dialled, and asks."""

    def __init__(self, sock: socket.socket, slot: int, own: bool) -> None:
        self.sock, self.slot, self.own = sock, slot, own
        self.out = bytearray()
        self.since_s = 0.0              # since when nothing of `out` was sent
        self.answering = False          # a question of the other worker is not answered yet
        self.head = b""
        self.left = 0                   # bytes of the content that have not come
        self.number = 0
        self.content: bytearray | None = None   # None: it is not kept

    def events(self) -> int:
        """Return the events to wait for."""
        reads = self.own or not (self.answering or self.out)
        return (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if self.out else 0)


class Asker:
    """Asks the workers on other machines, and answers them. `place`: the own one, from 0; `n`: all workers."""

    _answer: "Callable[[str, tuple[Any, ...]], Any]"
    _peer: "Callable[[int, bool], None]"
    _poll: select.epoll
    _wake: "Callable[[], None]"

    def __init__(self, place: int, n: int) -> None:
        self.place, self.n = place, n
        self._lock = threading.Lock()
        self._numbers = 0
        self._open: dict[int, _Asked] = {}      # questions that wait for an answer, by number
        self._new: list[tuple[int, bytes]] = []     # places and messages that are not in a connection yet
        self._pending = [0] * n                 # bytes of questions that wait for each worker
        self._silent: set[int] = set()          # places that have not answered in time
        self._held = 0                          # bytes of answers
        self._own: dict[int, _Line] = {}        # by place
        self._theirs: dict[int, _Line] = {}
        self._lines: dict[int, _Line] = {}      # by descriptor
        self._work: SimpleQueue[tuple[_Line, int, bytes]] = SimpleQueue()
        self._done: list[tuple[_Line, bytes]] = []
        self._now_s = 0.0                       # of the last turn

    def serve(self, answer: "Callable[[str, tuple[Any, ...]], Any]", peer: "Callable[[int, bool], None]") -> None:
        """Start the thread that answers. `answer` gets the name and the arguments of a question; `peer` gets a place,
        and whether the connection to that worker has begun, or the one from it has ended."""
        self._answer, self._peer = answer, peer
        threading.Thread(target=self._answer_all, name="mosq-asked-far", daemon=True).start()

    # ---- any thread

    def away(self) -> list[int]:
        """Return the places of the workers that cannot be asked now."""
        return [place for place in range(self.n) if place != self.place and not self._hears(place)]

    def ask(self, places: "Iterable[int]", name: str, *args: "Any") -> "dict[int, Any]":
        """Ask workers at the same time. Return the answers by place; a worker that does not answer in time is missing.
        Raises OSError if one of them cannot begin a trace."""
        asked = _Asked(name, args)
        try:
            content = question_of(name, args)
        except ValueError:
            return {}
        with self._lock:
            for place in places:
                self._numbers += 1
                if self._put(place, self._numbers, content):
                    asked.open[self._numbers] = place
                    self._open[self._numbers] = asked
        if not asked.open:
            return {}
        self._wake()
        asked.done.wait(ANSWER_S)
        with self._lock:
            late = list(asked.open.values())
            for number in asked.open:
                del self._open[number]
            asked.open.clear()
            self._silent.update(place for place in late if place in self._own)
        if late:
            self._wake()                # late answers are not kept
        return self._values(asked)

    def tell(self, name: str, *args: "Any") -> None:
        """Send all others a notice. One that cannot be reached loses it."""
        for place in range(self.n):
            if place != self.place:
                self.notify(place, name, *args)

    def notify(self, place: int, name: str, *args: "Any") -> bool:
        """Send a worker a notice. Return False if it cannot be reached now. A notice that is too large is lost."""
        try:
            content = question_of(name, args)
        except ValueError:
            return True
        with self._lock:
            is_put = self._put(place, 0, content)
        if is_put:
            self._wake()
        return is_put

    def _hears(self, place: int) -> bool:
        return place in self._own and place not in self._silent

    def _put(self, place: int, number: int, content: bytes) -> bool:
        if not self._hears(place) or self._pending[place] > SEND_BYTES:
            return False
        message = HEAD.pack(len(content), number) + content
        self._pending[place] += len(message)
        self._new.append((place, message))
        return True

    def _values(self, asked: _Asked) -> "dict[int, Any]":
        found: dict[int, Any] = {}
        error: OSError | None = None
        for place in list(asked.answers):
            content = asked.answers.pop(place)
            with self._lock:
                self._held -= len(content)
            try:
                found[place] = read_answer(asked.name, asked.args, content)
            except NoAnswerError:
                pass
            except OSError as failed:
                error = failed
        if error is not None:
            raise error
        return found

    # ---- the thread that answers

    def _answer_all(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())        # the main thread handles them
        while True:
            line, number, content = self._work.get()
            message = self._answered(line.slot, number, content)
            with self._lock:
                self._done.append((line, message))
            self._wake()

    def _answered(self, slot: int, number: int, content: bytes) -> bytes:
        """Return the message that answers a question; nothing for a notice."""
        def unknown(name: str, args: "tuple[Any, ...]") -> "Any":
            raise NoAnswerError

        try:
            name, args = read_question(content, slot)
            answer = answer_of(name, args, self._answer)
        except ValueError:
            answer = answer_of("", (), unknown)
        return HEAD.pack(len(answer), number) + answer if number else b""

    # ---- the thread that has the connections

    def watch(self, poll: select.epoll, wake: "Callable[[], None]") -> None:
        """Wait for all connections with this epoll object. `wake` lets the thread call `turn`."""
        self._poll, self._wake = poll, wake

    def has(self, slot: int) -> bool:
        """Return whether the own connection to a worker is open."""
        return slot in self._own

    def has_line(self, fd: int) -> bool:
        """Return whether a descriptor is one of the connections for questions."""
        return fd in self._lines

    def open(self, slot: int, sock: socket.socket, own: bool) -> None:
        """Take a connection that has been proved, in place of the one before. `own`: this worker has dialled."""
        lines = self._own if own else self._theirs
        if slot in lines:
            self._end(lines[slot])
        line = _Line(sock, slot, own)
        with self._lock:
            lines[slot] = line
            self._silent.difference_update({slot} if own else ())
        self._lines[sock.fileno()] = line
        self._poll.register(sock.fileno(), line.events())
        if own:
            self._peer(slot, True)

    def part(self, slot: int) -> None:
        """End the connections with a worker."""
        for lines in (self._own, self._theirs):
            if slot in lines:
                self._end(lines[slot])

    def event(self, fd: int, events: int) -> int | None:
        """Read and write a connection. Return the worker to which the own connection has ended, if it has."""
        line = self._lines[fd]
        try:
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._read(line)
            if line.out:
                self._write(line)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._end(line)
            return line.slot if line.own else None
        self._expect(line)
        return None

    def turn(self, now_s: float) -> None:
        """Send the questions and answers that are new, and forget what came too late."""
        self._now_s = now_s
        with self._lock:
            new, self._new = self._new, []
            done, self._done = self._done, []
        for place, message in new:
            if place in self._own:
                self._send(self._own[place], message)
        for line, message in done:
            if self._lines.get(line.sock.fileno()) is line:
                line.answering = False
                self._send(line, message)
        for line in list(self._lines.values()):
            if line.own and line.content is not None and line.number not in self._open:
                self._forget(line)
            elif not line.own and line.out and now_s - line.since_s > UNREAD_S:
                self._end(line)

    def _send(self, line: _Line, message: bytes) -> None:
        if not line.out:
            line.since_s = self._now_s
        line.out += message
        try:
            self._write(line)
        except OSError:
            pass                        # it is full, or its end comes as an event
        self._expect(line)

    def _write(self, line: _Line) -> None:
        """Send as much as the socket takes. Raises OSError."""
        while line.out:
            sent = line.sock.send(memoryview(line.out)[:PART_BYTES])
            del line.out[:sent]
            line.since_s = self._now_s
            if line.own:
                with self._lock:
                    self._pending[line.slot] -= sent

    def _expect(self, line: _Line) -> None:
        if self._lines.get(line.sock.fileno()) is line:
            self._poll.modify(line.sock.fileno(), line.events())

    def _read(self, line: _Line) -> None:
        """Read what has come, up to the end of a message. Raises OSError, and ValueError for one that is too large."""
        data = line.sock.recv(min(PART_BYTES, line.left or HEAD.size - len(line.head)))
        if not data:
            raise OSError("the connection has ended")
        if line.own:
            with self._lock:
                self._silent.discard(line.slot)
        if line.left:
            line.left -= len(data)
            if line.content is not None:
                line.content += data
        else:
            line.head += data
            if len(line.head) < HEAD.size:
                return
            (line.left, line.number), line.head = HEAD.unpack(line.head), b""
            self._begin(line)
            if line.left:
                self._read(line)
                return
        if not line.left:
            self._complete(line)

    def _begin(self, line: _Line) -> None:
        """Begin a message. Raises ValueError if it is too large."""
        if line.left > (ANSWER_BYTES if line.own else QUESTION_BYTES):
            raise ValueError("a message is too large")
        line.content = bytearray()
        if line.own:
            with self._lock:
                asked = self._open.get(line.number)
                if asked is None or asked.open[line.number] != line.slot or self._held + line.left > HELD_BYTES:
                    line.content = None
                else:
                    self._held += line.left

    def _complete(self, line: _Line) -> None:
        content, line.content = line.content, None
        if content is None:
            return
        if not line.own:
            line.answering = True
            self._work.put((line, line.number, bytes(content)))
            return
        with self._lock:
            asked = self._open.pop(line.number, None)
            if asked is None:
                self._held -= len(content)
                return
            place = asked.open.pop(line.number)
            asked.answers[place] = bytes(content)
            if not asked.open:
                asked.done.set()

    def _forget(self, line: _Line) -> None:
        """Do not keep the answer that comes now."""
        if line.own and line.content is not None:
            with self._lock:
                self._held -= len(line.content) + line.left
            line.content = None

    def _end(self, line: _Line) -> None:
        self._forget(line)
        self._poll.unregister(line.sock.fileno())
        del self._lines[line.sock.fileno()]
        line.sock.close()
        with self._lock:
            del (self._own if line.own else self._theirs)[line.slot]
            if line.own:
                self._pending[line.slot] = 0
                self._new = [one for one in self._new if one[0] != line.slot]
                for number in [number for number, asked in self._open.items() if asked.open[number] == line.slot]:
                    asked = self._open.pop(number)
                    del asked.open[number]
                    if not asked.open:
                        asked.done.set()
        if not line.own:
            self._peer(line.slot, False)
