"""A worker's part of what workers do together (order.py): its turn to change dynamic security, changes of the others,
and calls of plugins that concern all workers. The parent passes on a memory file, because a message is short.

Turns belong to the control thread; `kick`, `kick_users` and `publish` may be called by any thread.
"""

import base64
import json
import os
from threading import Lock

from mosq.log_types import ERROR, WARNING
from mosq.records import KickCommand, PublishCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any

    from mosq.server.control import Control
    from mosq.server.workers.channel import Channel

WAITING_BYTES_MAX = 8 << 20     # of calls that wait for the parent
ENTRY_BYTES = 64                # assumed memory of one without its texts


class Together:
    """The turn of one worker, and its calls to the others."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._state = ""                # of the turn: asked, mine, changed, everywhere; empty: none
        self._wake: Callable[[], None] | None = None
        self._lock = Lock()
        self._calls: list[Any] = []     # wait for the parent
        self._bytes = self._lost = 0
        self._passing = False           # the parent has not passed the last ones on

    # ---- a turn

    def begin(self, wake: "Callable[[], None]") -> "Generator[bool, None, None]":
        """Wait for the turn: a part of a generator for admin/control.py. `end` follows in any case."""
        self._wake, self._state = wake, "asked"
        self._channel.send({"is": "turn"})
        while self._state == "asked":
            yield False

    def spread(self, kicks: "Iterable[str | None]") -> "Generator[bool, None, None]":
        """Let all others take the change, and wait until they have. `kicks`: users to disconnect there."""
        self._state = "changed"
        self._send("changed", list(kicks))
        while self._state == "changed":
            yield False

    def end(self) -> None:
        """End the turn, or the wait for it."""
        if self._state == "asked":
            self._state = "given up"    # the answer comes later
        elif self._state and self._state != "given up":
            self._state = ""
            self._channel.send({"is": "over"})

    def _turn(self) -> None:
        if self._state == "given up":
            self._state = ""
            self._channel.send({"is": "over"})
        elif self._state == "asked":
            self._state = "mine"
        else:
            self._channel.send({"is": "over"})

    # ---- calls of plugins

    def kick(self, client_id: str | None) -> None:
        """End the connection of a client at the others; None: of all clients there."""
        self._call(["kick", client_id], len(client_id or ""))

    def kick_users(self, username: str | None) -> None:
        """End the connections of a user at the others."""
        self._call(["user", username], len(username or ""))

    def publish(self, command: PublishCommand) -> None:
        """Send a message to the session of a client, which one of the others may have."""
        packed = [None if one is None else base64.b64encode(one).decode() for one in (command.payload,
                                                                                     command.properties)]
        self._call(["publish", command.topic, packed[0], command.qos, command.retain, packed[1], command.client_id],
                   len(command.topic) + sum(len(one or "") for one in packed))

    def _call(self, call: "list[Any]", n: int) -> None:
        with self._lock:
            if self._bytes + n + ENTRY_BYTES > WAITING_BYTES_MAX:
                self._lost += 1
                return
            self._calls.append(call)
            self._bytes += n + ENTRY_BYTES

    def pass_on(self, report: "Callable[[int, str], None]") -> None:
        """Send the calls that wait, unless the parent still has earlier ones. For the control thread."""
        if self._passing or not self._calls:
            return
        with self._lock:
            calls, self._calls, lost = self._calls, [], self._lost
            self._bytes = self._lost = 0
        self._passing = True
        self._send("pass", calls)
        if lost:
            report(WARNING, f"Warning: {lost} calls of plugins did not reach the other workers: too many waited.")

    # ---- messages

    def serve(self, control: "Control", message: "dict[str, Any]", fds: list[int]) -> None:
        """Do what a message of the parent asks for, if it belongs here."""
        what = message.get("do")
        if what == "turn":
            self._turn()
        elif what == "everywhere" and self._state == "changed":
            self._state = "everywhere"
        elif what == "take":
            self._take(control, message["number"], fds, message["sure"])
        elif what == "passed":
            self._do(control, _content(fds))
        elif what == "pass_again":
            self._passing = False
        if what in ("turn", "everywhere") and self._wake is not None:
            self._wake()

    def _take(self, control: "Control", number: int, fds: list[int], sure: bool) -> None:
        """Put a change into force that another worker has saved. A worker that cannot ends, because it would go on with
        other rules; the next process reads the file. `sure`: otherwise a worker has ended in its turn, and perhaps
        nothing has changed."""
        try:
            access = control.access
            revoked = set() if access is None or access.commands is None else access.commands.take()
            kicks = revoked | set(_content(fds))
            if kicks:
                control.engine.answer([KickCommand(list(kicks))])
        except Exception as error:
            control.log.report(ERROR, f"Error: A change of dynamic security cannot be taken: {error}.")
            if sure:
                self._channel.close()
                return
        self._channel.send({"is": "taken", "number": number})

    def _do(self, control: "Control", calls: "list[Any]") -> None:
        answers: list[Any] = []
        for kind, *rest in calls:
            if kind == "kick":
                if control.access is not None:
                    control.access.kick_here(rest[0])
            elif kind == "user":
                answers.append(KickCommand([rest[0]]))
            elif kind == "publish":
                topic, payload, qos, retain, properties, client_id = rest
                answers.append(PublishCommand(topic, base64.b64decode(payload), qos, retain, None,
                                              None if properties is None else base64.b64decode(properties), client_id))
        if answers:
            control.engine.answer(answers)

    def _send(self, what: str, content: "list[Any]") -> None:
        if not content:
            self._channel.send({"is": what})
            return
        fd = os.memfd_create("mosq-together", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(json.dumps(content).encode())
            self._channel.send({"is": what}, [fd])
        finally:
            os.close(fd)


def _content(fds: list[int]) -> "list[Any]":
    """Return the list in a memory file. All workers have the same descriptor, so its place is not used."""
    if not fds:
        return []
    content: list[Any] = json.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
    return content
