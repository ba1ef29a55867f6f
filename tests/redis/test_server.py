"""Test how the harness starts a redis-server (tests/harness/redis.py)."""

import pytest

from tests.harness.broker import free_port
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.part("redis")


def test_a_server_whose_port_is_used_starts_on_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer() as one:
        ports = iter([one.port, free_port()])
        monkeypatch.setattr("tests.harness.redis.free_port", lambda: next(ports))
        with RedisServer() as other:
            assert one.answers()
            assert other.answers()
            assert one.port != other.port


def test_a_server_starts_again_on_its_port_and_a_paused_one_can_be_killed() -> None:
    with RedisServer(password="word") as server:
        port = server.port
        server.pause()
        server.kill()
        assert not server.answers()
        server.start()
        assert server.answers()
        assert server.port == port
    assert not server.folder.exists()


def test_a_wrong_option_fails_the_start_with_the_reason() -> None:
    server = RedisServer("no-option 1")
    with pytest.raises(AssertionError, match="Bad directive"), server:
        pass
    assert not server.folder.exists()
