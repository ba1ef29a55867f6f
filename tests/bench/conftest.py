from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mosq
from mosq.tools.bench import scenarios
from mosq.tools.bench.result import Result
from mosq.tools.bench.run import measure
from mosq.tools.bench.spec import Spec
from tests.harness import certificates


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    """Provide bench("pairs", port, qos=1), which runs a scenario with small numbers and returns its result."""
    monkeypatch.setattr(scenarios, "QUIET_S", 0.01)

    def run(scenario: str, port: int, **given: object) -> Result:
        small = {"publishers": 4, "messages": 400, "stall": 5.0, "clients": 8}
        return measure(Spec(scenario, port=port, **{**small, **given}), lambda what, counts: None)  # type: ignore[arg-type]

    return run


Way = tuple[mosq.Broker, dict[str, object]]


@pytest.fixture
def broker_with(tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[Way]]:
    """Provide broker_with(tls=True, ws=True), a context of (broker, options of a Spec); further lines of its listener may follow."""
    for name, content in certificates.server_files().items():
        (tmp_path / name).write_text(content)

    @contextlib.contextmanager
    def running(*lines: str, tls: bool = False, ws: bool = False) -> Iterator[Way]:
        config = ["listener 1883 127.0.0.1", "allow_anonymous true", "max_queued_messages 0", "sys_interval 0", *(["protocol websockets"] * ws)]
        if tls:
            config.append(certificates.TLS_LINES.replace("{dir}", str(tmp_path)))
        with mosq.Broker("\n".join([*config, *lines]) + "\n", port=0) as broker:
            yield broker, {"tls": tls, "ws": ws, "cafile": str(tmp_path / "ca.crt") if tls else None}

    return running
