"""Test the HTTP API over real sockets, with the real broker: pages, access, and clients that behave badly."""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time

import pytest

from tests.harness.broker import Broker, free_port
from tests.side.test_side import PEERS

CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
sys_interval 0
listener {web} 127.0.0.1
protocol http_api
http_dir {dir}/www
"""


class Site:
    def __init__(self, config=CONFIG, files=None, **more):
        self.web = free_port()
        self.broker = Broker(config.replace("{web}", str(self.web)), files)
        www = self.broker.dir / "www"
        (www / "sub").mkdir(parents=True)
        (www / "index.html").write_text("<p>hello")
        (www / "a.css").write_text("p {}")
        (www / "sub" / "index.html").write_text("below")
        (www / "link").symlink_to("/etc/passwd")
        (www / "inside").symlink_to("a.css")
        (www / "up").symlink_to("..")
        os.mkfifo(www / "pipe")
        self.tls = more.get("tls")

    def __enter__(self):
        self.broker.start()
        return self

    def __exit__(self, *exception):
        self.broker.close()

    def get(self, path, method="GET", user=None, body=None, headers=()):
        connection = (http.client.HTTPConnection("127.0.0.1", self.web, timeout=10) if self.tls is None else
                      http.client.HTTPSConnection("localhost", self.web, timeout=10, context=self.tls))
        try:
            extra = dict(headers)
            if user:
                extra["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
            connection.putrequest(method, path, skip_host=False)
            for name, value in extra.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers     # their names are found in any case (RFC 9110 5.1)
        finally:
            connection.close()


@pytest.fixture(scope="module")
def site():
    with Site() as running:
        yield running


def test_the_api(site):
    status, body, headers = site.get("/api/v1/version")
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "*")
    assert body.startswith(b"2.1.2 (mosq ")
    status, body, headers = site.get("/api/v1/listeners?x=y")
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {"listeners": [
        {"port": site.broker.port, "protocol": "mqtt", "tls": False, "mtls": False, "allow_anonymous": True},
        {"port": site.web, "protocol": "httpapi", "tls": False, "mtls": False, "allow_anonymous": True}]}
    with socket.create_connection(("127.0.0.1", site.broker.port)) as client:
        client.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a")
        assert client.recv(4)
        tree = json.loads(site.get("/api/v1/systree")[1])
        assert tree["$SYS/broker/clients/connected"] == 1
        assert tree["$SYS/broker/messages/received"] >= 1
        assert all(type(value) is int and value >= 0 for value in tree.values())
    status, body, _ = site.get("/api/v1/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    for path in ("/api/v1/nope", "/api/", "/api/v2/version", "/API/v1/x"):
        assert site.get(path)[0] == 404
    assert f"Opening http api listen socket on port {site.web}." in site.broker.log()
    assert f"Using http_dir {site.broker.dir}/www" in site.broker.log()


def test_files(site):
    assert site.get("/")[1:2] == (b"<p>hello",)
    assert site.get("/")[2]["Content-Type"] == "text/html"
    assert site.get("/a.css?v=1")[2]["Content-Type"] == "text/css"
    assert site.get("/sub/")[1] == b"below"
    assert site.get("/inside")[1] == b"p {}"


@pytest.mark.parametrize("path", [
    "/../mosq.conf", "/sub/../../mosq.conf", "/%2e%2e/mosq.conf", "/..%2fmosq.conf", "/link", "/up/mosq.conf", "/sub", "/pipe", "/none",
    # several names for one page would evade access rules
    "/sub/../a.css", "//a.css", "/./a.css", "/sub//index.html", "/sub/%2e%2e/a.css", "/%2e/a.css", "/sub/.", "/..",
    "/a.css/", "/a.css%00", "/%ff", "//etc/passwd", "/a.css%0a", "/" + "a" * 5000, "*", "http://x/a.css",
])
def test_paths_outside_of_http_dir_are_not_found(site, path):
    assert site.get(path)[:2] == (404, b"Not found.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_other_methods(site, method):
    status, body, headers = site.get("/", method, body=b"x" * 200_000 if method in ("POST", "PUT") else None)
    assert (status, body, headers["Allow"]) == (405, b"Invalid HTTP Method\n", "GET, HEAD")


@pytest.mark.parametrize(("path", "size"), [("/", 8), ("/a.css", 4), ("/none", 11), ("/api/v1/version", None)])
def test_head_is_get_without_the_body(site, path, size):
    status, body, headers = site.get(path, "HEAD")
    assert (status, body) == (site.get(path)[0], b"")
    assert size is None or int(headers["Content-Length"]) == size


def raw(site, data, timeout_s=10):
    with socket.create_connection(("127.0.0.1", site.web), timeout=timeout_s) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        out = b""
        try:
            while more := sock.recv(65536):
                out += more
        except ConnectionResetError:
            pass
        return out


@pytest.mark.parametrize(("data", "begins"), [
    (b"\x16\x03\x01\x02\x00", b""), (b"nonsense\r\n\r\n", b"HTTP/1.1 400"), (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
    (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200"), (b"", b""), (b"GET / HT", b""),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", b"HTTP/1.1 431"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 400"),
    (b"GET /" + b"a" * 40_000, b"HTTP/1.1 431"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
])
def test_invalid_requests(site, data, begins):
    out = raw(site, data)
    assert out.startswith(begins)
    assert bool(out) or not begins
    assert out.count(b"HTTP/1.1") <= 1
    assert site.get("/a.css")[0] == 200


def test_slow_requests_and_many_idle_connections(site):
    idle = [socket.create_connection(("127.0.0.1", site.web)) for _ in range(100)]
    try:
        cut = 0
        for sock in idle:                       # connections beyond the limit are closed
            sock.settimeout(0.05)
            try:
                cut += sock.recv(1) == b""
            except ConnectionResetError:
                cut += 1
            except TimeoutError:
                pass
        assert cut >= 30
    finally:
        for sock in idle:
            sock.close()
    deadline = time.monotonic() + 10
    while True:
        with socket.create_connection(("127.0.0.1", site.web), timeout=10) as sock:
            try:
                for byte in b"GET /a.css HTTP/1.1\r\nHost: x\r\n\r\n":
                    sock.sendall(bytes([byte]))
                if sock.recv(4096).startswith(b"HTTP/1.1 200"):
                    return
            except (ConnectionResetError, BrokenPipeError):
                pass
        assert time.monotonic() < deadline


ACCESS = """listener {port} 127.0.0.1
sys_interval 0
password_file {dir}/passwords
acl_file {dir}/acl
listener {web} 127.0.0.1
protocol http_api
http_dir {dir}/www
"""
ACL = """user ann
topic read /api/v1/systree
topic read /+
user bob
topic deny /api/v1/version
topic readwrite /api/v1/#
topic write /a.css
user cat
topic deny /sub/index.html
topic read /#
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    path = tmp_path_factory.mktemp("passwords") / "p"
    path.touch()
    for user in ("ann", "bob", "cat"):
        subprocess.run([os.sys.executable, "-m", "mosq", "passwd", "-b", str(path), user, f"{user}s"], check=True, capture_output=True)
    with Site(ACCESS, {"passwords": path.read_text(), "acl": ACL}) as running:
        yield running


@pytest.mark.parametrize(("user", "path", "status"), [
    (None, "/api/v1/version", 401), ("ann:anns", "/api/v1/systree", 200), ("ann:bobs", "/api/v1/systree", 401), ("eve:x", "/a.css", 401),
    ("ann:anns", "/a.css", 200), ("ann:anns", "/sub/", 403), ("ann:anns", "/api/v1/version", 403), ("bob:bobs", "/api/v1/version", 403),
    ("cat:cats", "/sub/index.html", 403), ("cat:cats", "/sub/", 403), ("cat:cats", "/", 200), ("ann:anns", "/", 200),
    ("bob:bobs", "/api/v1/health", 200), ("bob:bobs", "/a.css", 403), (":", "/a.css", 401), ("ann", "/a.css", 401),
])
def test_users_and_rules_are_the_same_as_for_mqtt(guarded, user, path, status):
    got, body, headers = guarded.get(path, user=user)
    assert got == status
    if status == 401:
        assert body == b"Not authorised\n"
        assert headers["WWW-Authenticate"] == 'Basic realm="Mosquitto API"'
    if status == 403:
        assert body == b"This user may not read this page: the access rules of the broker do not allow it.\n"
        assert "WWW-Authenticate" not in headers        # another password would not help
    assert "anns" not in guarded.broker.log()


def test_an_invalid_authorization_header(guarded):
    for value in ("Basic", "Basic ???", "Bearer x", "Basic " + base64.b64encode(b"\xff:x").decode()):
        assert guarded.get("/a.css", headers=[("Authorization", value)])[0] == 401


def test_requests_without_a_user_need_allow_anonymous():
    with Site(CONFIG.replace("allow_anonymous true", "allow_anonymous false")) as running:
        assert running.get("/a.css")[0] == 401
        assert "HTTP login" not in running.broker.log()     # a browser's first request is no failed login
        assert running.get("/a.css", user="ann:x")[0] == 401
        deadline = time.monotonic() + 60
        while "HTTP login from 127.0.0.1 as 'ann' failed." not in running.broker.log():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.one_process("a reload moves a listener, which needs a restart with workers")
def test_tls_and_reload(tmp_path):
    for name in ("one", "two"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / f"{name}.key"), "-out",
                        str(tmp_path / f"{name}.crt")], check=True, capture_output=True)
    files = {"crt": (tmp_path / "one.crt").read_text(), "key": (tmp_path / "one.key").read_text()}
    config = CONFIG + "certfile {dir}/crt\nkeyfile {dir}/key\n"
    with Site(config, files, tls=ssl.create_default_context(cafile=tmp_path / "one.crt")) as running:
        assert running.get("/a.css")[0] == 200
        assert json.loads(running.get("/api/v1/listeners")[1])["listeners"][1]["tls"] is True
        with pytest.raises(OSError):
            raw(running, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") or (_ for _ in ()).throw(OSError)
        for name in ("crt", "key"):
            (running.broker.dir / name).write_text((tmp_path / f"two.{name}").read_text())
        running.broker.send_signal(signal.SIGHUP)
        running.tls = ssl.create_default_context(cafile=tmp_path / "two.crt")
        deadline = time.monotonic() + 10
        while True:
            try:
                assert running.get("/a.css")[0] == 200
                break
            except (ssl.SSLError, OSError):
                assert time.monotonic() < deadline, running.broker.log()
                time.sleep(0.02)
        (running.broker.dir / "crt").write_text("nonsense")
        running.broker.send_signal(signal.SIGHUP)
        while "the old one stays in force" not in running.broker.log():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert running.get("/a.css")[0] == 200
        # another port, and none
        text = running.broker.config.read_text()
        other = free_port()
        running.broker.config.write_text(text.replace(str(running.web), str(other)).split("certfile")[0])
        running.broker.send_signal(signal.SIGHUP)
        while f"Opening http api listen socket on port {other}." not in running.broker.log():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.web, old, running.tls = other, running.web, None
        assert running.get("/a.css")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", old))
        running.broker.config.write_text("\n".join(text.split("\n")[:3]))
        running.broker.send_signal(signal.SIGHUP)
        while True:
            try:
                socket.create_connection(("127.0.0.1", other)).close()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            except ConnectionRefusedError:
                break
        assert running.broker.stop() == 0


@pytest.mark.one_process("their parent listens before a worker finds the error, so the start looks like a success: tests/workers/test_parent.py")
def test_a_port_in_use_and_a_bad_certificate():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        site = Site(CONFIG.replace("{web}", str(taken.getsockname()[1])))
        with pytest.raises(RuntimeError, match=r"status 1.*\n(.*\n)*Error: Address already in use: cannot listen on 127.0.0.1 port "):
            site.broker.start()
        shutil.rmtree(site.broker.dir)
    site = Site(CONFIG + "certfile {dir}/none\nkeyfile {dir}/none\n")
    with pytest.raises(RuntimeError, match=r"status [13]"):
        site.broker.start()
    assert "none" in site.broker.log()
    shutil.rmtree(site.broker.dir)


def side_by_side(tmp_path, site):
    port, web = free_port(), free_port()
    conf = tmp_path / "m.conf"
    conf.write_text(CONFIG.replace("{port}", str(port)).replace("{web}", str(web)).replace("{dir}", str(site.broker.dir)) + "user root\n")
    with subprocess.Popen([PEERS["2.1"], "-c", str(conf)], stderr=subprocess.DEVNULL) as process:
        theirs = Site.__new__(Site)
        theirs.web, theirs.tls = web, None
        deadline = time.monotonic() + 10
        while True:
            try:
                theirs.get("/a.css")
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        try:
            for path in ("/", "/a.css", "/sub/", "/none", "/link", "/../mosq.conf", "/api/v1/nope"):
                assert theirs.get(path)[:2] == site.get(path)[:2], path
            assert theirs.get("/", "POST")[:2] == site.get("/", "POST")[:2]
            trees = [json.loads(one.get("/api/v1/systree")[1]) for one in (theirs, site)]
            assert set(trees[0]) == set(trees[1])
            listeners = [json.loads(one.get("/api/v1/listeners")[1])["listeners"] for one in (theirs, site)]
            assert [{**one, "port": 0} for one in listeners[0]] == [{**one, "port": 0} for one in listeners[1]]
        finally:
            process.terminate()


if "2.1" in PEERS:      # no Mosquitto with an HTTP API is packaged; MOSQ_PEER_21 names one
    test_side_by_side = pytest.mark.interop(side_by_side)
