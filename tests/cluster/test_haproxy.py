"""Test the example of HAProxy (conf/haproxy) in front of two nodes, with a real Redis and clients of other projects."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.haproxy import EXAMPLE, Haproxy, program
from tests.cluster.servers import Redis
from tests.cluster.test_serving import WORKERS
from tests.cluster.test_two_nodes import Linked
from tests.harness.broker import free_port
from tests.harness.certificates import client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, decode
from tests.harness.wire import Wire
from tests.interop.clients import Client, Message, Paho, Setup
from tests.interop.programs import Mosquitto, MqttJs, install_mqttjs
from tests.workers.case import until

pytestmark = [pytest.mark.part("front"), pytest.mark.interop]

BEFORE, AFTER = 20, 50          # messages of a publisher before and after the death of a node
ADDRESS = "127.0.0.77"          # of a client


class Front(Linked):
    """Two nodes with HAProxy in front."""

    haproxy: Haproxy

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.opened: list[Wire] = []
        self.proxied, self.tls = free_port(), free_port()
        for name in ("a", "b"):
            self.begin(name)
        self.haproxy = Haproxy([(node.host, self.proxied, self.tls) for node in self.nodes])

    def begin(self, name: str) -> None:
        """Start a node with the listeners that the example asks for."""
        host = f"127.0.1.{len(self.nodes) + 1}"
        node = self.node(name, f"listener {self.proxied} {host}\nenable_proxy_protocol 2\nlistener {self.tls} {host}\nenable_proxy_protocol 1\n"
                               "certfile {dir}/server.crt\nkeyfile {dir}/server.key\nmax_inflight_messages 20\n")
        for file, content in server_files().items():
            (node.dir / file).write_text(content)
        node.spawn()

    def wait_shared_out(self) -> None:
        """Wait until each node has a worker that serves clients."""
        until(lambda: all(len(node.pids()) == WORKERS / 2 and "serves clients" in node.log() for node in self.nodes), self.logs)

    def logs(self) -> str:
        return "".join(node.log() for node in self.nodes) + self.haproxy.report()

    def connect(self, client_id: str, port: int = 0, **how: object) -> Wire:
        """Connect a client; again and again while no worker serves, or the lease of a busy machine is over."""
        found: list[Wire] = []

        def accepted() -> bool:
            client = Wire(port or self.haproxy.port, source=ADDRESS, **how)      # type: ignore[arg-type]
            self.opened.append(client)
            try:
                client.send(Connect(client_id))
                raw = client.read_frame()
            except OSError:
                return False
            if raw is None:
                return False
            assert isinstance(decode(client.level, raw), Connack)
            found.append(client)
            return True

        until(accepted, self.logs)
        return found[0]

    def close(self) -> None:
        for client in self.opened:
            client.close()
        super().close()

    def carries(self, name: str) -> int:
        """Return the number of connections to a node."""
        return self.haproxy.servers()[name][1]


@pytest.fixture
def front() -> Iterator[Front]:
    with Redis() as redis:
        running = Front(redis)
        try:
            running.wait_shared_out()
            with running.haproxy:
                running.haproxy.wait_up("a", "b")
                yield running
        finally:
            running.close()


def test_haproxy_accepts_the_example(tmp_path: Path) -> None:
    path = program()
    assert path is not None
    done = subprocess.run([path, "-c", "-f", EXAMPLE], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr


def test_nodes_see_the_address_of_a_client(front: Front) -> None:
    """A client of each worker connects four times, so at least one of the connections is relayed to the other node."""
    text = f"New client connected from {ADDRESS}:"
    ids = front.ids("x") * 2 + front.ids("y") * 2
    for port, how in ((front.haproxy.port, {}), (front.haproxy.tls_port, {"tls": client_context()})):
        before = sum(node.log().count(text) for node in front.nodes)
        for name in ids:
            front.connect(name, port, **how).close()
        until(lambda before=before: sum(node.log().count(text) for node in front.nodes) >= before + len(ids), front.logs)     # type: ignore[misc]


def test_a_node_that_leaves_gets_no_clients(front: Front) -> None:
    second = front.nodes[1]
    second.send_signal(signal.SIGTERM)
    front.haproxy.wait_up("a")
    assert second.process is not None
    assert second.process.wait(TIMEOUT_S) == 0
    for name in front.ids("x"):
        front.connect(name).close()
    second.spawn()
    front.haproxy.wait_up("a", "b")


def test_clients_of_a_node_that_hangs_are_disconnected(front: Front) -> None:
    """All processes of the node are stopped, so its port is open and does not answer. The kernel ends its workers with the lease."""
    second = front.nodes[1]
    until(lambda: all(front.carries(node.name) == 0 for node in front.nodes))
    while front.carries("b") == 0:
        front.connect(front.ids("x")[0])
    second.send_signal(signal.SIGSTOP)
    for pid in second.children():
        os.kill(pid, signal.SIGSTOP)
    front.haproxy.wait_up("a")
    until(lambda: front.carries("b") == 0)
    until(lambda: len(front.nodes[0].pids()) == WORKERS, front.logs)
    front.connect(front.ids("x")[0]).close()


# ---------------------------------------------------------------- clients of other projects

class Stream:
    """A publisher, with a thread that publishes numbers at QoS 1 and 2 in turns, one after the other is acknowledged. It stops AFTER messages
    after the death of a node."""

    def __init__(self, client: Client, died: threading.Event) -> None:
        self.client, self.died = client, died
        self.topic = f"t/{client.setup.client_id}"
        self.acknowledged = 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        left = AFTER
        while left:
            left -= self.died.is_set()
            n = self.acknowledged
            self.client.publish(Message(self.topic, str(n), 1 + n % 2))
            self.acknowledged += 1


def until_complete(client: Client, streams: list[Stream]) -> list[Message]:
    """Return what a subscriber has got when it has the last message of each QoS of each stream."""
    pending = {(stream.topic, str(n)) for stream in streams for n in (stream.acknowledged - 1, stream.acknowledged - 2)}
    got = []
    while pending:
        [message] = client.take(1)
        got.append(message)
        pending.discard((message.topic, message.payload))
    return got


def numbers(got: list[Message], stream: Stream, qos: int) -> list[int]:
    return [int(message.payload) for message in got if message.topic == stream.topic and message.qos == qos]


@pytest.fixture
def make(front: Front) -> Iterator[Callable[..., Client]]:
    install_mqttjs()
    made: list[Client] = []

    def maker(kind: type[Client], client_id: str, version: int) -> Client:
        client = kind(Setup(front.haproxy.port, client_id, version, persistent=True, reconnects=True))
        made.append(client)
        client.start()
        return client

    yield maker
    for client in made:
        client.stop()


def test_clients_of_others_see_nothing_but_a_reconnect_when_a_node_dies(front: Front, make: Callable[..., Client]) -> None:
    kinds: tuple[type[Client], ...] = (Paho, Mosquitto, MqttJs)
    subscribers = [make(kind, name, 4 + n % 2) for n, kind in enumerate(kinds) for name in front.ids(f"{kind.__name__}-sub-")]
    for client in subscribers:
        client.subscribe("t/#", 2)
    died = threading.Event()
    streams = [Stream(make(kind, name, 5 - n), died) for n, kind in enumerate((Paho, MqttJs)) for name in front.ids(f"{kind.__name__}-pub-")]
    resumed: list[bool] = []
    for client in (*subscribers, *(stream.client for stream in streams)):
        if isinstance(client, Paho):
            client.client.on_connect = lambda _c, _u, flags, _rc, _p: resumed.append(flags.session_present)
    for stream in streams:
        stream.thread.start()
    until(lambda: all(stream.acknowledged >= BEFORE for stream in streams), front.logs)
    [_, victim] = sorted(front.nodes, key=lambda node: front.carries(node.name))
    assert front.carries(victim.name) > 0
    victim.die()
    died.set()
    for stream in streams:
        stream.thread.join(2 * TIMEOUT_S)
        assert not stream.thread.is_alive(), front.logs()
    until(lambda: front.carries(victim.name) == 0)
    for client in subscribers:
        got = until_complete(client, streams)
        for stream in streams:
            all_numbers = range(stream.acknowledged)
            assert numbers(got, stream, 2) == list(all_numbers)[1::2]
            assert list(dict.fromkeys(numbers(got, stream, 1))) == list(all_numbers)[::2]
        if isinstance(client, MqttJs):
            resumed += client.resumed.queue
    assert resumed and all(resumed)
