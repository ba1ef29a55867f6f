"""Subscriptions for threads. Each has its own connection, so a slow consumer delays only itself."""

import select
import threading
import time

from mosq.embed.connection import READ, WRITE
from mosq.embed.errors import SubscriptionClosed
from mosq.embed.message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self, TypeVar

    from mosq.embed.connection import Connection, Steps

    T = TypeVar("T")


def drive(steps: "Steps[T]", connection: "Connection", give_up: float | None) -> "T":
    """Run a conversation in this thread until the monotonic time `give_up`; return its result. Raises TimeoutError."""
    try:
        wait_for = next(steps)
        poll = select.poll()
        poll.register(connection.socket, READ | WRITE)
        while True:
            poll.modify(connection.socket, wait_for)
            left_ms = None if give_up is None else max(0.0, give_up - time.monotonic()) * 1000
            if not poll.poll(left_ms):
                steps.close()
                raise TimeoutError("the broker has not answered in time")
            wait_for = next(steps)
    except StopIteration as end:
        answer: T = end.value
        return answer


def deadline(timeout: float | None) -> float | None:
    """Return the monotonic time at which a timeout in seconds ends; None: never."""
    return None if timeout is None else time.monotonic() + timeout


class Subscription:
    """An iterator of messages and a context manager; iteration ends when it is closed or the broker stops. Threads may
    share a subscription: each message goes to one of them."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def get(self, timeout: float | None = None) -> Message:
        """Return the next message; wait at most `timeout` seconds, without it for ever. Raises TimeoutError,
        SubscriptionClosed at the end, Disconnected if the broker ended only this subscription."""
        give_up = deadline(timeout)
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError("no message in time")
        try:
            return drive(self._connection.next_message(), self._connection, give_up)
        except TimeoutError:
            raise TimeoutError("no message in time") from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the subscription; a thread that waits for a message is woken. Any thread may call this."""
        self._connection.hang_up()
        with self._lock:
            self._connection.close()

    def __iter__(self) -> "Self":
        return self

    def __next__(self) -> Message:
        try:
            return self.get()
        except SubscriptionClosed:
            raise StopIteration from None

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
