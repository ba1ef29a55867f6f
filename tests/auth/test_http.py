"""Test the HTTP plugin with a real server."""

import json
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mosq.config.errors import ConfigError
from mosq.records import AccessRequest

from .conftest import write_users
from .engine import config_of, plugin_line

LET_IN, REFUSED = 0, 0x87


class Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.connections, self.go = [], 0, threading.Event()
        self.scheme = "http"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def handle_error(self, request, client_address):
        pass                            # a client that does not trust this certificate

    def url(self, path="/auth"):
        return f"{self.scheme}://127.0.0.1:{self.server_port}{path}"

    def stop(self):
        self.go.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.headers["Content-Type"] == "application/json":
            fields = json.loads(body)
        else:
            fields = {name: values[0] for name, values in parse_qs(body, keep_blank_values=True).items()}
        self.server.seen.append((self.path, fields, dict(self.headers)))
        user = fields["username"]
        if user == "slow":
            self.server.go.wait(20)
        if user == "closes":
            self.close_connection = True
            return
        if self.path == "/acl":
            status = 200 if fields["topic"].startswith("open/") else 403
        else:
            status = int(user.removeprefix("s")) if user.startswith("s") and user[1:].isdigit() else 200
        self.send_response(status)
        if status in (301, 307):
            self.send_header("Location", "/elsewhere")
        body = b"" if status == 204 else b"x" * (200_000 if user == "large" else 10)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    service = Service()
    yield service
    service.stop()


def start(engine, service, kind="Http", password_file=None, **options):
    options = {"auth_url": service.url(), **options}
    engine.start(config_of(password_file, [plugin_line(f"python:mosq.auth.http:{kind}", **options)], auth_backoff=False))


@pytest.mark.parametrize("format", ["form", "json"])
def test_fields_of_a_request(engine, service, format):
    start(engine, service, format=format, bearer="t0ken")
    identity = {"common_name": "device", "subject": "CN=device", "certificate_pem": "..."}
    assert engine.login("ann", "pä ss&=".encode(), client_id="c 1", identity=identity) == LET_IN
    path, fields, headers = service.seen[0]
    assert path == "/auth"
    assert fields == {"username": "ann", "password": "pä ss&=", "clientid": "c 1", "address": "192.0.2.1",
                      "common_name": "device"}
    assert headers["Authorization"] == "Bearer t0ken"


@pytest.mark.parametrize(("status", "rc"), [
    (200, LET_IN), (201, LET_IN), (204, LET_IN), (299, LET_IN), (400, REFUSED), (401, REFUSED), (403, REFUSED),
    (404, REFUSED), (499, REFUSED),
])
def test_statuses(engine, service, status, rc):
    start(engine, service)
    assert engine.login(f"s{status}") == rc
    engine.access.tick()
    assert engine.lines == []


@pytest.mark.parametrize("user", ["s500", "s503", "s301", "s307", "closes"])
def test_failures_refuse_and_are_logged_without_secrets(engine, service, user):
    start(engine, service, bearer="t0ken")
    assert engine.login(user, b"hunter2") == REFUSED
    assert [path for path, _, _ in service.seen if path == "/elsewhere"] == []
    engine.access.tick()
    assert len(engine.lines) == 1
    assert "failed in authenticate: HttpError" in engine.lines[0]
    assert "hunter2" not in engine.lines[0]
    assert "t0ken" not in engine.lines[0]
    assert engine.login("ann") == LET_IN


def test_a_stopped_server_refuses_logins(engine, service):
    service.stop()
    start(engine, service)
    assert engine.login("ann") == REFUSED


def test_a_slow_server_delays_only_its_own_requests(engine, service):
    start(engine, service, connections="2", timeout="20")
    engine.access.take([engine.connect("slow")])
    assert engine.login("ann") == LET_IN
    assert len(engine.answers) == 1
    service.go.set()
    engine.wait(lambda so_far: len(so_far) == 2)


def test_no_answer_in_time_is_a_failure(engine, service):
    start(engine, service, timeout="1")
    assert engine.login("slow") == REFUSED
    engine.access.tick()
    assert "HttpError" in engine.lines[0]


def test_connections_are_reused_except_after_a_large_answer(engine, service):
    start(engine, service, connections="1")
    for _ in range(20):
        assert engine.login("ann") == LET_IN
    assert service.connections == 1
    assert engine.login("large") == LET_IN
    assert engine.login("ann") == LET_IN
    assert service.connections == 2


def test_204_can_defer(engine, service, tmp_path):
    write_users(tmp_path / "passwd", s204=b"secret")
    start(engine, service, defer_204="true", password_file=tmp_path / "passwd")
    assert engine.login("s204", b"secret") == LET_IN
    assert engine.login("s204", b"wrong") == REFUSED


def test_a_password_that_is_not_utf8(engine, service):
    start(engine, service)
    assert engine.login("ann", b"\xff\xfe") == REFUSED
    assert service.seen == []


def test_acl(engine, service):
    start(engine, service, "HttpAcl", acl_url=service.url("/acl"))

    def acl(access, topic):
        return engine.ask(AccessRequest(engine.handle(), 0, "c", "ann", "192.0.2.1", access, topic, 0, False)).allowed

    assert acl(4, "open/#") is True
    assert acl(2, "closed/x") is False
    assert acl(8, "closed/x") is True
    assert service.seen[0][:2] == ("/acl", {"username": "ann", "clientid": "c", "topic": "open/#", "acc": "4"})
    assert len(service.seen) == 2


@pytest.mark.parametrize(("options", "says"), [
    ({"auth_url": ""}, "plugin_opt_auth_url"), ({"auth_url": "ftp://x/"}, "plugin_opt_auth_url"),
    ({"auth_url": "http://"}, "plugin_opt_auth_url"), ({"auth_url": "http://[::1"}, "plugin_opt_auth_url"),
    ({"format": "xml"}, "form nor json"), ({"timeout": "0"}, "timeout"), ({"connections": "65"}, "connections"),
    ({"cafile": "/no/such"}, "cafile"), ({"insecure": "true"}, "unknown option 'insecure'"), ({"defer_204": "1"}, "defer_204"),
])
def test_options(engine, service, options, says):
    with pytest.raises(ConfigError, match=says):
        start(engine, service, **options)
    with pytest.raises(ConfigError, match="plugin_opt_acl_url"):
        start(engine, service, "HttpAcl")


@pytest.fixture
def certificate(tmp_path):
    """Return a self-signed certificate of 127.0.0.1: (certificate, key)."""
    from ipaddress import ip_address

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    signed = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
              .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
              .add_extension(x509.BasicConstraints(True, None), True)
              .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
              .sign(key, hashes.SHA256()))
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))
    return [str(path) for path in paths]


def test_certificates_are_checked(engine, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    service = Service(context)
    try:
        start(engine, service)
        assert engine.login("ann") == REFUSED
        assert service.seen == []
        engine.access.close()
        start(engine, service, cafile=certificate[0])
        assert engine.login("ann") == LET_IN
        assert len(service.seen) == 1
    finally:
        service.stop()
