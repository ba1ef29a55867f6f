"""Test faults of Redis and of the way to it, one at a time: each has one outcome."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from cext.testing.disk_api import CalledFiles
from mosq._redis import LogFiles, RedisConnection, RedisError
from mosq.server.node.parent import LOST_OPERATIONS
from tests.harness.broker import free_port
from tests.harness.faults import until
from tests.harness.proxy import Proxy
from tests.harness.redis import Sentinel
from tests.redis.server import Server

pytestmark = pytest.mark.part("redis")

NEW = os.O_RDWR | os.O_CREAT


@pytest.fixture
def own() -> Iterator[Server]:
    """Provide a Redis that the test may stop and configure."""
    with Server() as running:
        yield running


def written(log: LogFiles, data: bytes, name: str = "/d/a", at: int = 0) -> CalledFiles:
    """Write a file, without a sync."""
    calls = CalledFiles(log)
    fd = calls.open(name, NEW)
    assert calls.pwrite(fd, data, at) == len(data)
    assert calls.close(fd) == 0
    return calls


def content(log: LogFiles, name: str = "/d/a") -> bytes | int:
    calls = CalledFiles(log)
    fd = calls.open(name, os.O_RDONLY)
    try:
        return calls.pread(fd, 1 << 20, 0)
    finally:
        calls.close(fd)


def refusal(calls: CalledFiles, expected: int) -> str:
    got = calls.datasync(1)
    assert got == -expected, (got, calls.why(-got))
    return calls.why(got)


# ---- the owner

def test_an_older_token_is_refused_and_changes_nothing(server: Server) -> None:
    old = server.files(token=7)
    calls = written(old, b"before")
    assert calls.datasync(1) == 0
    new = server.files(token=8)
    assert content(new) == b"before"
    written(old, b"behind")
    assert "another process has taken this store" in refusal(calls, errno.ESTALE)
    assert old.ended
    assert not new.ended
    assert content(old) == -errno.ESTALE
    assert content(new) == b"before"
    for token in (3, 7, 8):
        with pytest.raises(RedisError, match="another process has taken"):
            server.files(token=token)
    assert server.files().token == 9


def test_operations_sent_before_the_token_changed_are_refused(server: Server) -> None:
    old = server.files()
    calls = written(old, b"x" * 100_000)        # enough to be sent at once
    assert calls.datasync(1) == 0
    server.cut()
    written(old, b"late")
    new = server.files()
    assert "another process" in refusal(calls, errno.ESTALE)
    assert content(new) == b"x" * 100_000


def test_operations_that_redis_reads_after_a_claim_are_refused(own: Server) -> None:
    """Let the operations of the old owner wait in Redis' socket when the next owner comes: Redis reads them piece by piece."""
    old = own.files()
    calls = written(old, b"")
    assert calls.datasync(1) == 0
    own.pause()
    for n in range(200):
        written(old, bytes(1000), at=1000 * n)
    with ThreadPoolExecutor() as pool:
        claim = pool.submit(own.files)
        own.resume()
        new = claim.result()
    number = own.head()[b"number"]
    at_claim = CalledFiles(new)
    size = at_claim.size(at_claim.open("/d/a", os.O_RDONLY))
    assert "another process" in refusal(calls, errno.ESTALE)
    assert own.call("STRLEN", "mosq:{log}:f:1") == size
    assert own.head()[b"number"] == number


def test_an_operation_that_comes_twice_is_done_once(server: Server) -> None:
    """Call the function in Redis as a delayed operation of a closed connection does."""
    source = (Path(__file__).parents[2] / "cext/redis/scripts.pyx").read_text()
    text = source.partition('APPLY_TEXT = b"""')[2].partition('"""')[0]
    token = server.files().token
    keys = [f"mosq:{{log}}:{key}" for key in ("head", "names", "gone", "f:1")]

    def apply(number: int, data: str) -> object:
        return server.call("EVAL", text, 4, *keys, token, number, "write", 0, data, "0")

    assert [apply(1, "one"), apply(2, "two"), apply(1, "one")] == [1, 2, 2]
    assert server.call("GET", keys[3]) == b"two"
    with pytest.raises(RedisError, match="MISSING"):
        apply(4, "four")
    assert server.call("GET", keys[3]) == b"two"


def test_a_claim_that_a_failover_has_lost_is_repeated(server: Server) -> None:
    first = server.files()
    assert written(first, b"one").datasync(1) == 0
    state = server.call("HGETALL", "mosq:{log}:head")
    assert isinstance(state, list)
    second = server.files()
    calls = written(second, b"two", "/d/b")
    server.call("HSET", "mosq:{log}:head", *state)      # type: ignore[arg-type]
    server.cut()
    assert calls.datasync(1) == 0
    assert (content(second), content(second, "/d/b")) == (b"one", b"two")
    assert server.head()[b"token"] == b"2"


def test_a_store_that_was_created_again_has_no_earlier_owner(server: Server) -> None:
    """Empty Redis, and create the store again with a smaller token: the old owner finds the number that it knows, 0."""
    old = server.files(token=1000)
    assert written(old, b"old").datasync(1) == 0
    server.call("FLUSHALL")
    new = server.files()
    assert new.token == 1
    server.cut()
    assert "another process has taken this store" in refusal(written(old, b"more"), errno.ESTALE)
    assert written(new, b"new").datasync(1) == 0
    assert content(server.files()) == b"new"


# ---- the connection

def test_a_cut_at_any_byte_does_each_operation_once(server: Server) -> None:
    with Proxy(server.port) as proxy:
        log = LogFiles(RedisConnection([("127.0.0.1", proxy.port)]), "log")
        calls = CalledFiles(log)
        for n in range(60):
            proxy.cut()
            proxy.cut_after = 3000 + 61 * n     # connecting needs about 3500 bytes
            old, new = f"/d/{n}", f"/d/{n}.new"
            fd = calls.open(new, NEW | os.O_EXCL)
            calls.pwrite(fd, b"first", 0)
            calls.pwrite(fd, b"last!", 0)
            calls.rename(new, old)
            while (got := calls.datasync(fd)) != 0:
                assert got == -errno.ENOTCONN, calls.why(got)
            while (read := calls.pread(fd, 100, 0)) == -errno.ENOTCONN:     # the cut may come as late as here
                pass
            assert read == b"last!"
            calls.close(fd)
            assert int(server.head()[b"number"]) == log.counts()["given"]
        assert proxy.n_cuts > 60
        assert sorted(calls.names("/d")) == sorted(str(n) for n in range(60))
        assert log.counts()["resent"]


def test_a_lost_reply_does_not_do_an_operation_twice(server: Server) -> None:
    """Redis does the operations, and the connection ends: other operations on the same bytes come behind them."""
    clients = server.clients()
    with Proxy(server.port) as proxy:
        log = LogFiles(RedisConnection([("127.0.0.1", proxy.port)], timeout_ms=300), "log")
        calls = written(log, b"a" * 70_000)         # sent at once
        number = log.counts()["given"]
        until(lambda: int(server.head()[b"number"]) == number)
        proxy.cut()
        until(lambda: server.clients() == clients)
        written(log, b"bbb")
        written(log, b"ccc", at=70_000)
        assert calls.datasync(1) == 0
        assert log.counts()["resent"] >= 2
        assert content(log) == b"bbb" + b"a" * 69_997 + b"ccc"
        assert int(server.head()[b"number"]) == log.counts()["given"]


def test_a_slow_redis_delays_a_sync_and_loses_nothing(own: Server) -> None:
    log = own.files(timeout_ms=200)
    calls = written(log, b"slow")
    own.pause()
    assert "no answer in time" in refusal(calls, errno.ENOTCONN)
    written(log, b"more", "/d/b")
    assert calls.datasync(1) == -errno.ENOTCONN
    own.resume()
    until(lambda: calls.datasync(1) == 0)
    assert (content(log), content(log, "/d/b")) == (b"slow", b"more")


def test_redis_is_killed_and_starts_again(own: Server) -> None:
    log = own.files()
    calls = written(log, b"kept")
    assert calls.datasync(1) == 0
    own.kill()
    written(log, b"more", "/d/b")
    assert "Connection refused" in refusal(calls, errno.ENOTCONN)
    own.start()
    assert calls.datasync(1) == 0
    assert (content(log), content(log, "/d/b")) == (b"kept", b"more")
    assert content(own.files(), "/d/b") == b"more"


def test_waiting_operations_are_bounded(own: Server) -> None:
    log = own.files()
    calls = CalledFiles(log)
    fd = calls.open("/d/a", NEW)
    own.kill()
    piece = bytes(1 << 20)
    taken = 0
    while (got := calls.pwrite(fd, piece, taken << 20)) == len(piece):
        taken += 1
        assert taken < 100
    assert got == -errno.ENOTCONN
    assert taken >= 32
    own.start()
    assert calls.pwrite(fd, piece, taken << 20) == len(piece)
    assert calls.datasync(fd) == 0
    assert calls.size(fd) == own.call("STRLEN", f"mosq:{{log}}:f:{1}") == (taken + 1) << 20


# ---- Redis itself

def test_out_of_memory_is_a_full_disk_until_there_is_room(own: Server) -> None:
    log = own.files()
    calls = written(log, b"before" * 1000)
    assert calls.datasync(1) == 0
    own.call("CONFIG", "SET", "maxmemory", "1")
    fd = calls.open("/d/b", NEW)
    calls.pwrite(fd, b"new", 0)
    assert "no memory left" in refusal(calls, errno.ENOSPC)
    calls.pwrite(fd, b"more", 3)
    assert calls.datasync(fd) == -errno.ENOSPC
    assert content(log) == b"before" * 1000             # its bytes are in Redis, so they can be read
    assert calls.pread(fd, 100, 0) == -errno.ENOSPC     # these wait
    own.call("CONFIG", "SET", "maxmemory", "0")
    assert calls.datasync(fd) == 0
    assert calls.pread(fd, 100, 0) == b"newmore"
    assert int(own.head()[b"number"]) == log.counts()["given"]


def test_a_full_redis_lets_a_process_start_and_make_room(own: Server) -> None:
    log = own.files()
    calls = written(log, b"before" * 1000)
    calls = written(log, b"header", "/d/b")
    assert calls.datasync(1) == 0
    own.call("CONFIG", "SET", "maxmemory", "1")
    log = own.files()
    calls = written(log, b"HEADER", "/d/b")         # needs no more memory
    assert calls.unlink("/d/a") == 0
    fd = calls.open("/d/b", os.O_RDWR)
    assert calls.truncate(fd, 3) == 0
    assert calls.datasync(1) == 0
    assert content(log, "/d/b") == b"HEA"
    assert own.contents() == 1


def test_a_read_only_replica_is_no_place_for_a_store(own: Server) -> None:
    with Server(f"replicaof 127.0.0.1 {own.port}") as replica:
        until(lambda: own.replicas_online() == 1)
        with pytest.raises(RedisError, match="is a replica, which cannot be written to"):
            replica.files()


def test_a_replica_that_is_named_first_is_left_for_the_primary(own: Server) -> None:
    with Server(f"replicaof 127.0.0.1 {own.port}") as replica:
        until(lambda: own.replicas_online() == 1)
        log = LogFiles(RedisConnection([("127.0.0.1", replica.port), ("127.0.0.1", own.port)]), "log", replicas=1)
        calls = written(log, b"first")
        until(lambda: calls.datasync(1) == 0)
        assert content(log) == b"first"


def test_a_command_is_sent_again_to_the_place_that_is_no_replica(own: Server) -> None:
    with Server(f"replicaof 127.0.0.1 {own.port}") as replica:
        until(lambda: own.replicas_online() == 1)
        connection = RedisConnection([("127.0.0.1", replica.port), ("127.0.0.1", own.port)])
        assert connection.call("SET", "key", "value") == b"OK"
        with pytest.raises(RedisError, match="READONLY"):
            RedisConnection([("127.0.0.1", replica.port)]).call("SET", "key", "value")


def test_a_store_follows_the_primary_to_the_next_place(own: Server) -> None:
    """No Sentinel: the store has the list of places only. The old primary answers after the failover, as a replica."""
    with Server(f"replicaof 127.0.0.1 {own.port}") as second:
        until(lambda: own.replicas_online() == 1)
        log = LogFiles(RedisConnection([("127.0.0.1", own.port), ("127.0.0.1", second.port)]), "log", replicas=1)
        calls = written(log, b"before")
        until(lambda: calls.datasync(1) == 0)
        second.call("REPLICAOF", "NO", "ONE")
        own.call("REPLICAOF", "127.0.0.1", second.port)
        until(lambda: second.replicas_online() == 1)
        written(log, b"behind")
        until(lambda: calls.datasync(1) == 0)
        assert content(log) == b"behind"
        assert second.head()[b"token"] == b"1"


def test_a_redis_that_becomes_a_replica_takes_nothing(own: Server) -> None:
    log = own.files()
    calls = written(log, b"before")
    assert calls.datasync(1) == 0
    own.call("REPLICAOF", "127.0.0.1", free_port())
    written(log, b"behind")
    refusal(calls, errno.ENOTCONN)
    own.call("REPLICAOF", "NO", "ONE")
    assert calls.datasync(1) == 0
    assert content(log) == b"behind"


def test_an_empty_redis_is_not_written_to(own: Server) -> None:
    log = own.files()
    calls = written(log, b"before")
    assert calls.datasync(1) == 0
    own.kill()
    for path in (own.folder / "appendonlydir", own.folder / "appendonly.aof"):
        if path.is_dir():
            for file in path.iterdir():
                file.unlink()
        path.unlink() if path.is_file() else None
    own.start()
    written(log, b"behind")
    assert "it was restarted empty, or it is another Redis" in refusal(calls, errno.ESTALE)
    assert log.ended
    assert own.call("DBSIZE") == 0
    with pytest.raises(RedisError, match="restarted empty"):
        LogFiles(own.connection(), "log", create=False)
    with pytest.raises(RedisError, match="restarted empty"):
        log.close()


def test_an_older_state_of_redis_is_noticed(own: Server) -> None:
    """Restore Redis with a state that lacks operations which are not kept any more."""
    log = own.files()
    calls = written(log, b"one")
    assert calls.datasync(1) == 0
    number = own.head()[b"number"]
    for n in range(12):             # more than is kept for a failover
        written(log, bytes(1 << 20), f"/d/{n}")
        assert calls.datasync(1) == 0
    own.call("HSET", "mosq:{log}:head", "number", number)
    own.cut()
    written(log, b"two")
    assert "has lost operations that it had confirmed" in refusal(calls, errno.ESTALE)
    assert log.ended and LOST_OPERATIONS in log.why_ended


@pytest.mark.parametrize("number", ["100000", "1e300", "18446744073709551615"])
@pytest.mark.parametrize("again", [False, True])
def test_a_number_above_that_of_the_last_operation_confirms_nothing(own: Server, number: str, again: bool) -> None:
    """Test that an operation which Redis takes for an old one is not taken for done. `again`: the connection ends first."""
    log = own.files()
    calls = written(log, b"one")
    assert calls.datasync(1) == 0
    own.call("HSET", "mosq:{log}:head", "number", number)
    if again:
        own.cut()
    written(log, b"two")
    assert "the head of the store is damaged: another program has changed it (DAMAGED" in refusal(calls, errno.ESTALE)
    assert log.ended


def test_a_head_without_a_number_ends_the_store_and_not_the_process(own: Server) -> None:
    log = own.files()
    calls = written(log, b"one")
    assert calls.datasync(1) == 0
    own.call("HDEL", "mosq:{log}:head", "number")
    own.cut()
    written(log, b"two")
    assert "the head of the store is damaged" in refusal(calls, errno.ESTALE)
    with pytest.raises(RedisError, match="the head of the store is damaged"):
        LogFiles(own.connection(), "log", create=False)


def test_lost_operations_that_are_kept_are_sent_again_and_reported(own: Server) -> None:
    log = own.files()
    calls = written(log, b"one")
    assert calls.datasync(1) == 0
    state = own.call("HGETALL", "mosq:{log}:head")
    assert isinstance(state, list)
    written(log, b"two", "/d/b")
    assert calls.datasync(1) == 0
    own.call("HSET", "mosq:{log}:head", *state)     # type: ignore[arg-type]
    own.call("HDEL", "mosq:{log}:names", "/d/b")
    own.cut()
    written(log, b"three", "/d/c")
    assert "had lost 2 operations that it had confirmed" in refusal(calls, errno.ENODATA)
    assert calls.datasync(1) == 0
    assert content(own.files(), "/d/b") == b"two"


def test_a_policy_that_removes_keys_is_refused(own: Server) -> None:
    own.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(RedisError, match="set its maxmemory-policy to noeviction"):
        own.files()


# ---- logins and addresses

def test_a_wrong_password_is_named_and_not_shown() -> None:
    with Server(password="right") as own:
        places = [("127.0.0.1", own.port)]
        assert own.files().token == 1
        with pytest.raises(RedisError, match=r"refuses the login: WRONGPASS") as caught:
            LogFiles(RedisConnection(places, password="secret-but-wrong"), "log")
        assert "secret" not in str(caught.value)
        with pytest.raises(RedisError, match="NOAUTH"):
            LogFiles(RedisConnection(places), "log")


def test_a_user_with_the_rights_of_a_store_is_enough(own: Server) -> None:
    own.call("ACL", "SETUSER", "mosq", "on", ">word", "~mosq:*", "+@hash", "+@string", "+@scripting", "+del", "+wait", "+info", "+auth")
    log = LogFiles(RedisConnection([("127.0.0.1", own.port)], user="mosq", password="word"), "log", replicas=0)
    calls = written(log, b"x")
    assert calls.rename("/d/a", "/d/b") == 0
    assert calls.datasync(1) == 0
    assert content(log, "/d/b") == b"x"


def test_the_next_place_is_tried(server: Server) -> None:
    log = LogFiles(RedisConnection([("127.0.0.1", free_port()), ("127.0.0.1", server.port)]), "log")
    assert log.token == 1


def test_a_unix_socket_and_a_number_of_a_database() -> None:
    with Server("unixsocket s") as own:
        log = LogFiles(RedisConnection([(str(own.folder / "s"), 0)], database=3), "log")
        assert written(log, b"x").datasync(1) == 0
        assert own.call("DBSIZE") == 0
        own.call("SELECT", 3)
        assert own.contents() == 1


def test_a_server_that_is_no_redis_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(RedisError, match="no answer in time"):
        LogFiles(RedisConnection([("127.0.0.1", other.getsockname()[1])], timeout_ms=100), "log")


# ---- replicas

def test_a_replica_that_does_not_confirm_leaves_a_sync_in_doubt(own: Server) -> None:
    with Server(f"replicaof 127.0.0.1 {own.port}") as replica:
        until(lambda: own.replicas_online() == 1)
        logs: list[LogFiles] = []

        def is_open() -> bool:
            with suppress(RedisError):          # on a busy machine the replica may be late
                logs.append(own.files(replicas=1, timeout_ms=1000))
            return bool(logs)

        until(is_open)
        log = logs[0]
        calls = written(log, b"one")
        until(lambda: calls.datasync(1) == 0)
        replica.pause()
        written(log, b"two")
        assert "only 0 of 1 replicas" in refusal(calls, errno.ENOTCONN)
        own.cut()                       # WAIT as the first command of a connection returns at once: it must not count
        assert calls.datasync(1) == -errno.ENOTCONN
        replica.resume()
        until(lambda: calls.datasync(1) == 0)
        assert content(log) == b"two"


def test_an_acknowledged_operation_survives_a_failover_by_sentinel() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Server())
        second = stack.enter_context(Server(f"replicaof 127.0.0.1 {first.port}"))
        sentinel = stack.enter_context(Sentinel(first, "store", down_after_milliseconds=3000))
        until(lambda: first.replicas_online() == 1)
        until(sentinel.knows_a_replica)
        connection = RedisConnection([("127.0.0.1", free_port()), ("127.0.0.1", sentinel.port)], service="store", timeout_ms=6000)
        log = LogFiles(connection, "log", replicas=1)
        calls = CalledFiles(log)
        fd = calls.open("/d/a", NEW)
        for n in range(200):
            assert calls.pwrite(fd, b"%06d" % n, 6 * n) == 6
        until(lambda: calls.datasync(fd) == 0)
        calls.pwrite(fd, b"later!", 1200)
        first.kill()
        assert calls.datasync(fd) == -errno.ENOTCONN
        until(second.is_primary)
        with first.conf.open("a") as conf:
            conf.write(f"replicaof 127.0.0.1 {second.port}\n")
        first.start()
        until(lambda: calls.datasync(fd) == 0)
        assert calls.pread(fd, 2000, 0) == b"".join(b"%06d" % n for n in range(200)) + b"later!"
        assert int(second.head()[b"number"]) == log.counts()["given"] == log.counts()["safe"]
