"""The document of dynamic security in Redis, as the agent of a node has it. A thread with a connection of its own reads
and writes it, so a large document delays no beat. The parent and the workers get each new version as a memory file
(documents.py).

    beats show another stamp, or a worker asks -> read, check -> `rules` to the parent
    a worker changes it -> compare-and-set, again until it is confirmed or refused -> `rules`, then `answer`

A document that cannot be read is reported and not taken: the rules in force stay, and changes are refused.
"""

import os
import queue
import threading
import time
from contextlib import suppress

from mosq.auth.dynsec import outcome
from mosq.auth.dynsec.document import BYTES_MAX, Document, document_of, is_stamp, next_stamp
from mosq.auth.dynsec.first import generated
from mosq.auth.dynsec.store import FileError, Writer, content_of, load, read
from mosq.cluster.errors import AwayError, RefusedError
from mosq.config.errors import ConfigError
from mosq.log_types import ERROR, INFORMATION, NOTICE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.auth.dynsec.document import First
    from mosq.cluster.registry import Found, Registry
    from mosq.cluster.terms import Terms
    from mosq.server.workers.channel import Message

REPAIR = "Restore the data of Redis, or only the document (docs/cluster.md#the-document-of-dynamic-security)"


class DamagedError(Exception):
    """The document in Redis cannot be used."""


class Rules:
    """The newest document that this node has."""

    def __init__(self, registry: "Registry", terms: "Terms", report: "Callable[[int, str], None]",
                 send: "Callable[[Message, list[int]], None]") -> None:
        """`registry`: for this object alone. `send` sends a message to the parent, with descriptors."""
        self._registry, self._terms, self._report, self._send = registry, terms, report, send
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.document: Document | None = None
        self.damaged: str | None = None         # the stamp of the document in Redis, if that cannot be used
        self._shown = ""                        # the last report about it
        self._looks_s = float("-inf")           # when the beats last asked for a reading
        self._made: tuple[str, bytes, str | None] | None = None     # a first document that may be in Redis

    @property
    def stamp(self) -> str:
        """Return the stamp of the document; "" if there is none."""
        return "" if self.document is None else self.document.stamp

    # ---- before the node joins

    def begin(self, first: "First | None") -> None:
        """Read the document. If there was never one, make it from the file of this node, or a new one. `first`: None if
        this node does not use dynamic security. Raises RefusedError and AwayError."""
        found = self._registry.document()
        if not found.stamp and not found.was_made and first is not None:
            try:
                self._make(first)
            except ConfigError as error:
                raise RefusedError(str(error)) from None
            found = self._registry.document()
        if not found.stamp and not found.was_made:
            return
        try:
            self.document = self._checked(found)
        except DamagedError as error:
            if first is not None:
                raise RefusedError(str(error)) from None
            self.damaged = found.stamp
            return
        if first is not None:
            self._compare(first)

    def _make(self, first: "First") -> None:
        """Make the first document, unless another node does it first. Raises ConfigError and AwayError."""
        if self._made is None:
            local, passwords = _content(first), None
            if local is None:
                tree, passwords = generated(first.path, first.password_init_file,
                                            lambda text: self._report(INFORMATION, text), first.named_at)
                local = b"".join(content_of(tree))
            if len(local) > BYTES_MAX:
                raise ConfigError(f"The document in {first.path} would have {len(local)} bytes. In a cluster it has at "
                                  f"most {BYTES_MAX}: remove clients, groups or roles.", first.named_at)
            self._made = next_stamp(""), local, passwords
        stamp, content, passwords = self._made
        status, _ = self._registry.replace_document("", stamp, content)
        self._made = None
        if status == outcome.DONE:
            source = f"from the file {first.path}" if os.path.exists(first.path) else "by this node"
            self._report(NOTICE, f"Dynamic security: the first document of the cluster was made {source}. It is in "
                                 "Redis, and the file is not used any more.")
        elif passwords is not None:
            with suppress(OSError):
                os.unlink(passwords)
            self._report(INFORMATION, f"Another node has made the first document of dynamic security. {passwords} was "
                                      "removed again.")

    def _compare(self, first: "First") -> None:
        assert self.document is not None
        try:
            local = _content(first)
        except ConfigError:
            local = b""
        if local is not None and local != self.document.content():
            self._report(NOTICE, f"Dynamic security: the file {first.path} differs from version {self.document.version}"
                                 " of the document in Redis. That is in force, and the file is not used.")

    # ---- while the node runs

    def start(self) -> None:
        """Serve questions, in a thread."""
        threading.Thread(target=self._run, name="mosq-node-rules", daemon=True).start()

    def seen(self, stamp: str) -> None:
        """Read the document, if it is another one than this node has. `stamp`: of the document in Redis."""
        pause_s = self._terms.lease_s if stamp == self.damaged else self._terms.retry_s
        now_s = time.monotonic()
        if stamp != self.stamp and now_s >= self._looks_s + pause_s:
            self._looks_s = now_s
            self._jobs.put(self._look)

    def ask(self, message: "Message", fds: list[int]) -> None:
        """Answer a question of a worker: `look` or `write`. Takes the descriptors."""
        def answer() -> None:
            try:
                status, why = self._look() if message["do"] == "look" else self._write(message, fds)
            except Exception as error:      # a defect, after which the change may be in Redis
                self._failed(error)
                status, why = outcome.DOUBT, "the log of the node has the reason"
            self._send({"is": "answer", "worker": message["worker"], "pid": message["pid"], "number": message["number"],
                        "status": status, "why": why}, [])

        self._jobs.put(answer)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception as error:      # a defect
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._report(ERROR, f"Error: the document of dynamic security: {error!r}.")

    def _look(self) -> tuple[str, str]:
        """Take the document in Redis. Return the status, and why it is not DONE."""
        try:
            found = self._registry.document(self.stamp)
            if found.stamp != self.stamp:
                self._take(self._checked(found))
        except AwayError as error:
            return outcome.AWAY, str(error)
        except DamagedError as error:
            self.damaged = found.stamp
            if self._shown != str(error):
                self._shown = str(error)
                self._report(ERROR, f"Error: {error}. The rules in force stay, and changes are refused.")
            return outcome.DAMAGED, str(error)
        self.damaged, self._shown = None, ""
        return outcome.DONE, ""

    def _write(self, message: "Message", fds: list[int]) -> tuple[str, str]:
        """Replace the document. It is sent again while no answer comes: then it is done once, or refused."""
        document, until_s = Document(message["stamp"], fds[0]), time.monotonic() + self._terms.change_s
        in_doubt = False                # whether Redis may have done an earlier copy of the request
        while True:
            try:
                status, now = self._registry.replace_document(message["expected"], document.stamp, document.content())
                break
            except AwayError as error:
                in_doubt = in_doubt or (error.sent and not error.refused)
                if error.refused or time.monotonic() >= until_s:
                    document.close()
                    if in_doubt:
                        return outcome.DOUBT, str(error)
                    return outcome.REFUSED if error.refused else outcome.AWAY, str(error)
            time.sleep(self._terms.retry_s)
        if status == outcome.DONE and now == document.stamp:
            self._take(document)
            return outcome.DONE, ""
        document.close()
        looked, why = self._look()      # others have changed it: before this change, or after it
        return (outcome.CHANGED, "") if looked == outcome.DONE and status == outcome.CHANGED else (looked, why)

    def _checked(self, found: "Found") -> Document:
        """Return a document that can be used. Raises DamagedError."""
        if not found.stamp:
            raise DamagedError("Redis has no document of dynamic security any more, and it had one: the key was deleted"
                               f" or damaged. {REPAIR}")
        try:
            if not is_stamp(found.stamp) or not found.content:
                raise FileError("its fields `stamp` or `text` are wrong")
            read(found.content)
        except FileError as error:
            raise DamagedError(f"the document of dynamic security in Redis is damaged: {error}. {REPAIR}") from None
        return document_of(found.stamp, found.content)

    def _take(self, document: Document) -> None:
        earlier, self.document = self.document, document
        self._send({"is": "rules", "stamp": document.stamp}, [document.fd])
        if earlier is not None:
            earlier.close()


def _content(first: "First") -> bytes | None:
    """Return what the file has, as a document; None if there is no file. Raises ConfigError."""
    try:
        state, _ = load(first.path, first.named_at)
    except FileNotFoundError:
        return None
    return b"".join(Writer(first.path).content(state))
