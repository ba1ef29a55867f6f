"""Give the tests a redis-server that they call with the connection of a store."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from mosq._redis import LogFiles, RedisConnection, RedisError
from tests.harness.redis import RedisServer

if TYPE_CHECKING:
    from mosq._redis import Reply

PLACE_OF_TESTS = "/d"           # the folder of stores in Redis: only a part of names


class Server(RedisServer):
    def start(self) -> None:
        super().start()
        self.admin = self.connection()

    def call(self, *words: str | bytes | int) -> Reply:
        return self.admin.call(*words)

    def is_primary(self) -> bool:
        with suppress(RedisError):      # a failover closes all connections, at any time
            reply = self.call("ROLE")
            return isinstance(reply, list) and reply[0] == b"master"
        return False

    def replicas_online(self) -> int:
        reply = self.call("INFO", "replication")
        assert isinstance(reply, bytes)
        return reply.count(b"state=online")

    def clients(self) -> int:
        """Return the number of connections."""
        reply = self.call("CLIENT", "LIST")
        assert isinstance(reply, bytes)
        return reply.count(b" addr=")

    def read_calls(self) -> tuple[int, int]:
        """Return how many scripts have run, and how many ranges they have read."""
        reply = self.call("INFO", "commandstats")
        assert isinstance(reply, bytes)
        calls = dict(re.findall(r"cmdstat_(\w+):calls=(\d+)", reply.decode()))
        return int(calls.get("evalsha", 0)), int(calls.get("getrange", 0))

    def cut(self) -> None:
        """Close the connections of all other clients."""
        self.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def connection(self, timeout_ms: int = 2000) -> RedisConnection:
        return RedisConnection([("127.0.0.1", self.port)], password=self.password, timeout_ms=timeout_ms)

    def files(self, name: str = "log", token: int = 0, replicas: int = 0, timeout_ms: int = 2000, all_replicas: int = 0) -> LogFiles:
        return LogFiles(self.connection(timeout_ms), name, token, replicas, all_replicas=all_replicas)

    def head(self, name: str = "log") -> dict[bytes, bytes]:
        reply = self.call("HGETALL", f"mosq:{{{name}}}:head")
        assert isinstance(reply, list)
        return dict(zip(reply[::2], reply[1::2], strict=True))     # type: ignore[arg-type]

    def contents(self, name: str = "log") -> int:
        reply = self.call("KEYS", f"mosq:{{{name}}}:f:*")
        assert isinstance(reply, list)
        return len(reply)
