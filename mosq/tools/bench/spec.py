"""Define the options of a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

STAMP_BYTES = 16                # least payload: time, run, source and sequence number
OF_RELAY = ("fan-in", "fan-out", "pairs", "payloads", "connect", "storm")       # scenarios that the relay can serve
SECRET = frozenset({"password", "psk"})


class BenchError(Exception):
    """Explain why a run cannot begin."""


@dataclass(frozen=True)
class Spec:
    """Hold the options of a run; a scenario ignores those that it does not use. docs/bench.md explains them."""

    scenario: str
    host: str = "127.0.0.1"
    port: int = 1883
    username: str | None = None         # %i stands for the client's number
    password: str | None = None
    version: int = 4                    # 4: MQTT 3.1.1, 5: MQTT 5.0
    tls: bool = False
    cafile: str | None = None           # None: the CAs that the system trusts
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    servername: str | None = None
    psk: str | None = None
    psk_identity: str | None = None
    ws: bool = False
    ws_path: str = "/mqtt"
    qos: int = 0
    size: int = 64
    publishers: int = 1
    subscribers: int = 1
    clients: int = 100
    topics: int = 100_000
    filters: int = 100_000
    kind: str = "mix"
    sizes: tuple[int, ...] = ()
    messages: int = 0
    seconds: float = 5.0
    warmup: float = 0.5
    hold: float = 1.0
    rounds: int = 3
    rate: float = 0.0
    window: int = 10_000
    inflight: int = 20
    burst: int = 10
    pending: int = 64
    stall: float = 3.0
    prefix: str = "bench"
    keep: bool = False
    session: bool = False               # clients of flows have sessions that outlive their connections
    name: str = ""
    broker_pid: int | None = None
    started: str = ""                   # program that the run started: "mosq" (--start) or "relay" (--relay)

    @property
    def where(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def as_dict(self) -> dict[str, object]:
        """Return the options for reports, without secrets.

        Paths in the folder of an own broker differ from run to run; they are removed, because an option that differs
        would make repetitions different cases.
        """
        options = {name: value for name, value in dataclasses.asdict(self).items() if name not in SECRET}
        if options.pop("started"):
            options["cafile"] = None
        return options
