"""Attack the HTTP API over real sockets: unfinished requests, slow readers, requests with two meanings, floods. While an attack lasts,
the health page answers, before a deadline of the attackers' own connections could have freed a place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import uvloop

from mosq.auth.hashes import PBKDF2, new_hash
from mosq.server.http.connections import CONNECTIONS_MAX, REQUEST_WITHIN_S, Connection
from tests.harness.broker import Broker, free_port, has_workers
from tests.http.test_api import ACCESS, ACL, CONFIG, Site, raw

ANSWER_S = REQUEST_WITHIN_S / 2         # a place that frees itself does so later
HEALTH = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = 20 << 20


@pytest.fixture(scope="module")
def site():
    with Site() as running:
        with open(running.broker.dir / "www" / "big", "wb") as file:
            file.writelines(i.to_bytes(8, "big") * 128 for i in range(BIG >> 10))
        assert_healthy(running)         # what the first request opens stays open
        assert running.get("/a.css")[0] == 200
        yield running


def hashed(user, password, iterations):
    return f"{user}:{new_hash(PBKDF2, password.encode(), iterations)}\n"


def web_process(broker):
    """Return the process that serves the HTTP API: with workers, the first child of their parent."""
    pid = broker.process.pid
    if not has_workers():
        return pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return next(int(child) for child in file.read().split() if comm(child) == "mosq: worker 1")


def comm(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def rss_kib(site):
    with open(f"/proc/{web_process(site.broker)}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def descriptors(site):
    return len(os.listdir(f"/proc/{web_process(site.broker)}/fd"))


def wait_until(condition, within_s=30.0):
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def assert_healthy(site, source="127.0.0.1", request=HEALTH):
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", site.web), timeout=ANSWER_S, source_address=(source, 0)) as sock:
        sock.sendall(request)
        out = b""
        while more := sock.recv(65536):
            out += more
    assert out.startswith(b"HTTP/1.1 200"), out
    assert b'"status": "ok"' in out
    print(f"health: {1000 * (time.monotonic() - begin):.0f} ms")


@contextlib.contextmanager
def attackers(site, n, data=b"", receive_bytes=None, sources=("127.0.0.1",)):
    """Open n connections that send `data` and then nothing."""
    socks = []
    try:
        for i in range(n):
            sock = socket.socket()
            socks.append(sock)
            sock.bind((sources[i % len(sources)], 0))
            if receive_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            sock.settimeout(ANSWER_S)
            sock.connect(("127.0.0.1", site.web))
            with contextlib.suppress(ConnectionError):      # evicted already
                sock.sendall(data)
        yield socks
    finally:
        for sock in socks:
            sock.close()


@pytest.mark.parametrize("n", [CONNECTIONS_MAX, 500])
@pytest.mark.parametrize("half", [b"", b"GET /a.css HTTP/1.1\r\nHo", b"\x16\x03\x01",
                                  b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234",
                                  b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12",
                                  b"GET /big HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"],
                         ids=["nothing", "head", "hello", "body", "chunk", "expect"])
def test_health_answers_beside_half_requests(site, half, n):
    before = descriptors(site)
    with attackers(site, n, half):
        for _ in range(3):
            assert_healthy(site)
        assert descriptors(site) <= before + 3 * CONNECTIONS_MAX    # each may hold a file, twice
    wait_until(lambda: descriptors(site) <= before)


def test_health_answers_beside_senders_of_one_byte_at_a_time(site):
    with attackers(site, CONNECTIONS_MAX, b"G") as socks:
        for byte in b"ET /a.css HTTP/1.1\r\nX: " + b"y" * 100:
            for sock in socks:
                with contextlib.suppress(ConnectionError):
                    sock.send(bytes([byte]))
            if byte in b" /:":
                assert_healthy(site)


@pytest.mark.timing
@pytest.mark.parametrize("n", [40, 200])
def test_slow_readers_cost_little_memory_and_give_it_back(site, n):
    assert_healthy(site)
    before, files = rss_kib(site), descriptors(site)
    with attackers(site, n, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n", 4096) as socks:
        open_until = min(n, CONNECTIONS_MAX)
        wait_until(lambda: descriptors(site) >= files + open_until)
        for _ in range(3):
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.recv(1)
            assert_healthy(site)
        most = rss_kib(site)
        assert descriptors(site) <= files + 3 * CONNECTIONS_MAX
    print(f"{n} readers: {most - before} KiB more")
    assert most - before < CONNECTIONS_MAX * 512, "a slow reader costs more than its buffers"
    wait_until(lambda: descriptors(site) <= files)
    assert rss_kib(site) - before < CONNECTIONS_MAX * 256


def test_a_slow_reader_gets_the_whole_file_if_it_takes_each_piece(site):
    digest = hashlib.sha256()
    with open(site.broker.dir / "www" / "big", "rb") as file:
        expected = hashlib.file_digest(file, "sha256").digest()
    with attackers(site, 1, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n", 4096) as [sock]:
        head, _, rest = sock.recv(4096).partition(b"\r\n\r\n")
        while b"\r\n\r\n" not in head + b"\r\n\r\n":
            head += sock.recv(1)
        digest.update(rest)
        size = len(rest)
        while more := sock.recv(1 << 16):
            digest.update(more)
            size += len(more)
    assert size == BIG
    assert digest.digest() == expected


@pytest.mark.parametrize("request_", [HEALTH, b"GET /a.css HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n", b""], ids=["health", "file", "nonsense", "none"])
def test_health_answers_beside_a_flood_of_connections(site, request_):
    stopped = threading.Event()
    sent = [0]

    def flood():
        while not stopped.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", site.web), timeout=1) as sock:
                sock.sendall(request_)
                sent[0] += 1

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: sent[0] > 200)
        for _ in range(5):
            assert_healthy(site, source="127.0.0.2")
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


CL, TE = b"Content-Length: ", b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(("head", "body", "status"), [
    (CL + b"3\r\n" + CL + b"4\r\n", b"abcd", 400), (CL + b"3, 4\r\n", b"abcd", 400), (CL + b"3\r\n" + TE, b"0\r\n\r\n", 400),
    (TE + CL + b"3\r\n", b"0\r\n\r\n", 400), (TE + TE, b"0\r\n\r\n", 400), (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n", 400),
    (b"Transfer-Encoding: identity\r\n", b"", 400), (b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n", 400),
    (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n", 400), (CL + b"+3\r\n", b"abc", 400), (CL + b"0x3\r\n", b"abc", 400),
    (CL + b"3_0\r\n", b"abc", 400), (CL + b"\r\n", b"", 400), (CL + b"9" * 30 + b"\r\n", b"", 400), (CL + b"9" * 15 + b"\r\n", b"", 413),
    (CL + b"1048577\r\n", b"", 413), (TE, b"200000\r\n" + b"x" * 0x20000, 413), (TE, b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n", 413),
    (TE, b"zz\r\n", 400), (TE, b"-1\r\n", 400),
    (TE, b"3\r\nabcdef\r\n0\r\n\r\n", 400), (b"Host: y\r\n", b"", 400), (b"X\x00: y\r\n", b"", 400), (b"X: \x00\r\n", b"", 400), (b" folded\r\n", b"", None),
    (b"".join(b"X%d: y\r\n" % i for i in range(101)), b"", 431), (b"X: " + b"y" * 20_000 + b"\r\n", b"", 431), (b"X: y\r\n" * 3000, b"", 431),
    (b"X: " + b"y" * 500_000 + b"\r\n", b"", 431), (b"X-\xff: y\r\n", b"", 400), (b"X: a\rHost: b\r\n", b"", 400), (b": y\r\n", b"", 400),
    (b"X: a\nY: b\r\n", b"", 400), (b"X: a\n\r\n", b"", 400), (b"X: a\n\n", b"", 400), (b"X: a\r\r\nY: b\r\n", b"", 400),
])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_request_with_two_meanings_is_refused_and_closed(site, method, head, body, status):
    data = method + b" /a.css HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n" + body + b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
    out = raw(site, data)
    assert out.count(b"HTTP/1.1 ") == 1, "a second request was answered"
    assert b"2.1.2 (mosq" not in out
    if status is not None:
        assert int(out.split()[1]) == status
        assert b"connection: close" in out.lower()


@pytest.mark.parametrize(("line", "status"), [
    (b"GET /" + b"a" * 5000 + b" HTTP/1.1", 404), (b"GET /" + b"a" * 20_000 + b" HTTP/1.1", 431), (b"GET /a.css HTTP/2.0", 400), (b"GET /a.css HTTP/0.9", 400),
    (b"GET /a.css HTTP/1.2", 400), (b"GET  /a.css HTTP/1.1", 400), (b"GET /a.css", 400), (b"GET /a\xc3\xa4 HTTP/1.1", 400), (b"G\x00T / HTTP/1.1", 400),
    (b"GET /a b HTTP/1.1", 400), (b"PRI * HTTP/2.0", 400), (b"GET /a.css%5c HTTP/1.1", 404), (b"GET /..%5ca.css HTTP/1.1", 404),
    (b"GET /..\\a.css HTTP/1.1", 404), (b"GET /%c0%ae%c0%ae/mosq.conf HTTP/1.1", 404), (b"GET /%252e%252e/mosq.conf HTTP/1.1", 404),
    (b"GET /%e2%80%ae HTTP/1.1", 404), (b"GET /api%2fv1%2fversion HTTP/1.1", 404), (b"GET /sub%2Findex.html HTTP/1.1", 404), (b"GET /a.css;x HTTP/1.1", 404), (b"GET /a.css#/../x HTTP/1.1", 404),
    (b"GET ?/a.css HTTP/1.1", 404), (b"GET /a.css%2f HTTP/1.1", 404), (b"GET %2fa.css HTTP/1.1", 404), (b"GET //x/a.css HTTP/1.1", 404),
])
def test_request_lines(site, line, status):
    out = raw(site, line + b"\r\nHost: x\r\n\r\n")
    assert int(out.split()[1]) == status


@pytest.mark.parametrize("data", [b"GET /a.css HTTP/1.1\nHost: x\n\n", b"GET /a.css HTTP/1.1\r\nHost: x\n\r\n", b"GET /a.css HTTP/1.1\nHost: x\r\n\r\n"])
def test_a_line_that_ends_without_cr_is_refused_however_it_is_cut(site, data):
    for at in range(1, len(data)):
        connection = SimpleNamespace(_head_end=b"")
        assert Connection._has_bare_line_feed(connection, data[:at]) | Connection._has_bare_line_feed(connection, data[at:])
        good = SimpleNamespace(_head_end=b"")
        lines = data.replace(b"\r", b"").replace(b"\n", b"\r\n") + b"\na body\n"
        assert not Connection._has_bare_line_feed(good, lines[:at])
        assert not Connection._has_bare_line_feed(good, lines[at:])     # the head ends here
    assert raw(site, data).startswith(b"HTTP/1.1 400")


def test_an_upgrade_and_forwarded_headers_have_no_effect(site):
    out = raw(site, b"GET /a.css HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nX-Forwarded-For: 1.2.3.4\r\n"
                    b"X-Forwarded-Proto: https\r\nForwarded: for=1.2.3.4\r\n\r\n")
    assert out.startswith(b"HTTP/1.1 200")
    assert raw(site, b"GET /a.css HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_ranges_and_conditions(site):
    status, body, headers = site.get("/a.css")
    assert (status, headers["Accept-Ranges"]) == (200, "bytes")
    assert site.get("/a.css", headers=[("Range", "bytes=1-2")])[:2] == (206, b" {")
    assert site.get("/a.css", headers=[("Range", "bytes=9-")])[0] == 416
    assert site.get("/a.css", headers=[("Range", "bytes=" + ",".join(f"{i}-{i}" for i in range(500)))])[0] in (200, 416)
    assert site.get("/a.css", headers=[("If-None-Match", headers["ETag"])])[:2] == (304, b"")
    assert site.get("/a.css", headers=[("If-Modified-Since", headers["Last-Modified"])])[:2] == (304, b"")
    assert site.get("/a.css", headers=[("If-None-Match", '"other"')])[:2] == (200, body)


def test_a_file_that_changes_during_its_answer_ends_only_that_answer(site):
    path = site.broker.dir / "www" / "changes"
    path.write_bytes(b"x" * (8 << 20))
    with attackers(site, 1, b"GET /changes HTTP/1.1\r\nHost: x\r\n\r\n", 4096) as [sock]:
        assert sock.recv(100)
        os.truncate(path, 100)
        with contextlib.suppress(ConnectionError):
            while sock.recv(1 << 20):
                pass
    assert site.get("/changes")[:2] == (200, b"x" * 100)


def test_refusals_write_nothing_to_the_log():
    with Site() as running:             # the log of another one may still get a line about an earlier test
        assert_healthy(running)
        before = len(running.broker.log())
        for data in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n" + TE + CL + b"1\r\n\r\n"):
            for _ in range(20):
                raw(running, data)
        assert len(running.broker.log()) == before


def test_all_pages_come_while_many_clients_read_the_statistics(site):
    request = b"GET /api/v1/systree HTTP/1.1\r\nHost: x\r\n\r\n"
    with attackers(site, CONNECTIONS_MAX // 2, request) as socks:
        assert_healthy(site)
        assert all(sock.recv(12) == b"HTTP/1.1 200" for sock in socks)


def test_logins_by_mqtt_are_answered_beside_a_flood_of_guesses_by_http():
    with Site(ACCESS + "auth_backoff false\n", {"passwords": hashed("ann", "anns", 30_000) + hashed("bob", "bobs", 1000), "acl": ACL}) as running:
        guess = b"GET /a.css HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YW5uOmd1ZXNz\r\n\r\n"      # ann:guess
        with attackers(running, CONNECTIONS_MAX // 2, guess, sources=("127.0.0.1", "127.0.0.2")) as socks:
            with socket.create_connection(("127.0.0.1", running.broker.port), timeout=ANSWER_S) as client:
                client.sendall(b"\x10\x18\x00\x04MQTT\x04\xc2\x00\x00\x00\x01b\x00\x03bob\x00\x04bobs")
                assert client.recv(4) == b"\x20\x02\x00\x00"
                # the queue of logins is one for all, so what HTTP may put into it is bounded
                unanswered = len(socks) - len(select.select(socks, [], [], 0)[0])
            assert unanswered >= CONNECTIONS_MAX // 4
            for sock in socks:
                sock.settimeout(30)
                assert sock.recv(12) in (b"HTTP/1.1 401", b"HTTP/1.1 503")      # 503: a busy machine let it wait too long


def test_health_answers_another_address_beside_guesses_with_a_slow_hash():
    """Guesses at the health page do not use up the places of connections and logins. A hash takes some hundredths of a second, and
    much longer beside tests that use both processors."""
    passwords = hashed("ann", "anns", 20_000) + hashed("bob", "bobs", 1000)
    with Site(ACCESS + "auth_backoff false\n", {"passwords": passwords, "acl": ACL}) as running:
        guess = HEALTH.removesuffix(b"\r\n") + b"Authorization: Basic YW5uOmd1ZXNz\r\n\r\n"      # ann:guess
        probe = HEALTH.removesuffix(b"\r\n") + b"Authorization: Basic Ym9iOmJvYnM=\r\n\r\n"      # bob:bobs
        with attackers(running, 100, guess) as socks:
            for _ in range(2):
                assert_healthy(running, source="127.0.0.2", request=probe)
            refused = [sock.recv(12) for sock in select.select(socks, [], [], 0)[0]]
            assert refused.count(b"HTTP/1.1 503") >= CONNECTIONS_MAX // 2, "a network's guesses are not bounded"


def modules_of(config):
    with Broker(config, command=[sys.executable, "-X", "importtime", "-m", "mosq"]) as broker:
        imported = {line.rpartition("|")[2].strip() for line in broker.log().splitlines() if line.startswith("import time:")}
        assert "mosq.server.control" in imported
        return imported


def test_a_broker_without_http_api_loads_no_web_server():
    names = {"uvicorn", "starlette", "uvloop", "h11", "anyio", "asyncio"}
    config = "listener {port} 127.0.0.1\nallow_anonymous true\n"
    assert not names & modules_of(config)
    assert names <= modules_of(f"{config}listener {free_port()} 127.0.0.1\nprotocol http_api\n")


# reports the listening ports at the import of uvloop, which the thread of the HTTP API needs
WATCH_IMPORTS = """
import runpy, sys
def seen(event, args):
    if event == "import" and args[0] == "uvloop":
        rows = [line.split() for line in open("/proc/self/net/tcp")][1:]
        print("uvloop:", *(int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A"), file=sys.stderr, flush=True)
sys.addaudithook(seen)
runpy.run_module("mosq", run_name="__main__", alter_sys=True)
"""


def test_the_server_is_loaded_after_the_sockets_are_open():
    """So a broker that has the HTTP API accepts clients as early as one without it."""
    config = f"listener {{port}} 127.0.0.1\nallow_anonymous true\nlistener {free_port()} 127.0.0.1\nprotocol http_api\n"
    with Broker(config, command=[sys.executable, "-c", WATCH_IMPORTS]) as broker:
        [line] = [line for line in broker.log().splitlines() if line.startswith("uvloop:")]
        assert str(broker.port) in line.split()


def test_one_thread_with_uvloop_serves_all_listeners(serve):
    before = {thread.name for thread in threading.enumerate()}
    server = serve()
    assert server.status() == 200
    assert isinstance(server.api._loop, uvloop.Loop)
    assert {thread.name for thread in threading.enumerate()} - before <= {"mosq-http", "mosq-http-stats_0"}


def test_reloads_beside_slow_clients_leave_nothing_behind(site):
    """Each reload replaces the server, and its connections end."""
    before, log = descriptors(site), len(site.broker.log())
    big = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(5):
        with attackers(site, 40, big, 4096):
            site.broker.send_signal(signal.SIGHUP)
            wait_until(lambda: healthy_beside_reload(site))
    wait_until(lambda: descriptors(site) <= before)
    assert "Error" not in site.broker.log()[log:]


def test_a_reload_lets_an_answer_end_that_is_on_its_way(site):
    """The test repeats: a machine that is busy for seconds may pass the bound."""
    big = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(10):
        with attackers(site, 1, big) as (sock,), contextlib.suppress(ConnectionError):
            assert sock.recv(1)
            site.broker.send_signal(signal.SIGHUP)
            wait_until(lambda: healthy_beside_reload(site))
            size = 0
            while more := sock.recv(1 << 20):
                size += len(more)
            if size > 1 << 20:
                return
    pytest.fail("each reload cut the answer")


def healthy_beside_reload(site):
    with contextlib.suppress(ConnectionError):          # a reload ends the connections of the server that it replaces
        assert_healthy(site)
        return True
    return False


def test_a_process_without_descriptors_answers_again_when_it_has_some():
    with Site(CONFIG + "user root\n") as site:       # only its own user may change the limits of a process
        assert_healthy(site)
        pid = web_process(site.broker)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 4, before[1]))
        try:
            with attackers(site, 20, b"GET /a.css HTTP/1.1\r\nHost: x\r\n"):
                used_s = cpu_s(pid)
                for _ in range(20):     # two for each file
                    with contextlib.suppress(OSError):
                        assert site.get("/a.css")[0] in (200, 503)
                assert cpu_s(pid) - used_s < 5, "the server spins"
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert_healthy(site)
        assert site.get("/a.css")[0] == 200
        assert "Error" not in site.broker.log()


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
