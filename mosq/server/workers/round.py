"""A reload of all workers: every worker checks the configuration, then all apply it, or none. Knows messages, not the
contents of a configuration."""

from mosq.server.workers.reading import state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.config.model import Config
    from mosq.server.workers.channel import Message
    from mosq.server.workers.slot import Slot

LIMIT_S = 30.0                  # a file that never ends must not keep the parent from starting workers again


class Round:
    """One reload, from `check` to the decision. The workers that take part are those that serve clients at its begin,
    or a process that only checks the configuration if there is none; no worker starts while it runs."""

    def __init__(self, number: int, config: "Config", content: str, reloads: int, slots: "Iterable[Slot]",
                 now_s: float) -> None:
        """`number`: its number since the start, so that a late answer does not count for the next round; `content`:
        content_of(config) before the parent has changed it; `reloads`: the SIGHUPs that it covers."""
        self.number, self._reloads = number, reloads
        self.config, self.limit_s = config, now_s + LIMIT_S
        self.error, self.status = "", 0
        self.changed = False            # a file has changed since the parent has read it
        self._slots = list(slots)
        self._open = {slot.place for slot in self._slots}
        self._send("check", content=content, state=state_of(config))

    def _send(self, what: str, **more: str) -> None:
        for slot in self._slots:
            if slot.channel is not None:
                slot.channel.send({"do": what, "round": self.number, "reloads": self._reloads, **more})

    def answered(self, slot: "Slot", message: "Message") -> None:
        """Take the answer of a worker."""
        if message["round"] != self.number:
            return
        self._open.discard(slot.place)
        if message["error"] and not self.error:
            self.error, self.status = f"{slot.name}: {message['error']}", message["status"]
            self.changed = message["changed"]

    def lost(self, slot: "Slot") -> None:
        """Note that a worker has ended, which may have to do with the new configuration."""
        if slot.place in self._open:
            self._open.discard(slot.place)
            self.error = self.error or f"{slot.name} has ended"

    def over(self, now_s: float) -> bool:
        """Return whether there is a decision. Then `tell` sends it to the workers, or another round begins."""
        if self._open and now_s < self.limit_s and not self.error:
            return False
        if self._open and not self.error:
            late = min((slot for slot in self._slots if slot.place in self._open), key=lambda slot: slot.place)
            self.error = f"{late.name} did not answer within {LIMIT_S:.0f} seconds"
        return True

    def tell(self) -> None:
        """Let all workers apply the configuration, or none."""
        self._send("drop" if self.error else "apply")
