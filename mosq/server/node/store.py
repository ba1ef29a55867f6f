"""The store of a worker in Redis: its place, and how it is opened."""

from typing import NamedTuple

from mosq.cluster.scripts import store_name
from mosq.server.storage import report_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq._redis import LogFiles
    from mosq.cluster.address import Address
    from mosq.config.model import Config
    from mosq.engine import Engine

FOLDER = "/store"               # of the files, whose names are fields of a hash


class StorePlace(NamedTuple):
    """The place of the stores of a cluster."""

    address: "Address"
    cluster: str
    id: str
    replicas: int

    def name_of(self, worker: int) -> str:
        """Return the name of the store of a worker, from 1."""
        return store_name(self.cluster, self.id, worker)

    def take(self, worker: int, token: int) -> "LogFiles":
        """Take the files of a worker's store: Redis refuses each process with an earlier token now. Raises OSError."""
        from mosq._redis import LogFiles, RedisConnection

        address = self.address
        connection = RedisConnection(address.hosts, address.master or None, address.user, address.password,
                                     database=address.db)
        return LogFiles(connection, self.name_of(worker), token, self.replicas)


def open_in_redis(engine: "Engine", config: "Config", name: str, files: "LogFiles",
                  report: "Callable[[int, str], None]") -> None:
    """Load the contents of a store in Redis into the engine. Raises OSError."""
    found = engine.persist(FOLDER, config.durability, config.durability_interval, files=files)
    report_store(f"{name} in Redis", config, found, report)
