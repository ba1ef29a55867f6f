"""A worker of a node: a worker as on one machine, with its store in Redis and with a lease. It also shows the state of
the cluster, which the parent sends: as topics below $SYS/broker/cluster/, and for /metrics."""

import os
import signal
from typing import NamedTuple

from mosq.log_types import ERROR
from mosq.records import KickCommand, PublishCommand
from mosq.server.node.store import open_in_redis
from mosq.server.node.together import NodeTogether
from mosq.server.workers.shared import Given
from mosq.server.workers.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq._redis import LogFiles
    from mosq.config.model import Config
    from mosq.engine import Engine
    from mosq.server.control import Control
    from mosq.server.node.lease import Lease
    from mosq.server.node.store import StorePlace
    from mosq.server.node.wires import Wires
    from mosq.server.workers.channel import Channel, Message
    from mosq.server.workers.shared import Shared
    from mosq.server.workers.whole import Whole

    Overview = dict[str, Any]


class NodeOf(NamedTuple):
    """The node of a worker."""

    cluster: str
    name: str
    lease: "Lease"
    lease_s: float


class NodeWorker(Worker):
    """One worker of a cluster, on this node."""

    _files: "LogFiles"

    def __init__(                       # parameters: of Worker, with the store
            self, place: int, channel: "Channel", shared: "Shared", covered: int, store: "StorePlace",
            wires: "Wires | None", token: int, node: NodeOf) -> None:
        super().__init__(place, channel, shared, covered)
        given, n = shared.given, len(shared.given.news)
        if wires is not None:           # all other workers are reached over the network
            news = [fd if other == place else -1 for other, fd in enumerate(given.news)]
            self._given = Given(given.key, [-1] * n, news, given.counts_fd, given.sockets, given.askings, given.http,
                                given.status_fd)
        self._store, self._wires, self._token, self._n, self._node = store, wires, token, n, node
        self._last: Overview = {}       # state of the cluster
        self._shown: dict[str, str] = {}        # topics below $SYS/broker/cluster/, and their payloads
        self.together = NodeTogether(channel)

    def open_store(self, engine: "Engine", config: "Config", report: "Callable[[int, str], None]") -> bool:
        """Open the store in Redis, and the port for other workers. Raises OSError."""
        if self._wires is not None:
            self.wired = self._wires.wired(config.worker - 1, self._token, self._n)
        self._files = self._store.take(config.worker, self._token)
        open_in_redis(engine, config, self._store, self._files, report)
        return True

    def begin(self, engine: "Engine", wake: "Callable[[], None]", own: "dict[str, Callable[[], Any]]") -> "Whole":
        """Report figures from now on. See Worker."""
        from mosq.server.node.figures import Reporter

        Reporter(engine, self.channel, self._token, self._node.lease_s)
        return super().begin(engine, wake, own)

    def _do(self, control: "Control", message: "Message", fds: list[int]) -> None:
        if message["do"] == "move":     # the end as by SIGTERM, but its clients learn that others serve them
            control.engine.moves()
            os.kill(os.getpid(), signal.SIGTERM)
        elif message["do"] == "cluster":
            self._show(control, message["overview"])
        elif message["do"] == "rules":
            self._take_document(control, message, fds[0])
        else:
            super()._do(control, message, fds)

    def _take_document(self, control: "Control", message: "Message", fd: int) -> None:
        """Use a new document of dynamic security. A worker that cannot ends: it would go on with other rules."""
        from mosq.auth.dynsec.document import Document
        from mosq.auth.dynsec.shared import SharedCommands

        earlier, self.document = self.document, Document(message["stamp"], fd)
        commands = None if control.access is None else control.access.commands
        try:
            if isinstance(commands, SharedCommands):
                kicks = commands.take_document(self.document)
                if kicks:
                    control.engine.answer([KickCommand(list(kicks))])
        except Exception as error:
            control.log.report(ERROR, f"Error: A change of dynamic security cannot be taken: {error}.")
            self.channel.close()
            return
        if earlier is not None:
            earlier.close()
        self.channel.send({"is": "uses", "count": message["count"]})

    def _check(self, control: "Control", message: "Message") -> None:
        """Check a configuration. A change of dynamic security does not wait for its files."""
        from mosq.server.node.taking import Taking

        with Taking(self.channel, self._waiting, lambda rules, fds: self._take_document(control, rules, fds[0])):
            super()._check(control, message)

    def _apply(self, control: "Control") -> None:
        """Put a reload into force. It was prepared with the document of that time, and another one may have come."""
        from mosq.auth.dynsec.shared import SharedCommands

        super()._apply(control)
        commands = None if control.access is None else control.access.commands
        if isinstance(commands, SharedCommands) and self.document is not None:
            kicks = commands.take_document(self.document)
            if kicks:
                control.engine.answer([KickCommand(list(kicks))])

    def _show(self, control: "Control", overview: "Overview") -> None:
        """Publish what has changed in the state of the cluster."""
        self._last = {**overview, "cluster": self._node.cluster, "node": self._node.name}
        self.whole.overview = self._overview
        if not control.config.sys_interval:
            return
        new = topics_of(self._overview())
        changed = {name: new.get(name, "") for name in self._shown.keys() | new.keys()
                   if self._shown.get(name) != new.get(name)}
        self._shown = new
        control.engine.answer([PublishCommand(f"$SYS/broker/cluster/{name}", text.encode(), 2, True, here=True)
                               for name, text in sorted(changed.items())])

    def _overview(self) -> "Overview":
        """Return the state of the cluster, as the parent has sent it last, and the lease as of now."""
        return {**self._last, "lease_s": self._node.lease.left_s}

    def alive(self) -> None:
        """Report that the loop works. A worker that has lost its store ends, and the agent starts it again. The parent
        logs why: the line of the engine about an earlier error of Redis would be the only one."""
        if self._files.ended:
            self.channel.send({"is": "failed", "text": self._files.why_ended, "wrong_config": False, "store": True})
            os.kill(os.getpid(), signal.SIGKILL)
        super().alive()


def topics_of(overview: "Overview") -> dict[str, str]:
    """Return the topics below $SYS/broker/cluster/ and their payloads. docs/cluster.md has the list."""
    workers, lags = overview["workers"], overview["lag_ms"]
    here = workers.count(overview["node"])
    return {
        "name": overview["cluster"], "node": overview["node"],
        "nodes/count": str(sum(state != "silent" for state in overview["nodes"].values())),
        **{f"nodes/{name}/state": state for name, state in overview["nodes"].items()},
        "workers/count": str(len(workers)), "workers/here": str(here),
        "workers/elsewhere": str(sum(name is not None for name in workers) - here),
        **{f"workers/{place + 1}/node": "-" if name is None else name for place, name in enumerate(workers)},
        **{f"workers/{worker}/lag": f"{lag_ms / 1000:g}" for worker, lag_ms in lags.items()},
        **{f"workers/{worker}/clients": str(count) for worker, count in overview["clients"].items()},
        "clients/connected": str(overview["counts"]["clients"]), "clients/total": str(overview["counts"]["sessions"]),
        "subscriptions/count": str(overview["counts"]["subscriptions"]),
        "lease/left": f"{overview['lease_s']:.1f}",
        "links/up": str(overview["links_up"]), "links/down": str(overview["links_down"]),
    }
