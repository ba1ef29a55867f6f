"""The process of a node's agent, a child of the parent: it may have threads and wait for Redis, the parent may not.

    agent -> parent    report TYPE TEXT; opened (the values of the cluster); refused TEXT (this node may not join)
                       start WORKER TOKEN IN_STEP (replicas of Redis); stop WORKER MOVES (to another node);
                       kill WORKERS NUMBER; left (this node has left or is stopped)
                       places PLACES (of the workers whose place has changed: node.wires.place_of)
                       cluster OVERVIEW (figures.overview)
                       rules STAMP, with a descriptor (a new document of dynamic security); answer WORKER PID NUMBER
                       STATUS WHY (to look or write)
    parent -> agent    go (the listeners are open: join); serves WORKER TOKEN; ended WORKER TOKEN FAILED (before it has
                       served clients); killed NUMBER; leave; stop; lost WORKER TEXT (acknowledged messages)
                       ends WORKER COUNT TEXT (how the last of its processes has ended)
                       options VALUES (that all nodes should have alike)
                       figures WORKER TEXT (what a worker has noted about itself)
                       used STAMP (all workers that serve clients use that document); look WORKER PID NUMBER;
                       write WORKER PID NUMBER EXPECTED STAMP, with a descriptor

Workers have numbers from 0 here. The process ends with the channel, and then its lease ends, too.
"""

import os
import secrets
import select
import threading
import time
import traceback
from typing import NamedTuple

from mosq.auth.dynsec.document import covers
from mosq.cluster.agent import Agent
from mosq.cluster.alike import Likeness, unlike
from mosq.cluster.entries import Announcement
from mosq.cluster.errors import AwayError, RefusedError
from mosq.cluster.figures import Ends, overview, text_of_ends
from mosq.cluster.member import Member
from mosq.cluster.scripts import ends_field, loss_field, options_field, uses_field
from mosq.cluster.terms import Terms
from mosq.log_types import ERROR, NOTICE, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.document import First
    from mosq.cluster.address import Address
    from mosq.cluster.member import Where
    from mosq.cluster.registry import Facts, Registry
    from mosq.cluster.requests import View
    from mosq.server.node.lease import Lease
    from mosq.server.node.rules import Rules
    from mosq.server.workers.channel import Channel, Message

RUN_BYTES = 16


class Identity(NamedTuple):
    """Which node this is, and of which cluster."""

    address: "Address"          # of Redis
    cluster: str
    node: str
    secret: bytes
    announcement: Announcement
    first: "First | None" = None    # the files of dynamic security; None: this node does not use it


class NodeAgent:
    """The agent's process."""

    def __init__(self, identity: Identity, channel: "Channel", lease: "Lease") -> None:
        self._identity, self._channel, self._lease = identity, channel, lease
        self._run_name = secrets.token_hex(RUN_BYTES)
        self._terms = Terms()
        self._member: Member | None = None
        self._registry: Registry | None = None
        self._early: list[Message] = []         # messages of the parent that were not taken yet
        self._places: dict[int, Where | None] = {}      # that the parent knows
        self._unlike: set[str] = set()          # what was reported about the options of nodes
        self._kills = self._killed = 0          # numbers of the last `kill`, and of the last one that was done
        self._done = threading.Condition()
        self._sending = threading.Lock()
        self._rules: Rules | None = None
        self._until_s = 0.0             # the end of the lease, as the member has moved it last
        self._seen = self._used = ""    # stamps: of the document in Redis, at the last beat; of that which workers use

    def run(self) -> None:
        """Be the agent until the node has left, or the parent is gone."""
        try:
            opened = self._open()
            if opened is None:
                return
            self._send({"is": "opened", "workers": opened[1].workers, "key": opened[1].key.hex(), "id": opened[1].id,
                        "replicas": opened[1].replicas, "servers": opened[1].servers,
                        "lease_s": opened[1].terms.lease_s, **self._first_document()}, self._first_fds())
            if self._wait(None) != "go":
                return
            self._serve(*opened)
        except RefusedError as error:
            self._send({"is": "refused", "text": str(error)})
        except ImportError:
            from mosq.tools.extras import install_advice

            self._send({"is": "refused", "text": "a node of a cluster needs the package redis. To install it: "
                                                 f"{install_advice('cluster')}"})
        except Exception as error:      # the end of the channel ends the node, and systemd starts it again
            self._send({"is": "report", "type": ERROR, "text": f"Error: the agent of this node failed: {error!r}"})
            raise
        self._send({"is": "left"})

    # ---- before the node joins: one thread

    def _open(self) -> "tuple[Registry, Facts] | None":
        """Wait until Redis answers, and compare this node with the cluster. Return None if the parent wants no more.
        Raises RefusedError."""
        from mosq.cluster.registry import Registry

        me, shown = self._identity, ""
        while True:
            registry = Registry(me.address, me.cluster, me.node, self._run_name, self._terms, secret=me.secret)
            try:
                facts = registry.facts()
                registry.close()
                registry = Registry(me.address, me.cluster, me.node, self._run_name, facts.terms,
                                    replicas=facts.replicas, secret=me.secret)
                registry.open(facts.workers)
                for line in registry.check_server():
                    self._report(WARNING, line)
                self._open_rules(registry, facts)
            except RefusedError:
                raise
            except Exception as error:          # another one: an answer that makes no sense
                text = str(error) if isinstance(error, AwayError) else f"The client of Redis failed: {error!r}"
                if text != shown:
                    shown = text
                    self._report(WARNING, f"{text}. This node opens no listener until Redis answers.")
                registry.close()
            else:
                self._terms = facts.terms
                return registry, facts
            if self._wait(self._terms.retry_s) != "":
                return None

    def _open_rules(self, registry: "Registry", facts: "Facts") -> None:
        """Read the document of dynamic security. Raises RefusedError and AwayError."""
        from mosq.server.node.rules import Rules

        if self._rules is None:         # it remembers a first document that Redis has not confirmed
            self._rules = Rules(registry.twin(), facts.terms, self._report, self._send)
        self._rules.begin(self._identity.first)

    def _first_document(self) -> "Message":
        assert self._rules is not None
        return {"stamp": self._rules.stamp}

    def _first_fds(self) -> list[int]:
        assert self._rules is not None
        return [] if self._rules.document is None else [self._rules.document.fd]

    def _wait(self, limit_s: float | None) -> str:
        """Return what the parent asks for next, "stop" if it is gone; "" after the limit."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.poll(None if limit_s is None else 1000 * limit_s)
        self._early += [message for message, _ in self._channel.receive()]
        return str(self._early.pop(0)["do"]) if self._early else "stop" if self._channel.closed else ""

    # ---- a node

    def _serve(self, registry: "Registry", facts: "Facts") -> None:
        member = Member(self._identity.node, self._run_name, facts.workers, facts.terms, self,
                        announcement=self._identity.announcement, report=self._report, places=self._place)
        agent = Agent(registry, member, noted=self._noted, inspected=self._inspected, viewed=self._viewed)
        self._member, self._registry = member, registry
        assert self._rules is not None
        self._rules.start()
        threading.Thread(target=self._receive, args=(agent,), name="mosq-node-parent", daemon=True).start()
        agent.run()

    def _receive(self, agent: Agent) -> None:
        """Take the messages of the parent, in a thread of its own."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        for message in self._early:
            self._take(agent, message, [])
        while not self._channel.closed:
            poll.poll()
            for message, fds in self._channel.receive():
                self._take(agent, message, fds)
        agent.stop()
        with self._done:
            self._done.notify_all()

    def _take(self, agent: Agent, message: "Message", fds: list[int]) -> None:
        assert self._rules is not None
        what = message["do"]
        if what == "ended":
            agent.ended(message["worker"], message["token"], message["failed"])
        elif what == "serves":
            agent.serves(message["worker"], message["token"])
        elif what == "killed":
            with self._done:
                self._killed = message["number"]
                self._done.notify_all()
        elif what == "figures":
            agent.note(message["worker"], message["text"])
        elif what in ("look", "write"):
            self._rules.ask(message, fds)
        elif what == "used":
            self._used = message["stamp"]
            self._move_lease()
            if self._used and self._identity.first is not None:
                agent.keep(uses_field(self._identity.node), self._used.partition(".")[0])
        elif what == "lost":
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            agent.keep(loss_field(message["worker"]), f"{when} node {self._identity.node}: {message['text']}")
        elif what == "ends":
            ends = Ends(self._run_name, self._identity.node, message["count"], message["text"])
            agent.keep(ends_field(message["worker"]), text_of_ends(ends))
        elif what == "options":
            agent.keep(options_field(self._identity.node), Likeness(self._run_name, message["values"]).text)
        elif what == "leave":
            agent.leave()
        elif what == "stop":
            agent.stop()

    # ---- the workers, as Member calls them

    def start(self, worker: int, token: int, until_s: float) -> None:
        """Let the parent start a worker. Its end is that of the lease."""
        assert self._registry is not None
        self._send({"is": "start", "worker": worker, "token": token, "in_step": self._registry.in_step()})

    def stop(self, worker: int) -> None:
        """Let the parent stop a worker in good order."""
        assert self._member is not None
        self._send({"is": "stop", "worker": worker, "moves": self._member.others})

    def kill(self, workers: list[int]) -> None:
        """Let the parent kill workers, and wait for it. A parent that is stopped does not answer: then the kernel ends
        the workers with the lease."""
        self._kills += 1
        self._send({"is": "kill", "workers": workers, "number": self._kills})
        with self._done:
            self._done.wait_for(lambda: self._killed == self._kills or self._channel.closed, self._terms.margin_s / 2)

    def lease(self, until_s: float) -> None:
        """Move the end of the lease, as soon as the workers here use the document of dynamic security that Redis had at
        this beat. So no worker uses an older one for longer than a lease."""
        self._until_s = until_s
        self._move_lease()

    def _move_lease(self) -> None:
        assert self._rules is not None
        if self._seen == self._rules.damaged or covers(self._used, self._seen):
            self._lease.move(self._until_s)

    def _viewed(self, view: "View") -> None:
        assert self._rules is not None
        self._seen = view.document
        self._rules.seen(view.document)

    # ---- the parent

    def _noted(self, figures: dict[int, str], options: dict[str, str]) -> None:
        """Pass the state of the cluster on to the parent, and report in what its nodes differ now."""
        assert self._member is not None
        lines = set(unlike(options, self._member.runs()))
        for line in sorted(lines - self._unlike):
            self._report(WARNING, line)
        self._unlike = lines
        self._send({"is": "cluster", "overview": overview(self._member.nodes(), self._member.owners(), figures)})

    def _inspected(self, warning: str) -> None:
        """Report a setting of Redis that has become wrong, or right again."""
        self._report(WARNING if warning else NOTICE, warning or "The maxmemory-policy of Redis is noeviction again.")

    def _place(self, places: "dict[int, Where | None]") -> None:
        """Report which workers have another place now."""
        new = {worker: where for worker, where in places.items() if self._places.get(worker, ()) != where}
        self._places.update(new)
        if new:
            self._send({"is": "places", "places": new})

    def _report(self, kind: int, text: str) -> None:
        self._send({"is": "report", "type": kind, "text": f"Warning: {text}" if kind == WARNING else text})

    def _send(self, message: "Message", fds: "list[int] | tuple[()]" = ()) -> None:
        with self._sending:             # the keeper and the asker report
            self._channel.send(message, fds)


def load_redis() -> None:
    """Import the client of Redis with all that it needs later, if it is installed; the agent reports if it is not."""
    try:
        from mosq.cluster.registry import load_all
    except ImportError:
        import mosq.tools.extras  # noqa: F401
    else:
        load_all()


def run_agent(identity: Identity, channel: "Channel", lease: "Lease") -> None:
    """Be the agent, in a process of its own, until its end. Never returns."""
    status = 1
    try:
        NodeAgent(identity, channel, lease).run()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)
