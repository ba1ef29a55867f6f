"""A worker's part of what the workers of a cluster do together: as on one machine, and questions about the document of
dynamic security. The parent passes these on to the agent of the node (rules.py)."""

import os

from mosq.server.workers.together import Together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from mosq.server.control import Control

    Outcome = Generator[bool, None, tuple[str, str]]

ASKS = "asks"                   # state of a turn in which the agent has not answered


class NodeTogether(Together):
    """The turn of one worker of a node."""

    _number = 0                     # of the last question, so that no earlier answer counts
    _outcome = "", ""               # of that question: status and reason

    def look(self) -> "Outcome":
        """Wait until this worker has the newest document. Return the status, and why it is not DONE."""
        return self._ask({"is": "look"})

    def write(self, expected: str, stamp: str, content: bytes) -> "Outcome":
        """Replace the document that has the stamp `expected`. Return the status, and why it is not DONE; then all
        workers of this node have the new document."""
        fd = os.memfd_create("mosq-dynsec", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            return self._ask({"is": "write", "expected": expected, "stamp": stamp}, [fd])
        finally:
            os.close(fd)

    def _ask(self, message: "dict[str, Any]", fds: "list[int] | tuple[()]" = ()) -> "Outcome":
        self._number += 1
        self._state = ASKS
        self._channel.send({**message, "number": self._number}, fds)
        return self._wait()

    def _wait(self) -> "Outcome":
        while self._state == ASKS:
            yield False
        return self._outcome

    def serve(self, control: "Control", message: "dict[str, Any]", fds: list[int]) -> None:
        """Do what a message of the parent asks for, if it belongs here."""
        if message.get("do") == "answer" and self._state == ASKS and message["number"] == self._number:
            self._state, self._outcome = "mine", (message["status"], message["why"])
            if self._wake is not None:
                self._wake()
        super().serve(control, message, fds)
