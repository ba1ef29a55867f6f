"""Give the tests a client of their redis-server."""

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.harness.effort import TIMEOUT_S
from tests.harness.redis import RedisServer


class Redis(RedisServer):
    def start(self) -> None:
        super().start()
        self.client = redis.Redis(port=self.port, password=self.password, decode_responses=True, retry=Retry(NoBackoff(), 0), protocol=2,
                                  socket_timeout=TIMEOUT_S)
