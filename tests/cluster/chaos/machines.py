"""Six machines of a cluster, as network namespaces: three nodes, and three servers of Redis with a Sentinel beside each.

Between the machines, packets pass a program (switch.py) that can delay, lose and cut them. Clients and the test itself reach each
machine over another network, which has no faults.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mosq.cluster.address import Address
from mosq.cluster.entries import Entry, entry_of
from mosq.cluster.errors import AwayError
from mosq.cluster.registry import Registry
from mosq.cluster.terms import Terms
from mosq.tools.tied import tied
from tests.cluster.chaos.switch import FIRST, NETWORK
from tests.harness.broker import ROOT, Broker, command
from tests.harness.faults import Faults, until
from tests.harness.namespaces import LOOPBACK, namespaces
from tests.harness.redis import RedisServer

NAME = "mqchaos"                # of the namespaces
NODES, SERVERS = 3, 3
WORKERS = 6
REPLICAS = 1                    # must confirm a message
MASTER = "mosq"                 # the name under which the Sentinels know Redis
PORT, WIRES_PORT, REDIS_PORT, SENTINEL_PORT = 1883, 7883, 6379, 26379
DOWN_AFTER_MS, FAILOVER_MS = 1500, 4000
SECRET = b"s" * 32
# queues without a limit, since a message dropped by a limit would count as lost
CONFIG = """listener {port} {listens}
user root
allow_anonymous true
persistence true
durability group
max_queued_messages 0
queue_memory 100000
cluster redis+sentinel://{sentinels}/{master}
cluster_node {name}
cluster_listener {wires} {inner}
cluster_secret_file {{dir}}/secret
log_type error
log_type warning
log_type notice
log_type information
log_timestamp true
log_timestamp_format %H:%M:%S
log_dest stdout
"""


class Machine:
    """One namespace. `address`: for clients and the test; `inner`: for the other machines; `before`: words before a command."""

    def __init__(self, index: int, address: str, before: list[str]) -> None:
        self.number, self.address, self.before = FIRST + index, address, before
        self.inner = f"{NETWORK}.{self.number}"
        self.space = before[-1]


def machines_of(addresses: list[str], before: list[list[str]]) -> list[Machine]:
    """Return the machines of these namespaces."""
    return [Machine(index, address, words) for index, (address, words) in enumerate(zip(addresses, before, strict=True))]


class Switch:
    """The program that forwards packets between the machines."""

    def __init__(self, machines: list[Machine]) -> None:
        self.process = subprocess.Popen(tied([sys.executable, "-m", "tests.cluster.chaos.switch", *(m.space for m in machines)]), cwd=ROOT,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._wait("ready")

    def _wait(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == f"{word}\n", line

    def rules(self, rules: list[tuple[int, int, bool, float, float]]) -> None:
        """Set all rules, as switch.py describes them."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(rules) + "\n")
        self.process.stdin.flush()
        self._wait("done")

    def close(self) -> None:
        with self.process as process:
            process.kill()


class Server(RedisServer):
    """A Redis on its machine. `of`: it begins as a replica of that one."""

    def __init__(self, machine: Machine, of: Machine | None = None) -> None:
        super().__init__("bind 0.0.0.0", "protected-mode no", f"replica-announce-ip {machine.inner}",
                         *([] if of is None else [f"replicaof {of.inner} {REDIS_PORT}"]))
        self.machine, self.host, self.before, self.port = machine, machine.address, tuple(machine.before), REDIS_PORT

    def is_primary(self) -> bool:
        return b"role:master" in self.ask("INFO replication")

    def follow(self, other: Server) -> None:
        """Let the next start be that of a replica."""
        with self.conf.open("a") as conf:
            conf.write(f"replicaof {other.machine.inner} {REDIS_PORT}\n")

    def replicas(self) -> int:
        return self.ask("INFO replication").count(b"state=online")


class Sentinel(RedisServer):
    """A Sentinel on the machine of a server."""

    defaults = ()
    arguments = ("--sentinel",)

    def __init__(self, machine: Machine, primary: Machine) -> None:
        super().__init__("bind 0.0.0.0", "protected-mode no", f"sentinel announce-ip {machine.inner}",
                         f"sentinel monitor {MASTER} {primary.inner} {REDIS_PORT} 2",
                         f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
                         f"sentinel failover-timeout {MASTER} {FAILOVER_MS}")
        self.host, self.before, self.port = machine.address, tuple(machine.before), SENTINEL_PORT

    def primary(self) -> str:
        """Return the address of the primary; empty: this Sentinel does not answer."""
        words = self.ask(f"SENTINEL GET-MASTER-ADDR-BY-NAME {MASTER}").decode().split("\r\n")
        return words[2] if len(words) > 2 else ""

    def knows_all(self) -> bool:
        return (self.ask(f"SENTINEL REPLICAS {MASTER}").startswith(b"*%d\r\n" % (SERVERS - 1))
                and self.ask(f"SENTINEL SENTINELS {MASTER}").startswith(b"*%d\r\n" % (SERVERS - 1)))


class Node(Broker):
    """A node of the cluster on its machine."""

    def __init__(self, name: str, machine: Machine, servers: list[Machine]) -> None:
        self.faults = Faults()
        sentinels = ",".join(f"{one.inner}:{SENTINEL_PORT}" for one in servers)
        super().__init__(CONFIG.format(port=PORT, listens=machine.address, sentinels=sentinels, master=MASTER, name=name, wires=WIRES_PORT,
                                       inner=machine.inner), command=[*machine.before, *command()], env=self.faults.env)
        self.name, self.machine = name, machine
        (self.dir / "secret").write_bytes(SECRET)
        (self.dir / "secret").chmod(0o600)

    def workers(self) -> dict[int, int]:
        """Return the processes of workers that have a name already: process -> number of the worker."""
        found = {}
        for pid in self.processes()[1:]:
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name.startswith("mosq: worker "):
                    found[pid] = int(name.rpartition(" ")[2])
        return found

    def pause(self) -> None:
        """Stop all processes."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        for pid in self.processes()[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in reversed(self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Cluster:
    """All machines, with what runs on them."""

    def __init__(self, machines: list[Machine], terms: Terms) -> None:
        places, first, others = machines[:NODES], machines[NODES], machines[NODES + 1:]
        self.switch = Switch(machines)
        self.servers = [Server(first), *(Server(machine, first) for machine in others)]
        self.sentinels = [Sentinel(machine, first) for machine in (first, *others)]
        self.nodes = [Node(name, machine, [first, *others]) for name, machine in zip("abc", places, strict=True)]
        self.machines, self.terms = machines, terms

    def start(self) -> None:
        for one in self.servers:
            one.start()
        until(lambda: self.servers[0].replicas() == SERVERS - 1)
        for sentinel in self.sentinels:
            sentinel.start()
        until(lambda: all(one.knows_all() for one in self.sentinels))
        registry = Registry(Address(((self.servers[0].host, REDIS_PORT),)), "mosq", "operator", "r", self.terms, replicas=REPLICAS, secret=SECRET)
        until(lambda: _created(registry))
        registry.close()
        for node in self.nodes:
            node.spawn()

    def primary(self) -> Server | None:
        """Return the server that all Sentinels take for the primary, if it is the primary."""
        named = {sentinel.primary() for sentinel in self.sentinels}
        found = [server for server in self.servers if named == {server.machine.inner} and server.is_primary()]
        return found[0] if found else None

    def table(self) -> dict[int, Entry]:
        """Return the entry of each worker; nothing if Redis does not answer."""
        primary = self.primary()
        words = [] if primary is None else primary.ask("HGETALL mosq:{mosq}:workers").decode().split("\r\n")[2:-1:2]
        return {int(worker): entry_of(entry) for worker, entry in zip(words[::2], words[1::2], strict=True)}

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.alive():
                node.resume()
                node.die()
            node.close()
            node.faults.close()
        for one in (*self.sentinels, *self.servers):
            if hasattr(one, "process"):
                one.close()
        self.switch.close()


@contextlib.contextmanager
def cluster(terms: Terms) -> Iterator[Cluster]:
    """Yield a cluster that has not started. Needs the right to make network namespaces."""
    with namespaces(NAME, NODES + SERVERS) as (own, addresses, before):
        assert own != LOOPBACK, "this machine allows no network namespaces: run this as root"
        made = Cluster(machines_of(addresses, before), terms)
        try:
            yield made
        finally:
            made.close()


def _created(registry: Registry) -> bool:
    with contextlib.suppress(AwayError):
        registry.create(WORKERS)
        return True
    return False
