"""The process that `mosq.Broker(workers=N)` starts: the parent of the workers, whose owner is a program at the other
end of a channel. It ends with the channel.

    program -> parent   adopt ID, with a socket of the program; call WORKER METHOD, with a socket for the answer
    parent -> program   ready PORTS, or failed TEXT WRONG_CONFIG
"""

import _socket
import os
import pickle
import sys

from mosq.config.embedded import embedded_config
from mosq.config.errors import ConfigError
from mosq.engine import worker_place
from mosq.log.log import PASSED
from mosq.server import process
from mosq.server.control import EXIT_CONFIG, EXIT_OK, CannotStartError
from mosq.server.signals import Signals, Stopped
from mosq.server.workers.channel import Channel
from mosq.server.workers.parent import Parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config
    from mosq.server.workers.slot import Slot


class Owner:
    """The program, as the parent sees it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def fileno(self) -> int:
        return self.channel.fileno()

    def ready(self, sockets: "list[list[_socket.socket]]") -> None:
        """Report the port of each listener; 0 for a Unix socket."""
        names = [several[0].getsockname() for several in sockets]
        self.channel.send({"is": "ready", "ports": [name[1] if isinstance(name, tuple) else 0 for name in names]})

    def failed(self, text: str, wrong_config: bool) -> None:
        """Report why the broker cannot start."""
        self.channel.send({"is": "failed", "text": text, "wrong_config": wrong_config})

    def serve(self, slots: "list[Slot]", key: bytes) -> bool:
        """Pass on what the program asks for. Return False if the program wants the end, or is gone."""
        for message, fds in self.channel.receive():
            if message["do"] == "adopt":
                place = worker_place(key, message["id"].encode(), len(slots))
            else:
                place = message["worker"]
            channel = slots[place].channel
            if channel is not None and slots[place].ready:
                channel.send(message, fds)
            for fd in fds:
                os.close(fd)
        return not self.channel.closed


def main(fd: int) -> None:
    """Run until the program ends the channel."""
    os.set_inheritable(fd, False)
    owner = Owner(Channel(_socket.socket(fileno=fd)))
    source, options, verbose, quiet = pickle.load(sys.stdin.buffer)     # written by the program that started this
    sys.exit(_run(owner, source, options, verbose, quiet))


def _run(owner: Owner, source: "str | None", options: "dict[str, str]", verbose: bool, quiet: bool) -> int:
    def load() -> "Config":
        config = embedded_config(source, options)
        config.pid_file, config.user = None, "root"     # it stays the user of the program
        config.log_dest, config.log_format = ("stderr",), PASSED
        return config

    with Signals() as taken:
        try:
            config = load()
        except ConfigError as error:
            owner.failed(str(error), wrong_config=True)
            return EXIT_CONFIG
        parent = Parent(config, taken, quiet, verbose, load, owner)
        try:
            parent.prepare()
            process.room_for_descriptors()
            taken.defer()
            parent.listen()
            return parent.run(None)
        except Stopped:
            return EXIT_OK
        except CannotStartError as error:
            owner.failed(error.text, error.wrong_config)
            return error.status
        finally:
            parent.close()
