from collections.abc import Iterator

import pytest

from tests.redis.server import Server


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def server(shared_server: Server) -> Server:
    """Provide a Redis without any keys; tests that stop or configure one start their own."""
    shared_server.call("FLUSHALL")
    return shared_server
