"""The part of a worker's control plane that a broker which is alone does not have: what the parent gave it, and the
parent's messages. Knows no other worker, apart from the sockets to it.

A reload has two steps. At `check` the worker reads and prepares everything that can fail, and reports the result. At
`apply` it puts it into force, at `drop` it forgets it. New clients wait from the signal to `apply` or `drop`.
"""

import os
from collections import deque

from mosq.engine import continue_when_parent_ends
from mosq.server.workers.asking import Asking
from mosq.server.workers.channel import ERROR_CHARACTERS_MAX
from mosq.server.workers.program import serve_program
from mosq.server.workers.reading import ChangedError, content_of, state_of
from mosq.server.workers.together import Together
from mosq.server.workers.whole import Whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.auth.dynsec.document import Document
    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.control import CannotStartError, Control
    from mosq.server.reload import Prepared
    from mosq.server.workers.channel import Channel, Message
    from mosq.server.workers.shared import Shared
    from mosq.server.workers.wired import Wired

HTTP_PLACE = 0                  # of the worker that serves the HTTP listeners


class Worker:
    """One of several workers. `place`: from 0; `shared`: what the parent has opened; `covered`: the SIGHUPs that its
    configuration covers."""

    whole: Whole                    # all workers, as one engine
    wired: "Wired | None" = None     # of a cluster: how it reaches the workers on other machines
    document: "Document | None" = None      # of dynamic security, of a cluster that has one

    def __init__(self, place: int, channel: "Channel", shared: "Shared", covered: int) -> None:
        given = shared.given
        self.channel, self.http = channel, given.http if place == HTTP_PLACE else None
        self._waiting: deque[tuple[Message, list[int]]] = deque()   # messages of the parent, with descriptors
        self._messages = self._commits = 0      # changes that were not reported yet
        self._asking, self.together = Asking(place, given.askings, shared.questions[place]), Together(channel)
        self._place, self._given, self._receiving, self._covered = place, given, shared.receiving[place], covered
        self._prepared: Prepared | None = None
        self._content = self._state = ""        # what the parent has read, in the present round

    def join(self, engine: "Engine") -> None:
        """Make the engine a worker. Raises OSError."""
        passages = list(self._given.passages)
        passages[self._place] = self._receiving
        engine.join(self._place, self._given.key, passages, self._given.news, self._given.counts_fd,
                    self._given.status_fd, self._covered)

    def open_store(self, engine: "Engine", config: "Config", report: "Callable[[int, str], None]") -> bool:
        """Open the store, if it is not on the disk of this machine. Return False if it is. Raises OSError."""
        return False

    def begin(self, engine: "Engine", wake: "Callable[[], None]", own: "dict[str, Callable[[], Any]]") -> Whole:
        """Answer the other workers' questions; return all workers as one engine. See Whole."""
        far = None if self.wired is None else self.wired.asker
        self.whole = Whole(engine, self._asking, wake, own, far)
        self._asking.serve(self.whole.answer_question)
        if self.wired is not None:
            self.wired.asker.serve(self.whole.answer_far, self.whole.elsewhere.peer)
            self.wired.begin(engine, wake)
        return self.whole

    def ask_reload(self) -> None:
        """Ask the parent for a reload of all workers. Any thread may call this."""
        self.channel.send({"is": "reload"})

    def open(self, engine: "Engine") -> None:
        """Let the engine accept on the shared sockets. Raises OSError."""
        engine.open(self._given.sockets)

    def ready(self) -> None:
        """Report that clients are served. The user does not change any more."""
        continue_when_parent_ends()
        self.channel.send({"is": "ready"})

    def failed(self, error: "CannotStartError") -> None:
        """Report why this worker cannot start."""
        self.channel.send({"is": "failed", "text": error.text[:ERROR_CHARACTERS_MAX],
                           "wrong_config": error.wrong_config})

    def bridged(self) -> None:
        """Report that the first attempts of the own bridges have ended; the parent admits clients when all have."""
        self.channel.send({"is": "bridged"})

    def changed(self, messages: int, commits: int) -> None:
        """Report how many more messages and batches were written; the parent counts them for `autosave_interval`."""
        self._messages += messages
        self._commits += commits
        if self.channel.is_read():      # otherwise the next report has them, too
            self.channel.send({"is": "changes", "messages": self._messages, "commits": self._commits})
            self._messages = self._commits = 0

    def alive(self) -> None:
        """Report that the loop works, unless an earlier report was not read: the parent may be stopped for long. Called
        by the thread of the watchdog: the main thread may wait for a file."""
        if self.channel.is_read():
            self.channel.send({"is": "alive"})

    def serve(self, control: "Control") -> bool:
        """Do what the parent asks for. Return False if the parent is gone: then the worker must end too."""
        self._waiting += self.channel.receive()
        while self._waiting:
            self._do(control, *self._waiting.popleft())
        self.together.pass_on(control.log.report)
        if self.wired is not None:
            self.wired.log(control.log.report)
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
        if what == "places" and self.wired is not None:
            self.wired.places(message["places"])
            return
        if what == "passage" and len(fds) == 1:
            control.engine.replace_passage(message["peer"], fds[0])
            os.close(fds[0])
            return
        if what in ("adopt", "call") and len(fds) == 1:
            serve_program(control.engine, message, fds[0])
            return
        try:
            self.together.serve(control, message, fds)
        finally:
            for fd in fds:
                os.close(fd)
        if what == "check":
            self._check(control, message)
        elif what == "apply":
            self._apply(control)
        elif what == "admit":
            control.engine.hold_connects(False)
        elif what == "drop":
            self._drop()
            control.engine.begin_reload(message["reloads"])
            control.engine.hold_connects(False)

    def compare(self, config: "Config") -> None:
        """Compare a configuration, as it was read, with that of the parent. Raises ChangedError."""
        if content_of(config) != self._content:
            raise ChangedError

    def _check(self, control: "Control", message: "Message") -> None:
        from mosq.server.reload import Prepared, RefusedError
        from mosq.server.signals import Stopped

        self._drop()
        assert control.load is not None
        control.engine.begin_reload(message["reloads"])
        self._content, self._state = message["content"], message["state"]
        answer: Message = {"is": "checked", "round": message["round"], "status": 0, "error": "", "changed": False}
        try:
            self._prepared = Prepared(control, control.load)
            if state_of(self._prepared.config) != self._state:
                raise RefusedError(ChangedError())
        except Stopped:
            return                      # the main thread stops the broker next
        except RefusedError as refused:
            self._drop()
            answer.update(status=refused.status, error=str(refused)[:ERROR_CHARACTERS_MAX],
                          changed=isinstance(refused.error, ChangedError))
        self.channel.send(answer)

    def _apply(self, control: "Control") -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.apply()            # if it fails, this worker ends, and the next one has the new configuration
            control.reloaded()
        control.engine.hold_connects(False)

    def _drop(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.drop()
