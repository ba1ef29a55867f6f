"""One bridge's policy: which address to try now, and what to do after success or failure. A state machine that gets the
time as input; it knows no sockets and no threads.

  REST -> FINDING (look up a name) -> OPENING (the data plane connects, sends CONNECT, waits for CONNACK) -> UP
   ^         |                               |                                                               |
   |         +------- the next address ------+--- after the last one ---> PAUSE -> FINDING     <-- it broke -+
   +--- lazy: until messages wait; once: for good <----------------------------------------------------------+

With `round_robin false` the first address is the main one. While another address serves, the bridge tries the main one
every few seconds (in a thread of Lookups) and returns to it when it accepts. CLOSING waits for the data plane's report
"down", so that later reports belong to the next attempt.
"""

from mosq.config.bridge import Bridge
from mosq.log_types import ERROR, INFORMATION, WARNING
from mosq.server.bridge.lookup import numeric
from mosq.server.bridge.spec import bound_family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mosq.server.bridge.backoff import Backoff
    from mosq.server.bridge.lookup import Address, Answer

    class Actions(Protocol):
        """The actions of a policy; `Bridges` implements them."""

        def connect(self, name: str, address: Address, host: str, try_private: bool) -> None: ...
        def close(self, name: str) -> None: ...
        def waiting(self, name: str) -> int: ...
        def find(self, name: str, host: str, port: int, family: int, on_answer: Callable[[Answer], None]) -> None: ...
        def try_one(self, name: str, host: str, port: int, family: int,
                    on_answer: Callable[[Answer], None]) -> None: ...
        def report(self, level: int, text: str) -> None: ...
        def now_s(self) -> float: ...
        def backoff(self, bridge: Bridge) -> Backoff: ...

REST, FINDING, OPENING, UP, PAUSE, CLOSING = "rest", "finding", "opening", "up", "pause", "closing"
NEVER = float("inf")
FIND_WITHIN_S = 15.0
OPEN_WITHIN_S = 60.0            # the data plane's deadline is shorter
CLOSE_WITHIN_S = 10.0
FIRST_EVERY_S = 5.0             # period of attempts at the main address while another serves
FIRST_EVERY_MAX_S = 300.0       # period while it accepts connections but refuses the bridge
LAZY, ONCE = "lazy", "once"
PROTOCOL_VERSION = "protocol version"       # reason text of a refusal that the bridge bit in CONNECT may have caused
WILL_RETRY = "will retry"                   # reason text if the next CONNECT asks for less
RETRIES_MAX = 4                             # immediate retries of one address


def host_of(written: str) -> str:
    """Return the host without the brackets of an IPv6 address."""
    return written[1:-1] if written.startswith("[") and written.endswith("]") else written


class BridgePolicy:
    """The state machine of one bridge. `due_s`: time of the next call of `due`."""
    def __init__(self, bridge: Bridge, actions: "Actions") -> None:
        self.actions = actions
        self.state = REST
        self.due_s = NEVER
        self.removed = False                        # removed from the configuration; its lookups are ignored
        self.pending: Bridge | None = None          # UP, CLOSING: the configuration that replaces this one at the end
        self.next_step = ""                         # CLOSING: the next step
        self.lookup_number = 0                      # number of the last lookup; answers to older ones are ignored
        self._take(bridge)

    def _take(self, bridge: Bridge) -> None:
        self.bridge, self.name = bridge, bridge.name
        self.at = 0                                 # index of the current address
        self.tried = 0                              # number of addresses tried since the last pause
        self.targets: list[Address] = []            # numeric addresses of the current one that are left to try
        self.target: Address | None = None
        self.try_private = bridge.try_private
        self.up_s: float | None = None
        self.backoff = self.actions.backoff(bridge)
        self.first_every_s = FIRST_EVERY_S
        self.is_trying_first = False
        self.retries = 0

    @property
    def host(self) -> str:
        """Return the host of the current address."""
        return host_of(self.bridge.addresses[self.at][0])

    @property
    def port(self) -> int:
        """Return the port of the current address."""
        return self.bridge.addresses[self.at][1]

    # ---- start and change

    def start(self) -> None:
        """Begin the first attempt, unless the bridge is lazy."""
        if self.bridge.start_type != LAZY:
            self._attempt()

    def change(self, bridge: Bridge) -> None:
        """Apply a new configuration of this bridge."""
        self.pending = bridge
        if self.state == UP and bridge.bridge_reload_type != "immediate":
            return
        if self.state in (UP, OPENING):
            self._close("start")
        elif self.state != CLOSING:
            self._restart()
        else:
            self.next_step = "start"

    def _restart(self) -> None:
        if self.pending is not None:
            self._take(self.pending)
            self.pending = None
        self._rest()
        self.start()

    # ---- reports of the data plane

    def up(self) -> None:
        """The bridge is connected."""
        if self.state != OPENING:
            return
        self.state, self.up_s, self.tried = UP, self.actions.now_s(), 0
        self.due_s = NEVER
        if self.at == 0:
            self.first_every_s = FIRST_EVERY_S
        elif not self.bridge.round_robin:
            self.due_s = self.up_s + self.first_every_s

    def down(self, detail: str) -> None:
        """The connection ended or could not be made."""
        if self.state == CLOSING:
            self._closed()
        elif self.state == OPENING:
            self._failed(detail)
        elif self.state == UP:
            self._broke()

    def refused(self, detail: str) -> None:
        """The other broker refused CONNECT. Try again without the bridge bit if it may be the cause."""
        if self.state != OPENING:
            self.down(detail)
        elif self.try_private and PROTOCOL_VERSION in detail.lower():
            self.try_private = False                # a broker that does not know the bridge bit may know the version
            self._open()
        elif WILL_RETRY in detail and self.retries < RETRIES_MAX:
            self.retries += 1
            self._open()
        else:
            self._failed(detail)

    def wanted(self) -> None:
        """A lazy bridge has enough messages to send."""
        if self.state == REST and self.bridge.start_type == LAZY:
            self._attempt()

    def idle(self) -> None:
        """A lazy bridge was idle for its idle_timeout."""
        if self.state == UP and self.bridge.start_type == LAZY:
            self._close("rest")

    def due(self) -> None:
        """Act on the end of a wait: `due_s` is reached."""
        self.due_s = NEVER
        if self.state == PAUSE:
            self._attempt()
        elif self.state == FINDING:
            self.lookup_number += 1
            self._not_found(f"no answer within {FIND_WITHIN_S:.0f} seconds")
        elif self.state == OPENING:
            self._close("failed")
        elif self.state == CLOSING:
            self._closed()
        elif self.state == UP:
            self._try_first()

    # ---- one address after the other

    def _attempt(self) -> None:
        """Try the current address."""
        self.tried += 1
        self.retries = 0
        known = numeric(self.host, self.port)
        if known:
            self._found(known)
            return
        self.state, self.due_s = FINDING, self.actions.now_s() + FIND_WITHIN_S
        self.lookup_number += 1
        lookup_number = self.lookup_number
        self.actions.find(self.name, self.host, self.port, bound_family(self.bridge),
                          lambda answer: self._answered(lookup_number, answer))

    def _answered(self, lookup_number: int, answer: "Answer") -> None:
        if self.removed or lookup_number != self.lookup_number or self.state != FINDING:
            return
        if isinstance(answer, OSError):
            self._not_found(str(answer.strerror or answer))
        else:
            self._found(answer)

    def _not_found(self, why: str) -> None:
        self.actions.report(ERROR, f"Error creating bridge {self.name}: {self.host}: {why}.")
        self._next()

    def _found(self, targets: "list[Address]") -> None:
        family = bound_family(self.bridge)
        self.targets = [target for target in targets if not family or target[0] == family]
        if not self.targets:
            self._not_found("has no address that can be reached from bridge_bind_address")
            return
        self.target = self.targets.pop(0)
        self._open()

    def _open(self) -> None:
        assert self.target is not None
        self.state, self.due_s = OPENING, self.actions.now_s() + OPEN_WITHIN_S
        self.actions.connect(self.name, self.target, self.host, self.try_private)

    def _failed(self, detail: str) -> None:
        """Handle an attempt that failed: try the next numeric address, or go to the next address."""
        if detail:
            self.actions.report(WARNING, f"Warning: Bridge {self.name} could not connect to {self.host}:{self.port}: "
                                         f"{detail.rstrip('.')}.")
        if self.targets:
            self.target = self.targets.pop(0)
            self._open()
        else:
            self._next()

    def _next(self) -> None:
        """Go to the next address at once; after the last one, pause."""
        again = self.tried < len(self.bridge.addresses)
        self.at = (self.at + 1) % len(self.bridge.addresses)
        if again:
            self.state, self.due_s = PAUSE, self.actions.now_s()
        elif self.bridge.start_type == ONCE:
            self.actions.report(WARNING, f"Warning: Bridge {self.name} could not be started, and is not tried again "
                                         "(start_type once).")
            self._rest()
        else:
            self._pause(None)

    def _broke(self) -> None:
        lasted_s = self.actions.now_s() - (self.up_s or 0.0)
        self.up_s = None
        if self.pending is not None:
            self._restart()
        elif not self._goes_on():
            self._rest()
        else:
            self.at = (self.at + 1) % len(self.bridge.addresses)
            self._pause(lasted_s)

    def _goes_on(self) -> bool:
        """Return whether the bridge connects again after a connection."""
        if self.bridge.start_type == LAZY:
            return self.actions.waiting(self.name) >= self.bridge.threshold
        return self.bridge.start_type != ONCE

    def _pause(self, lasted_s: float | None) -> None:
        self.tried = 0
        pause_s, was_reset = self.backoff.next_s(lasted_s)
        if was_reset and self.backoff.varies:
            self.actions.report(INFORMATION, f"Bridge {self.name} connection was stable enough, resetting backoff")
        if self.backoff.varies:
            self.actions.report(INFORMATION, f"Bridge {self.name} next backoff will be {1000 * pause_s:.0f} ms")
        self.state, self.due_s = PAUSE, self.actions.now_s() + pause_s

    def _rest(self) -> None:
        self.state, self.due_s, self.tried = REST, NEVER, 0

    # ---- closed by this side

    def _close(self, next_step: str) -> None:
        self.next_step = next_step
        self.state, self.due_s = CLOSING, self.actions.now_s() + CLOSE_WITHIN_S
        self.up_s = None
        self.actions.close(self.name)

    def _closed(self) -> None:
        if self.next_step == "failed":
            self.state = OPENING
            self._failed("no answer in time")
        elif self.next_step == "start" or self.pending is not None:
            self._restart()
        elif self.next_step == "first":
            self.at = 0
            self.tried = 0
            self._attempt()
        else:
            self._rest()

    # ---- return to the first address

    def _try_first(self) -> None:
        if self.is_trying_first or self.at == 0 or self.bridge.round_robin:
            return
        self.is_trying_first = True
        host, port = self.bridge.addresses[0]
        bridge = self.bridge
        self.actions.try_one(self.name, host_of(host), port, bound_family(bridge),
                             lambda answer: self._first_answered(bridge, answer))

    def _first_answered(self, bridge: Bridge, answer: "Answer") -> None:
        if self.removed or bridge is not self.bridge:
            return
        self.is_trying_first = False
        if self.state != UP or self.at == 0:
            return
        if isinstance(answer, OSError):
            self.due_s = self.actions.now_s() + FIRST_EVERY_S
            return
        # if the address accepts connections but refuses the bridge, the next attempt is later
        self.first_every_s = min(FIRST_EVERY_MAX_S, 2 * self.first_every_s)
        self._close("first")
