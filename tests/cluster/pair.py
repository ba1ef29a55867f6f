"""Run workers of one broker as if each was on a machine of its own: processes without a parent, linked over TCP.

    python -m tests.cluster.pair SPEC CHANNEL -c FILE        is one worker. SPEC: JSON; CHANNEL: the descriptor of its channel
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

from mosq.cluster.wires import VERSION_MAX, VERSION_MIN
from mosq.engine import worker_place
from mosq.server.workers.channel import Channel, channel_pair
from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.packets import Connect
from tests.harness.wire import Wire
from tests.workers.case import accepted, until

WIRES_HOST = "127.0.0.1"        # of the ports for other workers, which differ; a test may use another host
CONFIG = "listener {port} {host}\nallow_anonymous true\n"
VERSIONS = VERSION_MIN, VERSION_MAX
KEY = bytes(range(16))
SECRET = b"a secret of all nodes, long enough"


class Node(Broker):
    """One worker, with its own addresses, listeners and port for the others. `n`: workers of the cluster; `ports`: of its listeners, in the
    configuration {port}, {second} and {third}; its addresses are {host} and {inner}."""

    channel: Channel | None = None

    def __init__(self, slot: int, n: int, config: str = "", files: dict[str, str] | None = None, secret: bytes = SECRET, cluster: str = "one",     # parameters: of a process
                 ports: tuple[int, ...] = (), wires_host: str = WIRES_HOST, versions: tuple[int, int] = VERSIONS) -> None:
        super().__init__(config, files)
        self.wires_host = wires_host
        self.slot, self.n, self.secret, self.cluster, self.host = slot, n, secret, cluster, f"127.0.0.{slot + 1}"
        self.inner = f"127.0.1.{slot + 1}"
        self.ports = ports or three_ports()
        self.port = self.ports[0]
        text = config if "listener" in config else CONFIG + config
        for name, value in (("{host}", self.host), ("{inner}", self.inner), ("{port}", self.port), ("{second}", self.ports[1]), ("{third}", self.ports[2]), ("{dir}", self.dir)):
            text = text.replace(name, str(value))
        self.config.write_text(text + "user root\n")
        self.wires_port = free_port()
        self.token = 0
        self.versions = versions        # of the handshake
        self.opened: list[Wire] = []

    def start(self) -> Node:
        self.token += 1
        spec = json.dumps({"slot": self.slot, "n": self.n, "secret": self.secret.decode(), "cluster": self.cluster, "token": self.token,
                           "wires_host": self.wires_host, "port": self.wires_port, "versions": self.versions})
        ours, theirs = channel_pair()
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        with (self.dir / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.pair", spec, str(theirs.fileno()), "-c", str(self.config)], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}, pass_fds=[theirs.fileno()])
        theirs.close()
        if self.channel is not None:
            self.channel.close()
        self.channel = ours
        until(self.listens, self.log)
        return self

    def listens(self) -> bool:
        assert self.alive(), self.log()
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def place(self) -> tuple[str, int, int]:
        return self.wires_host, self.wires_port, self.token

    def die(self) -> None:
        """Kill the worker."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def suspend(self) -> None:
        """Stop the worker with SIGSTOP; its kernel goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def know(self, places: dict[int, tuple[str, int, int] | None]) -> None:
        """Let the worker know where others are."""
        assert self.channel is not None
        self.channel.send({"do": "places", "places": places})

    def connect(self, client_id: str, level: int = 5, **how: object) -> Wire:
        """Connect a client, which must be accepted."""
        client = self.wire(level=level)
        client.send(Connect(client_id, **how))      # type: ignore[arg-type]
        accepted(client)
        return client

    def wire(self, listener: int = 0, level: int = 5, **how: object) -> Wire:
        """Return a connection to a listener."""
        client = Wire(self.ports[listener], level, **{"host": self.host, **how})        # type: ignore[arg-type]
        self.opened.append(client)
        return client

    def wait_log(self, text: str, times: int = 1) -> None:
        until(lambda: self.log().count(text) >= times, self.log)

    def close(self) -> None:
        for client in self.opened:
            client.close()
        if self.alive():
            self.resume()
        super().close()
        if self.channel is not None:
            self.channel.close()


def three_ports() -> tuple[int, ...]:
    return free_port(), free_port(), free_port()


def id_of(slot: int, n: int, name: str = "id") -> str:
    """Return a client id that belongs to this worker."""
    return next(f"{name}{i}" for i in range(10_000) if worker_place(KEY, f"{name}{i}".encode(), n) == slot)


def introduce(nodes: list[Node]) -> None:
    """Let all workers know where the others are."""
    for node in nodes:
        node.know({other.slot: other.place() for other in nodes if other is not node})


@contextlib.contextmanager
def cluster(n: int = 2, config: str = "", files: dict[str, str] | None = None, wires_host: str = WIRES_HOST,
            older: int | None = None) -> Iterator[list[Node]]:
    """Run a cluster of n workers, which serve clients. `older`: one that knows only the first version of the handshake."""
    with contextlib.ExitStack() as stack:
        ports = three_ports()
        nodes = [stack.enter_context(Node(slot, n, config, files, ports=ports, wires_host=wires_host,
                                          versions=(VERSION_MIN, VERSION_MIN) if slot == older else VERSIONS)) for slot in range(n)]
        introduce(nodes)
        for node in nodes:
            node.connect(id_of(node.slot, n)).close()
        yield nodes


def worker(spec: dict[str, object], channel_fd: int, path: str) -> int:
    """Be a worker until its end; return the exit status."""
    from mosq.cluster.reach import listen
    from mosq.cluster.wires import Own
    from mosq.config.parser import load_config
    from mosq.engine import counts_bytes, sockets_of
    from mosq.server import process, signals as server_signals
    from mosq.server.control import serve
    from mosq.server.settings import engine_listeners
    from mosq.server.storage import key_of
    from mosq.server.workers.asking import asking_pair
    from mosq.server.workers.terms import of_worker
    from mosq.server.workers.wired import Wired
    from mosq.server.workers.shared import Given, Shared
    from mosq.server.workers.worker import Worker

    slot, n = int(str(spec["slot"])), int(str(spec["n"]))

    def load() -> object:
        config = load_config(path)
        config.cluster_local = n
        return config

    config = load()
    process.room_for_descriptors()
    key_of(config, lambda _, text: print(text))         # type: ignore[arg-type]
    opened = [sockets_of(one, nodelay=True) for one in engine_listeners(config)]      # type: ignore[arg-type]
    pairs = [asking_pair() for _ in range(n)]
    counts_fd = os.memfd_create("counts", os.MFD_CLOEXEC)
    os.ftruncate(counts_fd, counts_bytes())
    passage = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shared = Shared()
    shared.receiving, shared.questions = [passage[1].fileno()] * n, [asked for _, asked in pairs]
    shared.given = Given(KEY, [-1] * n, [os.eventfd(0) if one == slot else -1 for one in range(n)], counts_fd,
                  [[one.fileno() for one in some] for some in opened], [asks for asks, _ in pairs], [], -1)
    one = Worker(slot, Channel(socket.socket(fileno=channel_fd)), shared, 0)
    lowest, highest = spec["versions"]      # type: ignore[misc]
    own = Own(str(spec["cluster"]), str(spec["secret"]).encode(), slot, int(str(spec["token"])), (lowest, highest))
    one.wired = Wired(own, listen(str(spec["wires_host"]), int(str(spec["port"]))), n)
    with server_signals.Signals() as taken:
        return serve(of_worker(config, slot + 1, KEY), taken=taken, load=load, worker=one)      # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(worker(json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[4]))
