"""The store of a worker in Redis, with its parts of the streams: their place, and how they are opened."""

from typing import NamedTuple

from mosq.cluster.scripts import (
    MARK,
    STORE,
    STORE_FOLDER,
    STREAMS_FOLDER,
    keys_of,
    keys_of_store,
    store_mark,
    store_name,
    stream_id,
)
from mosq.cluster.stores import damage_of, store_of
from mosq.server.settings import stream_specs
from mosq.server.storage import IN_REDIS, report_store, report_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq._redis import LogFiles, RedisConnection
    from mosq.cluster.address import Address
    from mosq.config.model import Config
    from mosq.engine import Engine

SEGMENTS = 8                    # of a stream with a bound on its size, because retention removes whole segments
SEGMENT_BYTES = 16 << 20        # of a stream at most: Redis has it in memory, also after it was read
MARK_MS = 1000                  # for the replicas to confirm that a store was made


class StorePlace(NamedTuple):
    """The place of the stores of a cluster."""

    address: "Address"
    cluster: str
    id: str
    replicas: int               # so many must confirm
    all_replicas: int = 0       # that there are when none is away
    in_step: int = 0            # that follow the primary now; 0: not known

    def name_of(self, worker: int) -> str:
        """Return the name of the store of a worker, from 1."""
        return store_name(self.cluster, self.id, worker)

    def take(self, worker: int, token: int) -> "LogFiles":
        """Take the files of a worker's store: Redis refuses each process with an earlier token now. A store that was
        made once is never made again: without its keys, its messages are lost, and an empty store would hide that. A
        store of which a part was deleted or cut is not taken either.
        Raises OSError."""
        from mosq._redis import LogFiles

        name, mark, connection = self.name_of(worker), store_mark(worker), self._connection()
        key = keys_of(self.cluster)[0]
        is_new = connection.call("HGET", key, mark) is None
        if not is_new:
            *keys, prefix = keys_of_store(name)
            store = store_of(connection.call("EVAL", STORE, len(keys), *keys, prefix))
            if damage := damage_of(store, self.cluster, self.id, worker):
                raise OSError(damage)
        files = LogFiles(connection, name, token, self.replicas, create=is_new, all_replicas=self.all_replicas,
                         in_step=self.in_step)
        if is_new:
            self._mark(key, mark)
        return files

    def _mark(self, key: str, mark: str) -> None:
        connection = self._connection()
        connection.call("EVAL", MARK, 1, key, self.id, mark)
        confirmed = connection.call("WAIT", self.replicas, MARK_MS) if self.replicas else 0
        assert isinstance(confirmed, int)
        connection.close()
        if confirmed < self.replicas:
            raise OSError(f"only {confirmed} of {self.replicas} replicas of Redis have confirmed a new store")

    def _connection(self) -> "RedisConnection":
        from mosq._redis import RedisConnection

        address = self.address
        return RedisConnection(address.hosts, address.master or None, address.user, address.password,
                               database=address.db)


def open_in_redis(engine: "Engine", config: "Config", place: StorePlace, files: "LogFiles",
                  report: "Callable[[int, str], None]") -> None:
    """Load the contents of a store in Redis into the engine. Raises OSError."""
    streams = _streams(config, place.id)
    found = engine.persist(STORE_FOLDER, config.durability, config.durability_interval, streams=streams, files=files)
    report_store(place.name_of(config.worker) + IN_REDIS, config, found, report)
    report_streams(found, streams, report)


def _streams(config: "Config", id: str) -> "list[dict[str, Any]]":
    """Return the streams as the engine takes them. No client can subscribe to them, because a node has the parts of its
    own workers only."""
    specs = stream_specs(config)
    for spec in specs:
        spec["folder"] = f"{STREAMS_FOLDER}/{spec['name']}"
        spec["id"] = stream_id(id, spec["name"])
        spec["parts"] = []
        spec["segment_bytes"] = min(SEGMENT_BYTES, spec["retain_bytes"] // SEGMENTS or SEGMENT_BYTES)
    return specs
