"""All bridges of one broker: their policies, with input from the data plane, from name servers and from the clock. Runs
in the control plane's thread and never blocks it."""

import collections
import socket
import time

from mosq.config.bridge import Bridge
from mosq.config.model import Config
from mosq.records import BridgeEvent
from mosq.server.bridge.backoff import Backoff
from mosq.server.bridge.lookup import Lookups
from mosq.server.bridge.policy import FINDING, NEVER, OPENING, PAUSE, REST, BridgePolicy
from mosq.server.bridge.spec import bridge_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine
    from mosq.server.bridge.lookup import Address


FIRST_WITHIN_S = 0.5            # time that new clients wait at the start for the first attempts of the bridges


def specs_of(config: Config) -> "list[dict[str, Any]]":
    """Return the bridges as the engine takes them."""
    return bridge_specs(config, socket.gethostname())


class Bridges:
    """The policies of all bridges, by name."""
    def __init__(self, engine: "Engine", report: "Callable[[int, str], None]", wake: "Callable[[], None]",
                 clock: "Callable[[], float]" = time.monotonic,
                 getaddrinfo: "Callable[..., Any]" = socket.getaddrinfo, asked: bool = False,
                 admit: "Callable[[], None] | None" = None) -> None:
        """`asked`: a bridge begins with the event "ready" of the data plane, when a worker knows all others. `admit`:
        lets the clients in that wait; None: the engine does."""
        self.engine, self.report, self.now_s = engine, report, clock
        self.lookups = Lookups(wake, getaddrinfo)
        self.find, self.try_one = self.lookups.find, self.lookups.try_one
        self.policies: dict[str, BridgePolicy] = {}
        self.failed: collections.deque[BridgeEvent] = collections.deque()
        self.held_s = NEVER             # time until which new clients wait; NEVER: they do not wait
        self._admit = admit if admit is not None else lambda: engine.hold_connects(False)
        self.asked, self.unasked = asked, set[str]()    # names of the bridges whose event has not come

    # ---- what the control plane calls

    def start(self, config: Config) -> None:
        """Start the bridges of a configuration."""
        for bridge in config.bridges:
            self._add(bridge)

    def hold_clients(self) -> None:
        """Let the CONNECT packets of clients wait for the first attempts. The caller has begun to hold them."""
        self.held_s = self.now_s() + FIRST_WITHIN_S

    def admit_clients(self) -> None:
        """Admit the clients that wait, if all first attempts have ended or the time is over."""
        if self.held_s != NEVER and self.unasked:       # a worker serves no client before these events either
            self.held_s = self.now_s() + FIRST_WITHIN_S
        elif self.held_s != NEVER and (self.now_s() >= self.held_s or not self._opening()):
            self.held_s = NEVER
            self._admit()

    def _opening(self) -> bool:
        now_s = self.now_s()
        return bool(self.unasked) or any(
            policy.state in (FINDING, OPENING) or (policy.state == PAUSE and policy.due_s <= now_s)
            for policy in self.policies.values())

    def reload(self, config: Config) -> None:
        """Apply a new configuration. The data plane has it already and has removed the bridges that are no longer in
        it."""
        names = {bridge.name for bridge in config.bridges}
        for name in [name for name in self.policies if name not in names]:
            self.policies.pop(name).removed = True
            self.unasked.discard(name)
        for bridge in config.bridges:
            policy = self.policies.get(bridge.name)
            if policy is None:
                self._add(bridge)
            elif (policy.pending or policy.bridge).key() != bridge.key():
                policy.change(bridge)

    def close_all(self) -> None:
        """Stop the lookups at the end, without waiting for them. The connections end with the data plane."""
        self.lookups.close()

    def take(self, events: list[BridgeEvent]) -> None:
        """Handle requests of the data plane: ("link", 0, name, event, detail)."""
        for each in events:
            policy = self.policies.get(each.name)
            if policy is None:
                continue
            if each.event in ("down", "refused"):
                getattr(policy, each.event)(each.detail)
            elif each.event in ("up", "wanted", "idle"):
                getattr(policy, each.event)()
            elif each.event == "ready" and each.name in self.unasked:
                self.unasked.discard(each.name)
                if policy.state == REST:
                    policy.start()

    def serve(self) -> None:
        """Handle the lookup answers that have arrived, and the waits that are over."""
        failed = list(self.failed)
        self.failed.clear()
        self.take(failed)
        self.lookups.take()
        now_s = self.now_s()
        for policy in list(self.policies.values()):
            if policy.due_s <= now_s:
                policy.due()

    def due_in_s(self) -> float | None:
        """Return the seconds until `serve` must be called; None if nothing waits."""
        if self.failed:
            return 0.0
        if self.held_s != NEVER and not self._opening():
            return 0.0
        due_s = min((policy.due_s for policy in self.policies.values()), default=NEVER)
        due_s = min(due_s, self.held_s)
        return None if due_s == NEVER else max(0.0, due_s - self.now_s())

    def _add(self, bridge: Bridge) -> None:
        policy = self.policies[bridge.name] = BridgePolicy(bridge, self)
        if self.asked:
            self.unasked.add(bridge.name)
        else:
            policy.start()

    # ---- actions of the policies

    def connect(self, name: str, address: "Address", host: str, try_private: bool) -> None:
        """Make the data plane connect a bridge to an address."""
        self._do(name, "connect", address, host, try_private)

    def close(self, name: str) -> None:
        """Make the data plane close a bridge's connection."""
        self._do(name, "close")

    def waiting(self, name: str) -> int:
        """Return the number of messages that wait for the other broker."""
        return next((int(policy["pending"]) for policy in self.engine.bridges() if policy["name"] == name), 0)

    def _do(self, name: str, action: str, *more: "Any") -> None:
        """Call the engine. An immediate failure is handled like a later one."""
        try:
            self.engine.bridge(name, action, *more)
        except (OSError, LookupError, RuntimeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self.failed.append(BridgeEvent(name, "down", reason))

    def backoff(self, bridge: Bridge) -> Backoff:
        """Return a new backoff with the times of a bridge, in seconds."""
        return Backoff(bridge.restart_base_s, bridge.restart_cap_s, bridge.restart_stable_s)
