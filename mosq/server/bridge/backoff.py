"""Computes the pause before the next attempt: decorrelated jitter, as in Mosquitto. Knows seconds, no clock."""

import random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Backoff:
    """Each pause is random between `base_s` and three times the previous one, at most `cap_s`. If base == cap it is
    constant."""

    def __init__(self, base_s: float, cap_s: float, stable_s: float,
                 uniform: "Callable[[float, float], float]" = random.uniform) -> None:
        self.base_s, self.cap_s, self.stable_s, self.uniform = base_s, cap_s, stable_s, uniform
        self.last_s = base_s

    @property
    def varies(self) -> bool:
        return self.base_s != self.cap_s

    def next_s(self, lasted_s: float | None) -> tuple[float, bool]:
        """Return (pause in seconds, whether the backoff was reset) after a connection that lasted `lasted_s` seconds
        (None: there was no connection)."""
        if lasted_s is not None and lasted_s >= self.stable_s:
            self.last_s = self.base_s
            return self.base_s, True
        self.last_s = min(self.cap_s, self.uniform(self.base_s, 3 * self.last_s))
        return self.last_s, False
