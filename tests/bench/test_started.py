"""Test the fresh broker of `--start`."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mosq.cli.commands_bench import _imports
from mosq.tools.bench import started

ROOT = Path(__file__).parents[2]


def test_a_port_is_outside_the_range_of_client_ports() -> None:
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(started.free_port() for _ in range(50)) < max(least, started.PORTS_FROM + 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_an_ended_run_leaves_no_broker_and_no_key(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "mosq", "bench", "pairs", "--start", "--tls", "--seconds", "600", "--stall", "1"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, process_group=0, text=True) as run:
        try:
            port = awaited(lambda: listening(tmp_path))
            run.send_signal(number)
            _, said = run.communicate(timeout=30)
        finally:
            run.kill()
    assert run.returncode == (-number if number == signal.SIGKILL else 1)
    awaited(lambda: not connects(port))
    assert not list(tmp_path.rglob("*.key"))
    if number != signal.SIGKILL:
        assert "interrupted" in said and not list(tmp_path.iterdir())


def test_a_signal_during_an_import_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "looks_at_itself.py").write_text("import sys\nfrom mosq.cli.commands_bench import _imports\nseen = _imports(sys._getframe())\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("looks_at_itself").seen
    assert not _imports(sys._getframe())


def awaited(what: Callable[[], int]) -> int:
    end = time.monotonic() + 20
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def listening(folder: Path) -> int:
    """Return the port of the broker when it listens and has read its files."""
    for config in folder.glob("mosq-bench-*/mosq.conf"):
        text = config.read_text().split()
        if text and connects(int(text[1])) and not config.with_name("broker.key").exists():
            return int(text[1])
    return 0


def connects(port: int) -> bool:
    try:
        socket.create_connection((started.HOST, port), 1).close()
    except OSError:
        return False
    return True
