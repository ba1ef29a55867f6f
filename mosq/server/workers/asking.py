"""Questions of one worker's control plane to the others', and their answers.

    asker      question, with one end of a new stream socket  ->  the other worker's socket for questions
    answering  a thread of the other worker  ->  the answer, on that stream; a notice needs none

The parent keeps both ends of each socket for questions, so they outlive a worker. All workers are one program of one
user; so a question is a pickle. The thread answers from its own engine only and asks no other worker, so two workers
never wait for each other. The asker waits for ANSWER_S at most.
"""

import _socket
import array
import os
import pickle
import select
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

QUESTION_BYTES = 1 << 18        # a client id, which has at most 65,535 bytes, and some numbers
PART_BYTES = 1 << 18
ANSWER_S = 1.0


def asking_pair() -> tuple[int, int]:
    """Return the two ends of a worker's socket for questions: to write to, and to receive from. Raises OSError."""
    one, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_NONBLOCK)
    return one.detach(), other.detach()


class Asking:
    """Asks the other workers, and answers them. `place`: the own one, from 0; `ends`: for each worker the end to write
    to; `receiving`: the own one to receive from."""

    def __init__(self, place: int, ends: list[int], receiving: int) -> None:
        self.place, self.n = place, len(ends)
        self._ends = [_socket.socket(fileno=fd) for fd in ends]
        self._receiving = _socket.socket(fileno=receiving)

    def ask(self, places: "Iterable[int]", name: str, *args: "Any") -> "dict[int, Any]":
        """Ask workers at the same time. Return the answers by place; a worker that does not answer in time is missing.
        Raises what a worker has raised."""
        poll = select.poll()
        waiting: dict[int, tuple[int, _socket.socket, bytearray]] = {}
        for place in places:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            if self._send(place, (name, args), theirs.fileno()):
                waiting[ours.fileno()] = place, ours, bytearray()
                poll.register(ours.fileno(), select.POLLIN)
            else:
                ours.close()
            theirs.close()
        found: dict[int, Any] = {}
        until_s = time.monotonic() + ANSWER_S
        while waiting and (left_s := until_s - time.monotonic()) > 0:
            for fd, _ in poll.poll(1000 * left_s):
                place, ours, data = waiting[fd]
                part = ours.recv(PART_BYTES)
                data += part
                if not part:            # the end of the answer, or of the worker
                    poll.unregister(fd)
                    del waiting[fd]
                    ours.close()
                    try:
                        found[place] = pickle.loads(data)
                    except (EOFError, pickle.UnpicklingError):      # the worker has ended in its answer, or before it
                        pass
        for _, ours, _ in waiting.values():
            ours.close()
        for value in found.values():
            if isinstance(value, Exception):
                raise value
        return found

    def tell(self, name: str, *args: "Any") -> None:
        """Send all others a notice. One that does not read loses it."""
        for place in range(self.n):
            if place != self.place:
                self._send(place, (name, args), -1)

    def notify(self, place: int, name: str, *args: "Any") -> bool:
        """Send one worker a notice. Return False if it does not read."""
        return self._send(place, (name, args), -1)

    def _send(self, place: int, question: "tuple[str, tuple[Any, ...]]", fd: int) -> bool:
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [fd]).tobytes())] if fd >= 0 else []
        try:
            self._ends[place].sendmsg([pickle.dumps(question)], rights)
        except OSError:                 # its socket is full
            return False
        return True

    # ---- the other side

    def serve(self, answer: "Callable[[str, tuple[Any, ...]], Any]") -> None:
        """Start the thread that answers. `answer` gets the name and the arguments of a question."""
        threading.Thread(target=self._run, args=(answer,), name="mosq-asked", daemon=True).start()

    def _run(self, answer: "Callable[[str, tuple[Any, ...]], Any]") -> None:
        from mosq.log.destinations import block_signals

        block_signals()
        poll = select.poll()
        poll.register(self._receiving.fileno(), select.POLLIN)
        while True:
            poll.poll()
            try:
                data, ancillary, _, _ = self._receiving.recvmsg(QUESTION_BYTES, _socket.CMSG_SPACE(4),
                                                                _socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                continue
            if not data:                # the socket was shut down, by root: this worker answers no more
                return
            fds = array.array("i")
            for _, _, packed in ancillary:
                fds.frombytes(packed)
            _answered(answer, data, fds[0] if fds else -1)


def _answered(answer: "Callable[[str, tuple[Any, ...]], Any]", data: bytes, fd: int) -> None:
    value: Any
    try:
        value = answer(*pickle.loads(data))
    except Exception as error:
        value = error
    if fd < 0:
        return
    try:
        sock = _socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        return
    try:
        sock.settimeout(ANSWER_S)
        sock.sendall(pickle.dumps(value))
    except OSError:                     # the asker waits no more
        pass
    finally:
        sock.close()
