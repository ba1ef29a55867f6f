"""The parent of a node: of the workers of a cluster, it runs those that its agent asks for.

    agent starts -> Redis answers, the cluster fits -> listen -> go -> start, stop and kill workers ... SIGTERM -> leave

It differs from a parent of one machine in three points: the agent decides which workers start; a worker that has ended
starts again only when the agent has a new token for it; SIGTERM gives the workers to other nodes first. A second
SIGTERM, or LEAVE_S, ends all at once; then others take the workers after the lease.
"""

import os
import select
import signal
import socket
import time

from mosq.auth.dynsec.document import Document, first_of
from mosq.cluster.address import parse_address
from mosq.cluster.entries import PORT_MAX, Announcement
from mosq.cluster.secret import read_secret
from mosq.config.cluster import address_of, listener_of
from mosq.config.plugin import all_plugins
from mosq.engine import continue_when_parent_ends
from mosq.log_types import ERROR, INFORMATION, NOTICE, WARNING
from mosq.server import process, signals
from mosq.server.control import EXIT_CANNOT_START, EXIT_CONFIG, EXIT_OK, CannotStartError
from mosq.server.handover import has_stores
from mosq.server.node.agent import Identity, load_redis, run_agent
from mosq.server.node.documents import Documents
from mosq.server.node.doors import Doors
from mosq.server.node.lease import Lease
from mosq.server.node.likeness import values_of
from mosq.server.node.slot import NodeSlot
from mosq.server.node.store import StorePlace
from mosq.server.node.wires import Wires, address_text, own_host
from mosq.server.node.worker import NodeOf, NodeWorker
from mosq.server.storage import store_root
from mosq.server.workers.channel import channel_pair
from mosq.server.workers.order import Order
from mosq.server.workers.parent import STOP_S, Parent, serve_parent
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.config.model import Config
    from mosq.server.signals import Signals
    from mosq.server.workers.channel import Channel, Message
    from mosq.server.workers.slot import Slot
    from mosq.server.workers.worker import Worker

LEAVE_S = 20.0                  # from SIGTERM until the workers that have not moved are ended
NAME_S = 1.0                    # between two questions for the address of this node
SHUT_S = 1.0                    # from the end of the last worker here until clients are refused
AGENT_NAME = "mosq: agent"
LOST_OPERATIONS = "Redis has lost operations that it had confirmed"     # words of log_ended in cext/redis/files.pyx


def serve_node(config: "Config", *, taken: "Signals", quiet: bool = False, verbose: bool = False,
               background: bool = False, load: "Callable[[], Config]") -> int:
    """Run a node of a cluster until it is stopped; return the exit status."""
    return serve_parent(NodeParent(config, taken, quiet, verbose, load), taken, background)


class NodeParent(Parent):
    """The parent of the workers that one node of a cluster has."""

    slots: "list[NodeSlot]"             # type: ignore[assignment]  # one for each worker of the cluster

    def __init__(self, config: "Config", taken: "Signals", quiet: bool, verbose: bool,
                 load: "Callable[[], Config]") -> None:
        super().__init__(config, taken, quiet, verbose, lambda: self._in_cluster(load()))
        self._lease = Lease()
        self._agent: Channel | None = None
        self._agent_pid = 0
        self._left = False              # whether the agent has left the cluster, or cannot be its node
        self._leave_s: float | None = None      # until when this node may leave; None: it stays
        self._kills: list[tuple[int, set[int]]] = []    # numbers of kills, and the places that have not ended
        self._served = False            # whether a worker has served clients
        self._lease_s = 0.0
        self._doors = Doors(())
        self._http_doors = Doors(())    # worker 1 serves HTTP
        self._empty_s: float | None = None      # since when no worker runs here; None: one runs, or the doors are shut
        self._wires: Wires | None = None        # None: the workers are linked on this machine only
        self._overview: dict[str, Any] | None = None    # of the cluster, as the agent has sent it last
        self._places: dict[int, Any] = {}       # of all workers: host, port and token; None: no process
        self._store: StorePlace
        self._documents: Documents

    def _in_cluster(self, config: "Config") -> "Config":
        """Return the configuration with what the cluster has fixed. Mosquitto's file cannot be written from Redis."""
        config.cluster_local, config.mosquitto_db = len(self.slots), False
        return config

    # ---- start

    def _key(self) -> bytes:
        """Start the agent, and wait until Redis answers and has this cluster. Raises OSError, ValueError and
        CannotStartError."""
        config = self.config
        assert config.cluster_node is not None
        secret = b"" if config.cluster_secret_file is None else read_secret(config.cluster_secret_file)
        at = listener_of(config)
        host = "" if at is None else self._own_host(at[0])
        address = "" if at is None else address_text(host, at[1])
        redis = parse_address(config.cluster or "", config.cluster_password_file)
        announcement = Announcement(config.cluster_capacity, version=VERSION, address=address)
        first = first_of(all_plugins(config))
        self._start_agent(Identity(redis, config.cluster_name, config.cluster_node, secret, announcement, first))
        opened, fds = self._wait_opened()
        self.slots = [NodeSlot(place) for place in range(opened["workers"])]
        self._documents = Documents(self.slots, opened["lease_s"], Document(opened["stamp"], fds[0]) if fds else None,
                                    self._tell)
        self.document = self._documents.document
        self._order = Order(self.slots)
        self._in_cluster(config)
        left = store_root(config)
        if has_stores(left):
            self.log.report(WARNING, f"Warning: The sessions and messages in {left} are not read: those of a cluster "
                                     "are in Redis.")
        if at is not None:
            if at[1] + len(self.slots) - 1 > PORT_MAX:
                raise CannotStartError(f"Error: Each of the {len(self.slots)} workers needs a port of its own, from "
                                       "cluster_listener on. Expected a port up to "
                                       f"{PORT_MAX - len(self.slots) + 1}.", EXIT_CONFIG)
            self._wires = Wires(opened["id"], secret, host, at[1])
        self._lease_s = opened["lease_s"]
        self._store = StorePlace(redis, config.cluster_name, opened["id"], opened["replicas"],
                                 opened["servers"] - 1)
        self.log.report(INFORMATION, f"Node {config.cluster_node} of the cluster {config.cluster_name} at "
                                     f"{self._store.address}: {len(self.slots)} workers, lease {self._lease_s:g} s, "
                                     f"{opened['replicas']} of {opened['servers'] - 1} replicas of Redis confirm.")
        return bytes.fromhex(opened["key"])

    def _own_host(self, named: str) -> str:
        """Return the address of this node for other nodes. While no name server answers, wait as for Redis. Raises
        CannotStartError, and Stopped for a signal."""
        waits = False
        while True:
            try:
                return own_host(named, address_of(self.config))
            except OSError as error:
                if named and not (isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN):
                    raise _unknown_host(error.strerror or str(error)) from None
                if not waits:
                    self.log.report(WARNING, "Warning: Unable to find the address of this node for other nodes: "
                                             f"{error.strerror}. This node opens no listener until it is found.")
                waits = True
            except ValueError as error:
                raise _unknown_host(str(error)) from None
            if select.select([self.signals.read_fd], [], [], NAME_S)[0] and any(
                    number in signals.STOP for number in self.signals.taken()):
                raise signals.Stopped

    def _start_agent(self, identity: Identity) -> None:
        ours, theirs = channel_pair()
        before = signals.block_all()    # the agent keeps them blocked: it ends with the channel
        try:
            pid = os.fork()
            if pid == 0:
                ours.close()
                process.name_process(AGENT_NAME, arguments=True)
                load_redis()        # perhaps only root can read the folder of Python's packages
                if self._user is not None:
                    process.become(self._user)
                continue_when_parent_ends()
                run_agent(identity, theirs, self._lease)
        finally:
            signals.unblock(before)
        theirs.close()
        self._agent, self._agent_pid = ours, pid

    def _wait_opened(self) -> "tuple[Message, list[int]]":
        """Return the values of the cluster, with the document of dynamic security if there is one. Raises
        CannotStartError, and Stopped for a signal."""
        assert self._agent is not None
        poll = select.poll()
        for fd in (self._agent.fileno(), self.signals.read_fd):
            poll.register(fd, select.POLLIN)
        while True:
            poll.poll()
            for message, fds in self._agent.receive():
                if message["is"] == "opened":
                    return message, fds
                if message["is"] == "refused":
                    raise CannotStartError(refused(message), EXIT_CONFIG)
                self._take(message, 0.0)
            if any(number in signals.STOP for number in self.signals.taken()):
                raise signals.Stopped
            if self._agent.closed:
                raise CannotStartError("Error: The agent of this node has ended.")

    def _begin(self) -> bool:
        """Join the cluster: the agent asks for workers from now on. Until one starts here, clients are refused."""
        self._doors = Doors(one for opened in self._shared.sockets for one in opened)
        self._http_doors = Doors(one for bound in self._shared.http for one in bound.sockets)
        self._doors.shut()
        self._http_doors.shut()
        self._tell({"do": "go"})
        self._documents.look(0.0)
        self._tell({"do": "options", "values": values_of(self.config)})
        return True

    def _apply(self, config: "Config") -> None:
        super()._apply(config)
        self._tell({"do": "options", "values": values_of(config)})

    def _serve_as(self, place: int, channel: "Channel", before: "set[int]") -> int:
        self._lease.obey(self._lease_s)
        return super()._serve_as(place, channel, before)

    def _let_go(self) -> None:
        super()._let_go()
        if self._agent is not None:
            self._agent.close()

    def _worker(self, place: int, channel: "Channel") -> "Worker":
        made = NodeWorker(place, channel, self._shared, self._covered, self._store, self._wires,
                          self.slots[place].next_token,
                          NodeOf(self.config.cluster_name, str(self.config.cluster_node), self._lease, self._lease_s))
        made.document = self.document
        return made

    def _fork(self, slot: "Slot") -> None:
        self._doors.open()
        if slot.place == 0:
            self._http_doors.open()
        assert isinstance(slot, NodeSlot)
        slot.uses = self._documents.count
        super()._fork(slot)
        self.log.report(INFORMATION, f"{slot.name} starts here (process {slot.pid}).")

    def _link(self, slot: "Slot") -> None:
        if self._wires is None:
            super()._link(slot)
        else:
            self._tell_places(slot, self._places)

    def _unlink(self, slot: "Slot") -> None:
        if self._wires is None:
            super()._unlink(slot)
        else:
            self._moved({slot.place: None})

    def _moved(self, places: "dict[int, Any]") -> None:
        """Let the workers here know where others are now."""
        self._places.update(places)
        for slot in self.slots:
            if slot.ready:
                self._tell_places(slot, places)

    def _tell_places(self, slot: "Slot", places: "dict[int, Any]") -> None:
        if slot.channel is not None:
            slot.channel.send({"do": "places", "places": places})

    def _report_ready(self, slot: "Slot") -> None:
        assert isinstance(slot, NodeSlot)
        self._served = slot.served = True
        self._tell({"do": "serves", "worker": slot.place, "token": slot.token})
        self._tell_overview(slot)
        self.log.report(INFORMATION, f"{slot.name} (process {slot.pid}) serves clients.")

    def _take_figures(self, slot: "Slot", text: str) -> None:
        self._tell({"do": "figures", "worker": slot.place, "text": text})

    def _take_of_document(self, slot: "Slot", message: "Message", fds: list[int]) -> None:
        assert isinstance(slot, NodeSlot)
        self._documents.asked(slot, message, fds)

    def _tell_overview(self, slot: "Slot") -> None:
        if self._overview is not None and slot.channel is not None and slot.channel.is_read():
            slot.channel.send({"do": "cluster", "overview": self._overview})

    # ---- a turn

    def _turn(self, starting: bool = False) -> bool:
        begun_s = time.monotonic()
        goes_on = super()._turn(starting)       # it reads what the workers have sent, and a reload, which may last
        now_s = time.monotonic()
        assert self._agent is not None
        for message, fds in self._agent.receive():
            if message["is"] == "rules":
                self._documents.came(message["stamp"], fds[0], now_s)
                self.document = self._documents.document
            else:
                self._take(message, now_s)
        if self._left:
            return False
        if self._agent.closed:
            self.log.report(ERROR, "Error: The agent of this node has ended.")
            self._status = EXIT_CANNOT_START
            return False
        for slot in self.slots:
            self._look_at_end(slot, now_s)
        self._documents.look(begun_s)
        self._answer_kills()
        self._look_at_doors(now_s)
        if self._leave_s is not None and now_s >= self._leave_s:
            self.log.report(WARNING, f"Warning: This node could not leave within {LEAVE_S:g} seconds. "
                                     f"{what_remains(self.slots)}")
            return False
        return goes_on and self._status == EXIT_OK

    def _descriptors(self) -> list[int]:
        return [*super()._descriptors(), *([] if self._agent is None else [self._agent.fileno()])]

    def _wait_s(self, now_s: float) -> float:
        due = [self._leave_s, self._documents.due_s, None if self._empty_s is None else self._empty_s + SHUT_S]
        due += [one for slot in self.slots for one in (slot.stop_s, slot.report_s)]
        return max(0.0, min([super()._wait_s(now_s), *(one - now_s for one in due if one is not None)]))

    def _look_at_doors(self, now_s: float) -> None:
        """Refuse clients when there is no worker here that could accept them, so that they try another node."""
        if not self.slots[0].pid:
            self._http_doors.shut()
        if not self._doors.is_open or any(slot.pid for slot in self.slots):
            self._empty_s = None
        elif self._empty_s is None:
            self._empty_s = now_s
        elif now_s >= self._empty_s + SHUT_S:
            self._doors.shut()
            self._empty_s = None
            self.log.report(NOTICE, "No worker runs here. The listeners refuse clients until one starts.")

    def _look_at_end(self, slot: NodeSlot, now_s: float) -> None:
        """Kill a worker that does not stop, and report an end whose pause is over."""
        if slot.stop_s is not None and slot.pid and now_s >= slot.stop_s:
            slot.killed_for, slot.stop_s = f"did not stop within {STOP_S:g} seconds", now_s + STOP_S
            slot.kill(signal.SIGKILL)
        if slot.report_s is not None and now_s >= slot.report_s:
            slot.report_s = None
            self._tell_ended(slot, slot.token)

    def _ended(self, slot: "Slot", how: str, now_s: float) -> None:
        assert isinstance(slot, NodeSlot)
        if slot.failure is not None and slot.failure["wrong_config"] and not self._served:
            self._status = EXIT_CONFIG      # the worker has reported why
        if slot.failure is not None and slot.failure.get("store"):
            self.log.report(ERROR, f"Error: {slot.name} has lost its store: {slot.failure['text']}.")
            if LOST_OPERATIONS in slot.failure["text"]:
                self._tell({"do": "lost", "worker": slot.place, "text": slot.failure["text"]})
        if any(slot.place in places for _, places in self._kills) or slot.next_token:
            self.log.report(NOTICE, f"{how}.")
            slot.due_s = now_s if slot.next_token else None
        elif slot.stop_s is not None:
            self.log.report(INFORMATION, f"{how}. It has stopped here.")
            self._tell_ended(slot, slot.token)
        else:
            pause_s = slot.wait_s(now_s)
            slot.report_s = now_s + pause_s
            why = ": the lease of this node is over" if self._lease.is_over else ""
            self.log.report(ERROR, f"Error: {how}{why}. It may start again in {pause_s:g} seconds.")
            if not why:
                self._tell({"do": "ends", "worker": slot.place, "count": slot.ends, "text": how})
        slot.stop_s = None

    # ---- the agent

    def _tell(self, message: "Message", fds: "list[int] | tuple[()]" = ()) -> None:
        if self._agent is not None:
            self._agent.send(message, fds)

    def _tell_ended(self, slot: NodeSlot, token: int) -> None:
        self._tell({"do": "ended", "worker": slot.place, "token": token, "failed": not slot.served})

    def _take(self, message: "Message", now_s: float) -> None:
        """Do what the agent asks for."""
        what = message["is"]
        if what == "report":
            self.log.report(message["type"], message["text"])
        elif what == "refused":
            self.log.report(ERROR, refused(message))
            self._status, self._left = EXIT_CONFIG, True
        elif what == "left":
            self._left = True
        elif what == "places":
            self._moved({int(worker): where for worker, where in message["places"].items()})
        elif what == "start":
            self._store = self._store._replace(in_step=message["in_step"])
            self._start_worker(self.slots[message["worker"]], message["token"], now_s)
        elif what == "stop":
            self._stop_worker(self.slots[message["worker"]], message["moves"], now_s)
        elif what == "answer":
            self._documents.answered(message)
        elif what == "cluster":
            self._overview = message["overview"]
            for slot in self.slots:
                if slot.ready:
                    self._tell_overview(slot)
        elif what == "kill":
            self._kill_workers(message["number"], message["workers"])

    def _start_worker(self, slot: NodeSlot, token: int, now_s: float) -> None:
        if slot.pid:
            slot.killed_for = "has an earlier token"
            slot.kill(signal.SIGKILL)
        slot.shall_start(token, now_s)

    def _stop_worker(self, slot: NodeSlot, moves: bool, now_s: float) -> None:
        waits = slot.next_token or slot.token
        slot.shall_not_start()
        if slot.pid:
            slot.stop_s = now_s + STOP_S
            if moves and slot.ready and slot.channel is not None:
                slot.channel.send({"do": "move"})
            else:
                slot.kill(signal.SIGTERM)
        else:
            self._tell_ended(slot, waits)

    def _kill_workers(self, number: int, places: list[int]) -> None:
        for place in places:
            slot = self.slots[place]
            slot.shall_not_start()
            slot.killed_for = "may not run here any more"
            slot.kill(signal.SIGKILL)
        self._kills.append((number, set(places)))
        self._answer_kills()

    def _answer_kills(self) -> None:
        while self._kills and not any(self.slots[place].pid for place in self._kills[0][1]):
            self._tell({"do": "killed", "number": self._kills.pop(0)[0]})

    # ---- stop

    def _signals(self) -> bool:
        goes_on = super()._signals()
        if goes_on or self._status != EXIT_OK:
            return goes_on
        if self._leave_s is not None:   # the second signal
            self.log.report(WARNING, f"Warning: This node ends before it has left. {what_remains(self.slots)}")
            return False
        self.log.report(NOTICE, "This node leaves the cluster: its workers go to other nodes, if there are some.")
        self._leave_s = time.monotonic() + LEAVE_S
        self._tell({"do": "leave"})
        return True

    def _stop(self) -> int:
        status = super()._stop()
        self._end_agent()
        return status

    def _end_agent(self) -> None:
        """End the agent; it has no worker any more."""
        if self._agent is None:
            return
        self._agent.close()
        self._agent = None
        poll = select.poll()
        fd = os.pidfd_open(self._agent_pid)
        poll.register(fd, select.POLLIN)
        if not poll.poll(1000 * STOP_S):
            os.kill(self._agent_pid, signal.SIGKILL)    # it waits for Redis, or is stopped
        os.waitpid(self._agent_pid, 0)
        os.close(fd)

    def close(self) -> None:
        """Close what is shared, and end the agent."""
        super().close()
        self._end_agent()


def _unknown_host(why: str) -> CannotStartError:
    return CannotStartError(f"Error: Unable to find the address of this node for other nodes: {why}. Name it: "
                            "cluster_listener PORT ADDRESS.", EXIT_CONFIG)


def what_remains(slots: "list[NodeSlot]") -> str:
    """Return what a node that could not leave still has, as a sentence of the log."""
    numbers = [str(slot.place + 1) for slot in slots if slot.is_here]
    if not numbers:
        return "No worker runs here. After the lease, other nodes may start the workers that it had."
    return (f"{'Worker' if len(numbers) == 1 else 'Workers'} {', '.join(numbers)} did not move, and "
            f"{'ends' if len(numbers) == 1 else 'end'} now. After the lease, other nodes may start "
            f"{'it' if len(numbers) == 1 else 'them'}.")


def refused(message: "Message") -> str:
    """Return why this node may not be one of the cluster, as a line of the log."""
    text = str(message["text"])
    return f"Error: {text[:1].upper()}{text[1:]}."
