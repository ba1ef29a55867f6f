"""The part of a worker that serves the program that has started it (`mosq.Broker(workers=N)`): it takes a connection of
the program, or answers a question about its engine. Trusts the messages: they come over the channel of the parent."""

import _socket
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.engine import Engine
    from mosq.server.workers.channel import Message

METHODS = ("clients", "kick", "stats")
ANSWER_S = 5.0                  # for a program that does not read its answer


def serve_program(engine: "Engine", message: "Message", fd: int) -> None:
    """Do what the message asks for. `fd`: a socket, which is closed if the engine does not take it."""
    try:
        if message["do"] == "adopt":
            engine.adopt(fd)
            return
        sock = _socket.socket(fileno=os.dup(fd))
        try:
            if message["method"] in METHODS:
                from json import dumps

                found = getattr(engine, message["method"])(*message["arguments"])
                sock.settimeout(ANSWER_S)
                sock.sendall(dumps(found).encode())
        finally:
            sock.close()
    except (RuntimeError, OSError):
        pass                    # the program sees the end of its socket
    os.close(fd)
