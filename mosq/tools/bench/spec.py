"""What a run is told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

STAMP_BYTES = 16                # the least payload: time, run, source and number
SECRET = frozenset({"password", "psk"})


class BenchError(Exception):
    """A run that cannot begin."""


@dataclass(frozen=True)
class Spec:
    """The numbers that a scenario does not use stay at their defaults. They are explained in docs/bench.md."""

    scenario: str
    host: str = "127.0.0.1"
    port: int = 1883
    username: str | None = None         # %i: the client's number
    password: str | None = None
    version: int = 4                    # 4: 3.1.1, 5: 5.0
    tls: bool = False
    cafile: str | None = None           # None: whom the system trusts
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
    started: bool = False               # a mosq of ours, for this run: --start

    @property
    def where(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def told(self) -> dict[str, object]:
        """Without secrets, for reports. Paths in the folder of a broker of ours differ from run to run, and what
        differs makes another case of a repetition."""
        told = {name: value for name, value in dataclasses.asdict(self).items() if name not in SECRET}
        if told.pop("started"):
            told["cafile"] = None
        return told
