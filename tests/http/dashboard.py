"""A broker with a dashboard, users with different rights, and clients, for the tests of the dashboard and its pictures."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from typing import Any, Self

import paho.mqtt.client as paho

from mosq.auth.hashes import PBKDF2, new_hash
from tests.harness.broker import Broker, free_port

WAIT_S = 60
CONFIG = """listener {port} 127.0.0.1
log_type error
log_type warning
log_type notice
log_type information
log_type subscribe
sys_interval 0
auth_backoff false
password_file {dir}/passwords
acl_file {dir}/rules
stream readings site/# retain_bytes 10000000
persistence true
persistence_location {dir}/store
max_queued_messages 500
listener {web} 127.0.0.1
protocol http_api
http_dashboard true
connection north
address 127.0.0.1:9
topic site/# out
remote_username bridge
remote_password SECRET-OF-THE-BRIDGE
"""
USERS = {"admin": "a secret", "reader": "read it", "stranger": "nothing", "device": "d"}
RULES = """user admin
topic readwrite #
topic read /dashboard/#
topic readwrite $CONTROL/mosq/#
topic read $SYS/#
user reader
topic read /dashboard/#
topic read site/#
user device
topic readwrite #
"""
HOSTILE = ["<script>document.title='owned'</script>", "<img src=x onerror=document.title='owned'>", "\"'><svg onload=alert(1)>",
           "javascript:alert(1)", "abc\u202egnp.exe", "x" * 300, "ｆｕｌｌ width ✓ 名前", "../../etc/passwd?a=b&c=d#e"]


class Scene:
    """A running broker with clients."""

    def __init__(self, config: str = CONFIG) -> None:
        self.web = free_port()
        passwords = "".join(f"{user}:{new_hash(PBKDF2, word.encode())}\n" for user, word in USERS.items())
        self.broker = Broker(config.replace("{web}", str(self.web)), {"passwords": passwords, "rules": RULES})
        (self.broker.dir / "store").mkdir()
        (self.broker.dir / "store").chmod(0o777)
        self.clients: dict[str, paho.Client] = {}

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for client_id in list(self.clients):
            self.disconnect(client_id)
        self.broker.close()

    def disconnect(self, client_id: str) -> None:
        """End a client; it does not connect again."""
        client = self.clients.pop(client_id, None)
        if client is not None:
            client.disconnect()
            client.loop_stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web}/dashboard/"

    def client(self, client_id: str, *filters: str, user: str = "device", clean: bool = True, qos: int = 1) -> paho.Client:
        """Return a connected client that has subscribed. It takes the place of an earlier one with this id."""
        self.disconnect(client_id)
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, clean_session=clean)
        client.username_pw_set(user, USERS[user])
        ready = threading.Event()
        client.on_connect = lambda *what: ready.set()
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        self.clients[client_id] = client
        assert ready.wait(WAIT_S), client_id
        if filters:
            subscribed = threading.Event()
            client.on_subscribe = lambda *what: subscribed.set()
            client.subscribe([(one, qos) for one in filters])
            assert subscribed.wait(WAIT_S), client_id
        return client

    def publish(self, client: paho.Client, topic: str, payload: bytes | str, retain: bool = False) -> None:
        """Publish, and wait until the broker has the message."""
        client.publish(topic, payload, 1, retain).wait_for_publish(WAIT_S)

    def request(self, path: str, user: str | None = "admin", method: str = "GET", body: object = None,
                headers: dict[str, str] | None = None) -> tuple[int, Any, http.client.HTTPMessage]:
        """Send a request; return status, JSON or bytes, and headers."""
        sent = dict(headers or {})
        if user is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(f"{user}:{USERS[user]}".encode()).decode()
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.web, timeout=WAIT_S)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            content = answer.read()
            if answer.headers.get("content-type") == "application/json":
                return answer.status, json.loads(content), answer.headers
            return answer.status, content, answer.headers
        finally:
            connection.close()

    def get(self, name: str, user: str = "admin", **headers: str) -> tuple[int, Any]:
        """Read from the API."""
        return self.request(f"/dashboard/api/{name}", user, headers={k.replace("_", "-"): v for k, v in headers.items()})[:2]

    def change(self, name: str, body: object, user: str = "admin", **headers: str) -> tuple[int, Any]:
        """Change something, as the page does."""
        token = self.get("session", user)[1]["token"]
        sent = {"Content-Type": "application/json", "x-mosq-token": token, "Origin": f"http://127.0.0.1:{self.web}",
                "Sec-Fetch-Site": "same-origin", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return self.request(f"/dashboard/api/{name}", user, "POST", body, {k: v for k, v in sent.items() if v})[:2]
