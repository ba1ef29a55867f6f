"""All bridges of one broker: their policies, fed with what the data plane says, with answers of name servers and with
the time. Runs in the control plane's thread, which nothing here holds up.
"""

import collections
import socket
import time

from mosq.config.bridge import Bridge
from mosq.config.model import Config
from mosq.server.bridge.backoff import Backoff
from mosq.server.bridge.link import NEVER, Link
from mosq.server.bridge.lookup import Lookups
from mosq.server.bridge.spec import link_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine
    from mosq.server.bridge.lookup import Address


def specs_of(config: Config) -> "list[dict[str, Any]]":
    """What the data plane is to know of them."""
    return link_specs(config, socket.gethostname())


class Links:
    def __init__(self, engine: "Engine", say: "Callable[[int, str], None]", wake: "Callable[[], None]",
                 clock: "Callable[[], float]" = time.monotonic,
                 getaddrinfo: "Callable[..., Any]" = socket.getaddrinfo) -> None:
        self.engine, self.say, self.now_s = engine, say, clock
        self.lookups = Lookups(wake, getaddrinfo)
        self.find, self.try_one = self.lookups.find, self.lookups.try_one
        self.links: dict[str, Link] = {}
        self.failed: collections.deque[tuple[Any, ...]] = collections.deque()

    # ---- what the control plane calls

    def start(self, config: Config) -> None:
        for bridge in config.bridges:
            self._add(bridge)

    def reload(self, config: Config) -> None:
        """The data plane has been told already; who is gone is gone there."""
        names = {bridge.name for bridge in config.bridges}
        for name in [name for name in self.links if name not in names]:
            self.links.pop(name).gone = True
        for bridge in config.bridges:
            link = self.links.get(bridge.name)
            if link is None:
                self._add(bridge)
            elif (link.pending or link.bridge).key() != bridge.key():
                link.change(bridge)

    def close_all(self) -> None:
        """At the end: nothing is woken, and no lookup is waited for. The connections end with the data plane."""
        self.lookups.close()

    def take(self, requests: "list[tuple[Any, ...]]") -> None:
        """("link", 0, name, event, detail) of the data plane."""
        for _, _, name, event, detail in requests:
            link = self.links.get(name)
            if link is None:
                continue
            if event in ("down", "refused"):
                getattr(link, event)(str(detail))
            elif event in ("up", "wanted", "idle"):
                getattr(link, event)()

    def serve(self) -> None:
        """Answers that have come, and what is due."""
        failed = list(self.failed)
        self.failed.clear()
        self.take(failed)
        self.lookups.take()
        now_s = self.now_s()
        for link in list(self.links.values()):
            if link.due_s <= now_s:
                link.due()

    def due_in_s(self) -> float | None:
        """When `serve` is to be called at the latest; None: there is nothing to wait for."""
        if self.failed:
            return 0.0
        due_s = min((link.due_s for link in self.links.values()), default=NEVER)
        return None if due_s == NEVER else max(0.0, due_s - self.now_s())

    def _add(self, bridge: Bridge) -> None:
        link = self.links[bridge.name] = Link(bridge, self)
        link.start()

    # ---- what a link acts with

    def connect(self, name: str, address: "Address", host: str, try_private: bool) -> None:
        self._do(name, "connect", address, host, try_private)

    def close(self, name: str) -> None:
        self._do(name, "close")

    def waiting(self, name: str) -> int:
        """Messages for the other side."""
        return next((int(link["pending"]) for link in self.engine.bridges() if link["name"] == name), 0)

    def _do(self, name: str, action: str, *more: "Any") -> None:
        """What fails at once is heard of as what fails later."""
        try:
            self.engine.bridge(name, action, *more)
        except (OSError, LookupError, RuntimeError) as error:
            said = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self.failed.append(("link", 0, name, "down", said))

    def backoff(self, bridge: Bridge) -> Backoff:
        return Backoff(bridge.restart_base_s, bridge.restart_cap_s, bridge.restart_stable_s)
