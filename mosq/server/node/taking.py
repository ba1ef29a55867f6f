"""Takes new documents of dynamic security while the main thread of a worker checks a configuration: its files, or the
initialization of a plugin, may last longer than the time within which a worker must use a document. Other messages of
the parent wait for the main thread."""

import os
import select
import threading

from mosq.server.signals import block_all, unblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from mosq.server.workers.channel import Channel, Message


class Taking:
    """`with Taking(channel, waiting, take):` calls `take(message, fds)` for each `rules` that has arrived or arrives,
    in another thread. The others are left in `waiting`."""

    def __init__(self, channel: "Channel", waiting: "deque[tuple[Message, list[int]]]",
                 take: "Callable[[Message, list[int]], None]") -> None:
        self._channel, self._waiting, self._take = channel, waiting, take
        self._ends_fd = -1
        self._thread = threading.Thread(target=self._run, name="mosq-rules", daemon=True)

    def __enter__(self) -> None:
        before = block_all()            # the new thread inherits the mask: signals must interrupt the main thread
        try:
            self._ends_fd = os.eventfd(0, os.EFD_CLOEXEC)
            self._thread.start()
        except (OSError, RuntimeError):     # no more descriptors or threads: documents wait for the end of the check
            pass
        finally:
            unblock(before)

    def __exit__(self, *exception: object) -> None:
        if self._thread.ident is not None:
            os.eventfd_write(self._ends_fd, 1)
            self._thread.join()
        if self._ends_fd >= 0:
            os.close(self._ends_fd)

    def _run(self) -> None:
        poll = select.poll()
        for fd in (self._channel.fileno(), self._ends_fd):
            poll.register(fd, select.POLLIN)
        ends = False
        while not ends and not self._channel.closed:
            arrived = [*self._waiting, *self._channel.receive()]
            self._waiting.clear()
            for message, fds in arrived:
                if message.get("do") == "rules":
                    self._take(message, fds)
                else:
                    self._waiting.append((message, fds))
            ends = any(fd == self._ends_fd for fd, _ in poll.poll())
