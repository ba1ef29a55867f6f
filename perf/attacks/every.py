"""Import every module of attacks, so that the table of attacks is complete."""

from perf.attacks import (
    access,
    before_login,
    control,
    matching,
    queues,
    reload,
    retained,
    sessions,
    subscriptions,
    tls,
    web,
)
from perf.attacks.attack import ATTACKS

__all__ = [
    "ATTACKS",
    "access",
    "before_login",
    "control",
    "matching",
    "queues",
    "reload",
    "retained",
    "sessions",
    "subscriptions",
    "tls",
    "web",
]
