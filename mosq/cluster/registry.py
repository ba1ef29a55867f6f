"""The nodes and the table of workers in Redis. Blocks; one thread uses it.

A request is three commands in one round trip: INFO (which server is it, and is it the primary), the script, and WAIT.
It counts only if enough replicas have confirmed it: half of the servers, rounded down. The number of servers belongs
to the cluster. So the primary and the replicas that confirm are a majority of the servers. A partition may have a
primary on both sides; each needs these confirmations, so only one of them can extend leases and take claims. Sentinel
may promote a replica without the last claims: their tokens are not repeated (entries.py), and sight.py observes the
nodes again. With one server alone the number is 0, and a restart that loses its last writes is as harmless.

Any error ends the connection. The next request looks for the primary again. WAIT counts the writes of its connection
only, and returns at once on a fresh one: so a lease is extended by a beat, which always writes, and never by a request
that is sent again.
"""

import hashlib
import hmac
import secrets
import time
from contextlib import contextmanager, suppress
from typing import NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from mosq.cluster import scripts
from mosq.cluster.address import Address
from mosq.cluster.entries import check_name, entry_of
from mosq.cluster.errors import AwayError, RefusedError
from mosq.cluster.requests import CHANGED, DONE, Answer, Beat, Change, Inspect, Join, Leave, Look, Note, Send, View
from mosq.cluster.stores import Store, damage_of, store_of
from mosq.cluster.terms import HOLD_S, SLOW_S, Terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from mosq.cluster.requests import Request

WORKERS_MAX = 64                # as with cluster_local
PROTOCOL = 1                    # of a new cluster
KEY_BYTES = 16
NO_EVICTION = "noeviction"
LITTLE_MEMORY = 0.8             # LOW_PERCENT of cext/redis/files.pyx; a test compares both
SENTINELS = 3                   # the least that outlive one of them
SLOW_ANSWERS = 5                # the fastest of them counts, also if the first one opens the connection
NOWHERE = "/dev/null/redis"
ROUNDS = 100_000                # of PBKDF2 for the secret
NAMES = {Look: scripts.LOOK, Join: scripts.JOIN, Beat: scripts.BEAT, Change: scripts.CHANGE, Leave: scripts.LEAVE,
         Send: scripts.SEND, Note: scripts.NOTE}


class Facts(NamedTuple):
    """The values that `create` has fixed for all nodes. `key` names the worker of a client id."""

    workers: int
    replicas: int               # of Redis, which must confirm a message
    terms: Terms
    key: bytes
    id: str                     # of this cluster; one that is created again has another id
    servers: int = 1            # of Redis, when none is away: one of them is the primary


class Found(NamedTuple):
    """The document of dynamic security, as it is in Redis."""

    stamp: str                  # empty: there is none, or it is damaged
    content: bytes              # empty if the stamp was known
    was_made: bool              # whether there was ever a document


class Raw(NamedTuple):
    """The nodes as they are in Redis, also if they are damaged: texts by field."""

    beats: dict[str, str]
    announcements: dict[str, str]
    table: dict[str, str]
    document: str               # stamp of the document of dynamic security; "" if there is none


class Following(NamedTuple):
    """The replicas of a server, and when they were last fewer than before."""

    source: str
    replicas: int
    fewer_s: float


class Registry:
    """The data of one cluster in Redis. `name` and `run` are those of this node."""

    def __init__(self, address: Address, cluster: str, name: str, run: str, terms: Terms, *, replicas: int = 0,
                 secret: bytes = b"") -> None:
        self.cluster, self.name, self.run = check_name(cluster, "cluster"), check_name(name, "node"), run
        self._address, self._terms, self._secret = address, terms, secret
        self._timeout_s = terms.request_s
        self._replicas, self._servers = replicas, replicas + 1      # at least; `open` learns how many there are
        self._keys = scripts.keys_of(cluster)
        self._id = ""
        self._source = ""               # the server that has answered on this connection
        self._following = Following("", 0, float("-inf"))
        self._client: redis.Redis | None = None
        self._hashes: dict[str, str] = {}       # script -> its hash, when the present server has it

    # ---- the cluster

    def create(self, workers: int) -> None:
        """Make the cluster; the same call again only notes servers of Redis that are new, which a node learns at its
        start. Raises RefusedError if there is another cluster of this name, and AwayError. Nodes never do this by
        themselves: to a Redis that has lost its data, they would be a new cluster without sessions."""
        if not 1 <= workers <= WORKERS_MAX:
            raise RefusedError(f"a cluster has 1 to {WORKERS_MAX} workers")
        if self._address.can_fail_over and not self._replicas:
            raise RefusedError(f"{self._address} can have another primary after a failover, and with 0 replicas that "
                               "one may lack acknowledged messages; give the number of replicas that must confirm a "
                               "message (--replicas): 1 with three servers of Redis, 2 with five")
        servers = self._counted(_info_of(self._run(None, ["INFO", "replication"])[1]))
        if self._replicas and 2 * (self._replicas + 1) <= servers:
            raise RefusedError(f"Redis has {servers} servers, and with {self._replicas} replicas that confirm, a "
                               "message is not on most of them: another primary may lack it; give --replicas "
                               f"{servers // 2}")
        self._servers = max(self._servers, servers)     # from now on most of them must confirm
        salt = secrets.token_hex(16)
        fields = {"id": secrets.token_hex(16), "protocol": PROTOCOL, "salt": salt, "proof": _proof(salt, self._secret),
                  "key": secrets.token_hex(KEY_BYTES), "servers": servers, **self._fixed(workers)}
        pairs = [part for pair in fields.items() for part in pair]
        found = _pairs(self._run(scripts.CREATE, pairs)[1])
        self._check(workers, found, "the command asks for")
        if self._servers_in(found) < servers:
            self._run(None, ["HSET", self._keys[0], "servers", servers])

    def _counted(self, info: "dict[str, Any]") -> int:
        """Return the number of servers of a cluster that is created now: the primary, and the replicas that follow it.
        Without confirmations no replica may be promoted, so there is one."""
        return max(self._replicas, int(info.get("connected_slaves", 0))) + 1 if self._replicas else 1

    def facts(self) -> Facts:
        """Return the values of the cluster, for which another object is made: this one has default terms, and waits
        for no replica. Raises RefusedError and AwayError."""
        fields = self._fields()
        self._check_secret(fields)
        try:
            terms = Terms(int(fields["milliseconds of lease"]) / 1000, int(fields["milliseconds of margin"]) / 1000)
            facts = Facts(int(fields["workers"]), int(fields["replicas"]), terms, bytes.fromhex(fields["key"]),
                          fields["id"], self._servers_in(fields))
        except (KeyError, ValueError):
            raise self._damaged() from None
        if not 1 <= facts.workers <= WORKERS_MAX or facts.replicas < 0 or len(facts.key) != KEY_BYTES:
            raise self._damaged()
        return facts

    def _servers_in(self, fields: dict[str, str]) -> int:
        """Return the number of servers of Redis. Raises RefusedError if it is not a number above that of the replicas
        that confirm. A cluster of an earlier version did not note it: all replicas confirm."""
        replicas, servers = fields["replicas"], fields.get("servers")
        if servers is None:
            return int(replicas) + 1
        if not servers.isdecimal() or int(servers) <= int(replicas):
            raise self._damaged()
        return int(servers)

    def _damaged(self) -> RefusedError:
        return RefusedError(f"the key {self._keys[0]} in Redis is damaged, or of another version of mosq; restore the "
                            "data of Redis")

    def check_server(self, *, refuses: bool = True) -> list[str]:
        """Return warnings about the configuration of Redis. Raises RefusedError if it may remove data, unless that is
        a warning too, and AwayError."""
        info = _info_of(self._run(None, ["INFO", "everything"])[1])
        found = []
        if removes := self._about_policy(info):
            if refuses:
                raise RefusedError(removes)
            found.append(removes)
        if str(info.get("aof_enabled", "1")) == "0":
            found.append(f"Redis at {self._address} has no append-only file: a restart of it loses messages; set "
                         "`appendonly yes`")
        found += self._about_answers(info)
        return found + self._about_replicas(info) + self._about_sentinels()

    def _about_policy(self, info: "dict[str, Any]") -> str:
        """Return a warning if Redis may remove data, or "". A node looks again while it runs (Inspect)."""
        policy = str(info.get("maxmemory_policy", NO_EVICTION))
        return "" if policy == NO_EVICTION else (
            f"Redis at {self._address} may remove messages: its maxmemory-policy is {policy}; expected {NO_EVICTION}. "
            f"To repair it: redis-cli CONFIG SET maxmemory-policy {NO_EVICTION}, and the same in redis.conf")

    def _about_replicas(self, info: "dict[str, Any]") -> list[str]:
        """Return warnings about the number of replicas."""
        replicas, servers = int(info.get("connected_slaves", 0)), self._servers if self._id else self._counted(info)
        if replicas and not self._replicas:
            return [f"Redis at {self._address} has {replicas} replicas, and the cluster was created for 0: one that "
                    "becomes the primary may lack acknowledged messages. Promote none of them, or create a cluster "
                    "whose messages they confirm (--replicas)"]
        if replicas < self._replicas:
            return [f"Redis at {self._address} has {replicas} of {self._replicas} replicas: no message is "
                    "acknowledged until they are there"]
        if replicas < servers - 1:
            return [f"Redis at {self._address} has {replicas} of {servers - 1} replicas: start the others, since "
                    f"messages are acknowledged only while {self._replicas} follow the primary"]
        if replicas >= servers:
            return [f"Redis at {self._address} has {replicas} replicas, and the cluster was created for "
                    f"{servers - 1}: if one of them becomes the primary, it may lack acknowledged messages. Repeat "
                    "`mosq cluster create` with the same options, and start the nodes again, one after another"]
        if replicas and replicas == self._replicas and self._address.can_fail_over and not self._id:
            return [f"All {replicas} replicas of Redis at {self._address} must confirm each message: after the loss of "
                    "a server none is acknowledged until it is back. Have three servers, of which one must confirm"]
        return []

    def _about_sentinels(self) -> list[str]:
        """Return warnings about the Sentinels, and about the replicas that they know."""
        if not self._address.master:
            return []
        with self._sentinels() as sentinel:
            for one in sentinel.sentinels:
                with suppress(RedisError, OSError):
                    primary = one.sentinel_master(self._address.master)
                    replicas = one.sentinel_slaves(self._address.master)
                    others = one.sentinel_sentinels(self._address.master)
                    return [*self._of_sentinels(primary, replicas, others), *self._of_persistence(replicas)]
        return []

    def _of_sentinels(self, primary: "dict[str, Any]", replicas: "list[dict[str, Any]]",
                      others: "list[dict[str, Any]]") -> "Iterator[str]":
        down_s = int(primary["down-after-milliseconds"]) / 1000
        if down_s >= self._terms.lease_s:
            yield (f"The Sentinels at {self._address} begin a failover when Redis is away for {down_s:g} s, and "
                   f"the lease has {self._terms.lease_s:g} s: each failover ends the workers of all nodes. Give "
                   "`down-after-milliseconds` a lower value, or create a cluster with a longer lease")
        if len(others) + 1 < SENTINELS:
            yield (f"{len(others) + 1} Sentinel{'s' if others else ''} at {self._address}: with fewer than "
                   f"{SENTINELS}, the loss of a machine may leave no majority of them, and no other server becomes the "
                   "primary")
        priorities = {int(replica["slave-priority"]) for replica in replicas}
        if 0 in priorities or len(priorities) > 1:
            yield (f"The replicas of Redis at {self._address} have different values of `replica-priority`, or 0: a "
                   "Sentinel then promotes one that lacks messages which another one has confirmed. Give all servers "
                   "the same value")
        places = {str(server["ip"]) for server in (primary, *replicas)}
        away = sorted({str(other["ip"]) for other in others} - places)
        if not self._id and len(places) > 1 and away:
            yield (f"Sentinels run where no server of Redis does ({', '.join(away)}): cut off together with one "
                   "replica, they promote it, though the other servers go on. Have one Sentinel beside each server of "
                   "Redis, and no others")

    def _of_persistence(self, replicas: "list[dict[str, Any]]") -> "Iterator[str]":
        """A primary that starts again without its data empties its replicas, and each replica may be a primary."""
        for replica in replicas:
            if "s_down" in replica["flags"]:
                continue
            place = str(replica["ip"]), int(replica["port"])
            client = self._client_to(place)
            with suppress(RedisError, OSError):     # it has just gone away, which is another warning
                info = _info_of(client.execute_command("INFO", "persistence"))
                if str(info.get("aof_enabled", "1")) == "0":
                    yield (f"The replica of Redis at {place[0]}:{place[1]} has no append-only file: as the primary, a "
                           "restart of it loses all messages; set `appendonly yes`")
            client.close()

    def _about_answers(self, info: "dict[str, Any]") -> list[str]:
        """Return warnings about the memory and the speed of Redis."""
        found = []
        used, limit = memory_of(info)
        if limit and used >= limit * LITTLE_MEMORY:
            found.append(f"Redis at {self._address} is nearly full: it uses {used >> 20} of {limit >> 20} MiB; from "
                         f"{LITTLE_MEMORY:.0%} on nodes refuse new messages of QoS 1 and 2, until queues are read or "
                         "maxmemory is raised")
        took_s = min(self._answer_s() for _ in range(SLOW_ANSWERS))
        if took_s >= SLOW_S:
            found.append(f"Redis at {self._address} is slow: an answer takes {took_s * 1000:.0f} ms, and each "
                         "acknowledgement waits for one")
        return found

    def _answer_s(self) -> float:
        sent_s = time.monotonic()
        self._run(None, ["INFO", "memory"])
        return time.monotonic() - sent_s

    def damaged_stores(self, facts: Facts) -> list[str]:
        """Return what is missing of each store that was made, as lines for operators. Raises AwayError."""
        marks, found = self._fields(), []
        for worker in range(1, facts.workers + 1):
            if scripts.store_mark(worker) in marks:
                store = self.store(scripts.store_name(self.cluster, facts.id, worker))
                found.append(damage_of(store, self.cluster, facts.id, worker))
        return [f"{text[:1].upper()}{text[1:]}." for text in found if text]

    def deleted_stores(self, facts: Facts, serving: "Iterable[int]") -> list[str]:
        """Return, as lines for operators, the workers of `serving`, from 1, whose store was deleted together with the
        mark that it was made. Raises AwayError."""
        marks = self._fields()
        return [f"Redis has no store of worker {worker} any more: the keys mosq:{{{name}}}:* were deleted, with "
                "acknowledged messages. Its process runs and does not know that. The process ends at its next write, "
                "and the next one begins with an empty store."
                for worker in serving if scripts.store_mark(worker) not in marks
                and not self.store(name := scripts.store_name(self.cluster, facts.id, worker)).head]

    def noted(self) -> dict[str, str]:
        """Return all that nodes and workers have noted for people: texts by field. Raises AwayError."""
        return _pairs(self._run(None, ["HGETALL", scripts.figures_of_cluster(self.cluster)])[1])

    def open(self, workers: int, protocols: tuple[int, int] = (PROTOCOL, PROTOCOL)) -> None:
        """Compare this node's configuration with the cluster. Raises RefusedError and AwayError."""
        fields = self._fields()
        self._check(workers, fields)
        low, high = protocols
        if not fields.get("protocol", "").isdecimal() or "id" not in fields:
            raise self._damaged()
        if not low <= int(fields["protocol"]) <= high:
            raise RefusedError(f"the cluster {self.cluster} has protocol {fields['protocol']}, and this version of "
                               f"mosq knows {low} to {high}")
        self._id, self._servers = fields["id"], self._servers_in(fields)

    def _fields(self) -> dict[str, str]:
        fields = _pairs(self._run(None, ["HGETALL", self._keys[0]])[1])
        if not fields:
            raise RefusedError(f"Redis has no cluster with the name {self.cluster}; create it first (`mosq cluster "
                               "create`), or, if it was there, restore the data of Redis")
        return fields

    def _check_secret(self, fields: dict[str, str]) -> None:
        if "proof" not in fields:
            raise RefusedError(f"the key {self._keys[0]} in Redis is not that of a cluster of mosq")
        try:
            proof = _proof(fields["salt"], self._secret)
        except (KeyError, ValueError):
            raise self._damaged() from None
        if not hmac.compare_digest(fields["proof"].encode(), proof.encode()):
            if fields["proof"] == _proof(fields["salt"], b""):
                raise RefusedError(f"the cluster {self.cluster} has no secret: it was created without --secret-file. "
                                   "To get one, remove the cluster and create it again (docs/cluster.md#redis); a node "
                                   "without cluster_listener needs none")
            raise RefusedError(f"the cluster {self.cluster} has another secret: it is another cluster, or the file "
                               "with the secret is missing or wrong (--secret-file of a command, cluster_secret_file "
                               "of a node)")

    def _check(self, workers: int, fields: dict[str, str], asks: str = "this node is configured for") -> None:
        self._check_secret(fields)
        for what, ours in self._fixed(workers).items():
            if fields.get(what) != ours:
                raise RefusedError(f"the cluster {self.cluster} has {fields.get(what)} {what}, and {asks} {ours}")

    def _fixed(self, workers: int) -> dict[str, str]:
        """Return the values that are the same for all nodes. With two leases, two nodes could run one worker."""
        return {"workers": str(workers), "replicas": str(self._replicas),
                "milliseconds of lease": str(round(self._terms.lease_s * 1000)),
                "milliseconds of margin": str(round(self._terms.margin_s * 1000))}

    # ---- requests of a node

    def ask(self, request: "Request") -> Answer:
        """Send a request; return the answer. Raises AwayError."""
        if isinstance(request, Change) and request.source not in ("", self._source):
            raise AwayError(f"Redis at {self._address}: the connection is new, and another server may answer")
        if isinstance(request, Inspect):
            return Answer(DONE, warning=self._about_policy(_info_of(self._run(None, ["INFO", "memory"])[1])))
        source, answer = self._run(NAMES[type(request)], [self._id, *self._arguments(request)])
        status, rest = answer[0], answer[1:]
        if status == DONE and isinstance(request, Note):
            noted = _pairs(rest[0])
            return Answer(status, None, "", scripts.of_workers(noted), scripts.of_nodes(noted))
        if len(rest) > 1:
            return Answer(status, _view(source, rest, self._keys[3]))
        return Answer(status, None, rest[0] if rest else "")

    def _arguments(self, request: "Request") -> "Sequence[Any]":
        if isinstance(request, Look):
            return ()
        if isinstance(request, Note):
            return [part for pair in request.fields for part in pair]
        if isinstance(request, Send):
            return self.name, self.run, int(request.away)
        if isinstance(request, Change):
            return self.name, self.run, *request[:3]
        return self.name, self.run, *request

    # ---- the document of dynamic security

    def twin(self) -> "Registry":
        """Return another object for the same cluster, with a connection of its own. This one is open."""
        made = Registry(self._address, self.cluster, self.name, self.run, self._terms, replicas=self._replicas,
                        secret=self._secret)
        made._id, made._servers = self._id, self._servers
        return made

    def document(self, known: str = "") -> Found:
        """Return the document that most servers have, without its content if the stamp is `known`. Raises AwayError.
        """
        answer = self._run(scripts.READ, [self._id, known, secrets.token_hex(8)], decoded=False)[1]
        status, *rest = answer
        if status != DONE.encode():
            raise AwayError("the cluster was removed from Redis, or is another one")
        stamp, content, was_made = rest
        return Found(stamp.decode("utf-8", "backslashreplace"), content or b"", bool(was_made))

    def replace_document(self, expected: str, stamp: str, content: bytes) -> tuple[str, str]:
        """Replace the document with the stamp `expected`; the same call again only confirms it. Return DONE or CHANGED,
        and the stamp that Redis has now. Raises AwayError."""
        status, *rest = self._run(scripts.REPLACE, [self._id, expected, stamp, content])[1]
        if status not in (DONE, CHANGED):
            raise AwayError("the cluster was removed from Redis, or is another one", refused=True)
        return status, rest[0]

    # ---- for operators

    def raw(self) -> Raw:
        """Return what Redis has of the nodes. Raises AwayError."""
        answer = self._run(scripts.LOOK, [self._id])[1]
        if answer[0] != DONE:
            raise AwayError("the cluster was removed from Redis, or is another one")
        beats, announcements, table = (_pairs(fields) for fields in answer[1:4])
        return Raw(beats, announcements, table, str(answer[5]))

    def store(self, name: str) -> Store:
        """Return a store. Raises AwayError."""
        *keys, prefix = scripts.keys_of_store(name)
        return store_of(self._run(scripts.STORE, [prefix], keys)[1])

    def close(self) -> None:
        """End the connection."""
        client, self._client, self._source = self._client, None, ""
        if client is not None:
            client.close()

    # ---- Redis

    def _run(self, script: str | None, arguments: "Sequence[Any]", keys: "Sequence[str]" = (), *,
             decoded: bool = True) -> "tuple[str, Any]":
        """Run a script, or a command if there is none; return the identity of the server and the answer, as bytes if it
        is not `decoded`. `keys`: of the script, if they are not those of the cluster."""
        answer: Any = None
        sent = False
        try:
            client = self._client or self._connect()
            pipe = client.pipeline(transaction=False)
            pipe.execute_command("INFO", "replication")
            if script is None:
                pipe.execute_command(*arguments)
            else:
                keys = keys or self._keys
                options = {} if decoded else {NEVER_DECODE: True}
                pipe.execute_command("EVALSHA", self._hashes[script], len(keys), *keys, *arguments, **options)
            confirmations = self._servers // 2
            pipe.execute_command("WAIT", confirmations, int(self._timeout_s * 1000) // 2)
            sent = True
            # an error that the pipeline raises by itself shows the command
            info, answer, confirmed = results = pipe.execute(raise_on_error=False)
            for error in results:
                if isinstance(error, Exception):
                    raise error
            source = _source(info)
        except (RedisError, OSError) as error:
            self.close()
            raise AwayError(f"Redis at {self._address}: {self._without_password(error)}",
                            sent=sent, refused=isinstance(answer, ResponseError)) from None
        except AwayError:
            self.close()
            raise
        if confirmed < confirmations:
            self.close()
            raise AwayError(f"Redis at {self._address}: {confirmed} of {confirmations} replicas have confirmed" + (
                "" if int(_info_of(info)["connected_slaves"]) else
                ". This Redis has no replica now; start one first"))
        self._source = source
        self._following = _following(self._following, source, int(_info_of(info)["connected_slaves"]))
        return source, answer

    def in_step(self) -> int:
        """Return how many replicas must confirm what a worker that starts now writes. One that has just left the
        primary is one of them: it may be another primary."""
        has_left = time.monotonic() - self._following.fewer_s < HOLD_S
        return self._servers - 1 if has_left else self._following.replicas

    def _connect(self) -> redis.Redis:
        """Connect to the primary, and load the scripts."""
        errors: list[str] = []
        for place in self._places():
            client = self._client_to(place)
            try:
                _source(client.execute_command("INFO", "replication"))
                self._hashes = {text: client.script_load(text) for text in
                                (scripts.CREATE, scripts.STORE, scripts.READ, scripts.REPLACE, *NAMES.values())}
            except (RedisError, OSError, AwayError) as error:
                errors.append(self._without_password(error))
                client.close()
            else:
                self._client = client
                return client
        raise AwayError(f"Redis at {self._address}: {'; '.join(dict.fromkeys(errors))}", sent=False)

    def _places(self) -> "list[tuple[str, int] | None]":
        address = self._address
        if address.path:
            return [None]
        if not address.master:
            return list(address.hosts)
        with self._sentinels() as sentinel:
            try:
                return [sentinel.discover_master(address.master)]
            except (MasterNotFoundError, ResponseError):
                raise AwayError(f"Redis at {address}: no Sentinel there answers and knows a primary with the "
                                f"name {address.master}. Check that the Sentinels run, and that the port is theirs and "
                                "not that of Redis", sent=False) from None

    @contextmanager
    def _sentinels(self) -> "Iterator[Sentinel]":
        options = {"socket_timeout": self._timeout_s / 2, "retry": Retry(NoBackoff(), 0), "protocol": 2,
                   "ssl": self._address.tls}
        sentinel = Sentinel(self._address.hosts, sentinel_kwargs=options)
        try:
            yield sentinel
        finally:
            for one in sentinel.sentinels:
                one.close()

    def _client_to(self, place: "tuple[str, int] | None") -> redis.Redis:
        address = self._address
        options: dict[str, Any] = {
            "db": address.db, "username": address.user, "password": address.password, "decode_responses": True,
            "encoding_errors": "backslashreplace",      # of what other programs have written
            "protocol": 2, "single_connection_client": False, "max_connections": 1, "retry": Retry(NoBackoff(), 0),
            "socket_timeout": self._timeout_s, "socket_connect_timeout": self._timeout_s / 2,
        }
        if place is None:
            return redis.Redis(unix_socket_path=address.path, **options)
        return redis.Redis(host=place[0], port=place[1], ssl=address.tls, **options)

    def _without_password(self, error: Exception) -> str:
        text, password = (str(error) or type(error).__name__).rstrip("."), self._address.password
        if isinstance(error, AuthenticationError):
            text += " (the file with the password: --password-file of a command, cluster_password_file of a node)"
        return text.replace(password, "***") if password else text


def load_all() -> None:
    """Import the modules that the package redis imports only when it connects. No Redis has this address."""
    client = redis.Redis(unix_socket_path=NOWHERE, retry=Retry(NoBackoff(), 0))
    with suppress(RedisError, OSError):
        client.pipeline(transaction=False).execute_command("INFO").execute()
    client.close()


def _proof(salt: str, secret: bytes) -> str:
    return hashlib.pbkdf2_hmac("sha256", secret, bytes.fromhex(salt), ROUNDS).hex()


def _info_of(info: "dict[str, Any] | str") -> "dict[str, Any]":
    return info if isinstance(info, dict) else dict(line.split(":", 1) for line in info.splitlines() if ":" in line)


def memory_of(info: "dict[str, Any]") -> tuple[int, int]:
    """Return how many bytes Redis uses of how many: its maxmemory, or the memory of its machine. 0: unknown."""
    used, rss, maximum, machine, uncounted = (int(info.get(name, 0)) for name in (
        "used_memory", "used_memory_rss", "maxmemory", "total_system_memory", "mem_not_counted_for_evict"))
    counted, whole = (used - uncounted, maximum), (max(used, rss), machine)
    if not maximum or (machine and whole[0] * maximum > counted[0] * machine):
        return whole
    return counted


def _source(info: "dict[str, Any] | str") -> str:
    """Return the identity of a server, which changes when it is started again and when it becomes the primary. Raises
    AwayError if it is not the primary."""
    fields = _info_of(info)
    if fields.get("role") != "master":
        raise AwayError("it is a replica, not the primary")
    return str(fields["master_replid"])


def _following(last: Following, source: str, replicas: int) -> Following:
    if source != last.source:
        return Following(source, replicas, float("-inf"))
    return Following(source, replicas, time.monotonic() if replicas < last.replicas else last.fewer_s)


def _pairs(flat: "Sequence[str] | dict[str, str]") -> dict[str, str]:
    """Return a hash of Redis as a dictionary."""
    if isinstance(flat, dict):
        return flat
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _view(source: str, hashes: "Sequence[Sequence[str]]", table_key: str) -> View:
    """Read all hashes, and the stamp of the document. Raises AwayError if a program other than mosq has written to the
    table of workers. A node without an announcement has an empty one, until it announces itself again."""
    beats, announcements, workers, away = map(_pairs, hashes[:4])
    table = {}
    for worker, entry in workers.items():
        try:
            entry_of(entry)
            table[int(worker)] = entry
        except ValueError:
            raise AwayError(f"the table of workers in Redis is damaged: {worker!r} has the value {entry!r}. To repair "
                            f"it: redis-cli HDEL '{table_key}' {worker!r}") from None
    return View(source, beats, {name: announcements.get(name, "") for name in beats}, table, away,
                str(hashes[4]))
