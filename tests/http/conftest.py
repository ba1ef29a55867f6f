"""Fixtures of the tests of the HTTP API."""

from __future__ import annotations

import pytest

from tests.harness.effort import TIMEOUT_S
from tests.http.serving import Server


@pytest.fixture
def serve(tmp_path):
    (tmp_path / "big").write_bytes(bytes(20 << 20))
    servers = []

    def begin(**options):
        servers.append(Server(tmp_path, **options))
        return servers[-1]

    yield begin
    for server in servers:
        server.release.set()
        server.api.stop()
        server.api._thread.join(TIMEOUT_S)          # `stop` waits STOP_WITHIN_S, which may not suffice on a busy machine
        assert not server.api._thread.is_alive()
        assert server.lines == []
