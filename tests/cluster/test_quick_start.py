"""Type the commands of docs/cluster.md: three nodes behind HAProxy, with three servers of Redis and Sentinels, all at loopback addresses.

Each machine of the page is a folder with its /etc and /var. Installing programs and starting services are left out; the test then starts
the programs with the files that the commands have written.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mosq.tools.tied import tied
from tests.cluster.haproxy import Haproxy
from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.workers.case import until

pytestmark = pytest.mark.part("front")

PAGE = ROOT / "docs/cluster.md"
WORDS = {"192.0.2.": "127.0.2.", "mosq cluster": f"{sys.executable} -m mosq cluster", "chgrp mosq ": ": "}
NODES = {"192.0.2.11": "a", "192.0.2.12": "b", "192.0.2.13": "c"}
PASSWORD, SECRET = "p" * 32, "s" * 64
LEFT_OUT = ("apt-get ", "systemctl ", "python3 -m pip ")


def blocks() -> list[str]:
    section = PAGE.read_text().split("## Three nodes behind HAProxy in ten minutes\n")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


class Site:
    """The machines of the page. `ports`: instead of those of the page."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        wires = free_port()
        self.ports = {"1883": str(free_port()), "7883": str(wires), "6379": str(free_port()), "26379": str(free_port())}
        self.machines: set[str] = set()

    def at(self, machine: str) -> Path:
        return self.folder / machine

    def typed(self, block: str) -> str:
        """Type a block on each of its machines; return the output."""
        first, *lines = block.splitlines()
        text = "\n".join(line for line in lines if not line.startswith((*LEFT_OUT, "HERE=")))
        for word, other in WORDS.items():
            text = text.replace(word, other)
        text = re.sub(r"\b(1883|7883|26379|6379)\b", lambda found: self.ports[found[0]], text)
        text = re.sub(r"(127\.0\.2\.1[1-3])(?=[,/])", rf"\1:{self.ports['26379']}", text)
        output = ""
        for machine in re.findall(r"192\.0\.2\.\d+", first):
            self._prepare(machine)
            here = re.sub(r"(?<![\w.])/(etc|var)/", lambda found: f"{self.at(machine)}/{found[1]}/", text)  # noqa: B023
            done = subprocess.run(["bash", "-euc", here], cwd=ROOT / "conf/haproxy", capture_output=True, text=True, timeout=120, check=False, env={
                **os.environ, "PYTHONPATH": str(ROOT), "HERE": machine.replace("192.0.2", "127.0.2"), "NODE": NODES.get(machine, ""),
                "PASSWORD": PASSWORD, "SECRET": SECRET})
            assert done.returncode == 0, f"{here}\n{done.stdout}{done.stderr}"
            output += done.stdout
        return output

    def _prepare(self, machine: str) -> None:
        """Make the folders and files that packages of Debian have."""
        if machine in self.machines:
            return
        self.machines.add(machine)
        for name in ("etc/redis", "etc/mosq/conf.d", "etc/haproxy", "var/lib/redis", "var/lib/mosq"):
            (self.at(machine) / name).mkdir(parents=True)
        (self.at(machine) / "etc/redis/redis.conf").write_text(f"port {self.ports['6379']}\ndir {self.at(machine)}/var/lib/redis\nbind 127.0.0.1\n")

    def redis(self, machine: str, name: str, *more: str) -> None:
        file = self.at(machine) / f"etc/redis/{name}.conf"
        with (self.at(machine) / f"{name}.log").open("wb") as out:
            process = subprocess.Popen(tied(["redis-server", str(file), *more]), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)

    def ask(self, machine: str, port: str, command: str, password: bool = True) -> str:
        words = ["redis-cli", "-h", machine.replace("192", "127", 1), "-p", self.ports[port], *(["-a", PASSWORD] if password else []), *command.split()]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout

    def node(self, machine: str) -> Broker:
        """Start the service: the configuration of the package with that of the page."""
        place = self.at(machine)
        text = (ROOT / "packaging/mosq.conf").read_text().replace("user mosq\n", "user root\n").replace("log_dest file /var/log/mosq/mosq.log\n", "")
        node = Broker("listener 1\n")
        node.config.write_text(re.sub(r"/(etc|var)/", lambda found: f"{place}/{found[1]}/", text))
        conf = place / "etc/mosq/conf.d/cluster.conf"
        conf.write_text(conf.read_text().replace(f"listener {self.ports['1883']}\n", f"listener {self.ports['1883']} {machine.replace('192', '127', 1)}\n"))
        self.stack.callback(lambda: (node.die() if node.alive() else None, node.close()))
        node.spawn()
        return node


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def test_the_commands_of_the_page_make_a_cluster(site: Site) -> None:
    redis, sentinel, node, create, restart, haproxy, status = blocks()
    site.typed(redis)
    for machine in NODES:
        site.redis(machine, "redis")
    until(lambda: site.ask("192.0.2.11", "6379", "INFO replication").count("state=online") == 2, lambda: site.ask("192.0.2.11", "6379", "INFO replication"))
    site.typed(sentinel)
    for machine in NODES:
        site.redis(machine, "sentinel", "--sentinel")
    until(lambda: all("num-slaves\n2\n" in site.ask(machine, "26379", "SENTINEL MASTER mosq", password=False) and
                      "num-other-sentinels\n2\n" in site.ask(machine, "26379", "SENTINEL MASTER mosq", password=False) for machine in NODES))
    site.typed(node)
    assert "The cluster mosq has 6 workers and a lease of 4 s, and 1 of 2 replicas of Redis confirm a message." in site.typed(create)
    assert [line for line in restart.splitlines() if not line.startswith("#")] == ["systemctl restart mosq"]
    nodes = {machine: site.node(machine) for machine in NODES}
    until(lambda: all(one.log().count("serves clients") >= 2 for one in nodes.values()), lambda: "".join(one.log() for one in nodes.values()))
    site.typed(haproxy)
    assert (site.at("192.0.2.31") / "etc/haproxy/haproxy.cfg").read_text() == (ROOT / "conf/haproxy/haproxy.cfg").read_text()
    front = site.stack.enter_context(Haproxy([(machine.replace("192", "127", 1), int(site.ports["1883"]), 1) for machine in NODES]))
    front.wait_up("a", "b", "c")
    subscriber, publisher = Wire(front.port), Wire(front.port)
    for client in (subscriber, publisher):
        site.stack.callback(client.close)
    for client, name in ((subscriber, "sub"), (publisher, "pub")):
        client.send(Connect(name))
        assert isinstance(client.read_packet(), Connack)
    subscriber.send(Subscribe(1, (("test", 1),)))
    assert isinstance(subscriber.read_packet(), Suback)
    publisher.send(Publish("test", b"hello", 1, 1))
    assert isinstance(publisher.read_packet(), Puback)
    got = subscriber.read_packet()
    assert isinstance(got, Publish) and got.payload == b"hello"
    shown = site.typed(status)
    assert all(re.search(rf"^{name} +lives ", shown, re.MULTILINE) for name in "abc") and "! " not in shown, shown
