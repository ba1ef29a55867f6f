"""The part of a worker's control plane that a broker which is alone does not have: what the parent gave it, and the
parent's messages. Knows no other worker, apart from the sockets to it.

A reload has two steps. From `hold` on the worker holds new clients; `release` ends that. At `check` it reads and
prepares everything that can fail, and reports the result. At `apply` it puts it into force, at `drop` it forgets it.
"""

import os

from mosq.server.workers.asking import Asking
from mosq.server.workers.program import serve_program
from mosq.server.workers.together import Together
from mosq.server.workers.whole import Whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine
    from mosq.server.control import Control
    from mosq.server.http.listeners import Bound
    from mosq.server.reload import Prepared
    from mosq.server.workers.channel import Channel, Message

HTTP_PLACE = 0                  # of the worker that serves the HTTP listeners


class Given:
    """The descriptors and secrets that all workers get from the parent."""

    def __init__(self, key: bytes, passages: list[int], news: list[int], counts_fd: int,    # parameters: of the parent
                 sockets: list[list[int]], askings: list[int], http: "list[Bound]") -> None:
        self.key = key                  # names the worker of a client id
        self.passages = passages              # sockets to each worker, to pass connections on
        self.news = news                # an eventfd of each worker: there are new records in streams
        self.counts_fd = counts_fd      # memory for counts
        self.sockets = sockets          # for each listener: descriptors that listen
        self.askings = askings          # to each worker's control plane, for questions
        self.http = http                # the sockets of HTTP listeners


class Worker:
    """One of several workers. `place`: from 0; `receiving`: its own passage, to receive from; `asked`: its own socket
    for questions."""

    whole: Whole                    # all workers, as one engine

    def __init__(self, place: int, channel: "Channel", given: Given, receiving: int, asked: int) -> None:
        self.channel, self.http = channel, given.http if place == HTTP_PLACE else None
        self._asking, self.together = Asking(place, given.askings, asked), Together(channel)
        self._place, self._given, self._receiving = place, given, receiving
        self._prepared: Prepared | None = None

    def join(self, engine: "Engine") -> None:
        """Make the engine a worker. Raises OSError."""
        passages = list(self._given.passages)
        passages[self._place] = self._receiving
        engine.join(self._place, self._given.key, passages, self._given.news, self._given.counts_fd)

    def begin(self, engine: "Engine", wake: "Callable[[], None]", own: "dict[str, Callable[[], Any]]") -> Whole:
        """Answer the other workers' questions; return all workers as one engine. See Whole."""
        self.whole = Whole(engine, self._asking, wake, own)
        self._asking.serve(self.whole.answer_question)
        return self.whole

    def ask_reload(self) -> None:
        """Ask the parent for a reload of all workers. Any thread may call this."""
        self.channel.send({"is": "reload"})

    def open(self, engine: "Engine") -> None:
        """Let the engine accept on the shared sockets. Raises OSError."""
        engine.open(self._given.sockets)

    def ready(self) -> None:
        """Report that clients are served."""
        self.channel.send({"is": "ready"})

    def alive(self) -> None:
        """Report that the loop works. Called by the thread of the watchdog: the main thread may wait for a file."""
        self.channel.send({"is": "alive"})

    def serve(self, control: "Control") -> bool:
        """Do what the parent asks for. Return False if the parent is gone: then the worker must end too."""
        for message, fds in self.channel.receive():
            self._do(control, message, fds)
        self.together.pass_on(control.log.report)
        return not self.channel.closed

    def _do(self, control: "Control", message: "Message", fds: list[int]) -> None:
        what = message.get("do")
        if what == "link" and len(fds) in (0, 2):
            try:
                control.engine.link(message["peer"], *(fds or (-1, -1)))
            except RuntimeError:
                pass                    # the loop ends
            if hasattr(self, "whole"):
                self.whole.elsewhere.peer(message["peer"], bool(fds))
            return
        if what in ("adopt", "call") and len(fds) == 1:
            serve_program(control.engine, message, fds[0])
            return
        try:
            self.together.serve(control, message, fds)
        finally:
            for fd in fds:
                os.close(fd)
        if what == "hold" or what == "release":
            control.engine.hold_connects(what == "hold")
        elif what == "check":
            self._check(control, message["round"])
        elif what == "apply":
            self._end(control, True)
        elif what == "drop":
            self._end(control, False)

    def _check(self, control: "Control", number: int) -> None:
        from mosq.server.reload import Prepared, RefusedError
        from mosq.server.signals import Stopped
        from mosq.server.workers.channel import ERROR_CHARACTERS_MAX

        self._end(control, False)
        assert control.load is not None
        control.engine.hold_connects(True)
        answer: Message = {"is": "checked", "round": number, "status": 0, "error": ""}
        try:
            self._prepared = Prepared(control, control.load)
        except Stopped:
            return                      # the main thread stops the broker next
        except RefusedError as refused:
            answer.update(status=refused.status, error=str(refused)[:ERROR_CHARACTERS_MAX])
            control.engine.hold_connects(False)
        self.channel.send(answer)

    def _end(self, control: "Control", apply: bool) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if not apply:
            prepared.drop()
        else:
            prepared.apply()            # if it fails, this worker ends, and the next one has the new configuration
            control.reloaded()
        control.engine.hold_connects(False)
