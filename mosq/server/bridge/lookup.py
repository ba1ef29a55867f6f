"""Looks up host names in a few threads, because a name server may take any time. Also checks whether a listener accepts
at an address.

Invariants: a caller never waits. There are at most THREADS_MAX threads, and none while no lookup runs. Equal lookups
run once at a time, for all callers together. If eight lookups hang, the ninth waits.
"""

import collections
import socket
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Address = tuple[int, str, int]                      # family, numeric host, port
    Answer = list[Address] | OSError
    Query = tuple[str, str, int, int]                   # "find" or "try", host, port, family (0: any)
    OnAnswer = Callable[[Answer], None]

THREADS_MAX = 8
TRY_WITHIN_S = 5.0


def numeric(host: str, port: int) -> "list[Address]":
    """Return the addresses of a numeric host without a lookup; an empty list if the host is a name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return []
    return [(int(family), _host(sockaddr), port) for family, _, _, _, sockaddr in found]


def _host(sockaddr: "tuple[object, ...]") -> str:
    host, scope = str(sockaddr[0]), int(str(sockaddr[3])) if len(sockaddr) > 3 else 0
    return f"{host}%{scope}" if scope and "%" not in host else host


class Lookups:
    """find() and try_one() deliver their answers in take(), which the thread that owns the bridges calls after
    `wake`."""

    def __init__(self, wake: "Callable[[], None]", getaddrinfo: "Callable[..., Any]" = socket.getaddrinfo) -> None:
        self.wake, self.getaddrinfo = wake, getaddrinfo
        self.lock = threading.Lock()
        self.waiting: dict[Query, dict[str, OnAnswer]] = {}     # by question, then by name of the caller
        self.queries: collections.deque[Query] = collections.deque()
        self.answers: collections.deque[tuple[Query, Answer]] = collections.deque()
        self.threads = 0
        self.closed = False

    def find(self, name: str, host: str, port: int, family: int, on_answer: "OnAnswer") -> None:
        """Look up a host name; `on_answer` gets the addresses or an OSError."""
        self._begin(("find", host, port, family), name, on_answer)

    def try_one(self, name: str, host: str, port: int, family: int, on_answer: "OnAnswer") -> None:
        """Check whether a listener accepts; `on_answer` gets the address that accepted, or an OSError."""
        self._begin(("try", host, port, family), name, on_answer)

    def close(self) -> None:
        """Discard waiting lookups and wake no caller any more. Threads in a lookup end after it."""
        with self.lock:
            self.closed = True
            self.queries.clear()

    def take(self) -> None:
        """Pass the answers that have arrived to their callers."""
        while self.answers:
            query, answer = self.answers.popleft()
            for on_answer in self.waiting.pop(query).values():
                on_answer(answer)

    def _begin(self, query: "Query", name: str, on_answer: "OnAnswer") -> None:
        if query in self.waiting:
            self.waiting[query][name] = on_answer
            return
        self.waiting[query] = {name: on_answer}
        with self.lock:
            self.queries.append(query)
            if self.threads == THREADS_MAX:
                return
            self.threads += 1
        try:
            threading.Thread(target=self._work, name="mosq-names", daemon=True).start()
        except RuntimeError as error:       # the system refuses another thread
            self._thread_failed(OSError(None, f"the lookup could not start: {error}"))

    def _thread_failed(self, why: OSError) -> None:
        """Handle a thread that could not start. Without any thread left, all waiting lookups fail with the reason."""
        with self.lock:
            self.threads -= 1
            if self.threads == 0:
                self.answers.extend((query, why) for query in self.queries)
                self.queries.clear()
                self.wake()

    def _work(self) -> None:
        while True:
            with self.lock:
                if not self.queries:
                    self.threads -= 1
                    return
                query = self.queries.popleft()
            try:
                answer: Answer = self._run(query)
            except OSError as error:
                answer = error
            except Exception as error:      # for example a name that cannot be encoded
                answer = OSError(None, f"{type(error).__name__}: {error}")
            with self.lock:
                if self.closed:
                    return
                self.answers.append((query, answer))
                self.wake()

    def _run(self, query: "Query") -> "list[Address]":
        kind, host, port, family = query
        rows = self.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        found = [(int(row[0]), _host(row[4]), port) for row in rows]
        if kind == "find":
            return found
        failure: OSError = OSError(None, "no address")
        for address in found:
            try:
                _try(address)
            except OSError as error:
                failure = error
            else:
                return [address]
        raise failure


def _try(address: "Address") -> None:
    family, host, port = address
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(TRY_WITHIN_S)
        one.connect((host, port))
