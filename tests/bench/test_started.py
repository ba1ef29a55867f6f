"""The fresh broker of `--start`."""

from __future__ import annotations

from pathlib import Path

from mosq.bench import started


def test_a_port_is_none_that_a_client_gets() -> None:
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(started.free_port() for _ in range(50)) < max(least, started.PORTS_FROM + 1)
