"""Test the effect of each keyword on a running broker, in one row each, so that none is missing.

`EFFECTS`: lines, and a check with a client; it must hold for a broker that starts with the lines, and for one that gets them by SIGHUP. `ELSEWHERE`:
the test that shows the effect. `NOT_YET`: the reason why there is no effect yet; a row moves up when the reason is gone.
"""

import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from mosq.config.options.option import RESTART
from mosq.config.options import find_option
from tests.cli.effects_tls import OF_TLS
from tests.cli.site import Check, Client, Site, refused
from tests.config.keywords import KEYWORDS
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect, Disconnect, Pingreq, Pingresp, Puback, Publish
from tests.harness.properties import P

ROOT = Path(__file__).parents[2]
HERE = "listener {port} 127.0.0.1\nallow_anonymous true\n"


def connack(name: P, value: object) -> Check:
    return lambda b: Client(b).property(name) == value


def _retained(b: Site) -> bool:
    client = Client(b)
    first = client.ask(Publish("r", b"x", retain=True))
    return client.property(P.RETAIN_AVAILABLE) == 0 and first == Disconnect(0x9A)


def _duplicates(b: Site) -> bool:
    sub = Client(b, "s")
    sub.subscribe("a/#", "+/b")
    sub.send(Publish("a/b", b"x"))
    sub.read_packet()
    sub.expect_nothing()
    return True


def _control(b: Site) -> bool:
    client = Client(b)
    client.subscribe("$CONTROL/broker/v1/response")
    packet = client.ask(Publish("$CONTROL/broker/v1", b'{"commands":[]}'))
    return isinstance(packet, Publish) and packet.payload == b'{"responses":[]}'


def _upgrade(b: Site) -> bool:
    sub = Client(b, "s")
    sub.subscribe("t", qos=1)
    packet = sub.ask(Publish("t", b"x"))
    return isinstance(packet, Publish) and packet.qos == 1


def _size(b: Site) -> bool:
    client = Client(b)
    return client.ask(Publish("t", b"x" * 21, 1, 1)) == Puback(1, 0x95) and client.ask(Publish("t", b"x" * 20, 1, 2)) == Puback(2, 0x10)


def _packet(b: Site) -> bool:
    client = Client(b)
    return client.property(P.MAXIMUM_PACKET_SIZE) == 100 and client.ask(Publish("t", b"x" * 200)) == Disconnect(0x95)


def _keepalive(b: Site) -> bool:
    return Client(b, keepalive=60).property(P.SERVER_KEEPALIVE) == 7 and refused(b, level=4, keepalive=60) == 2


def _queue(lines: int) -> Check:
    """Check how many of ten messages wait for an offline session."""
    def check(b: Site) -> bool:
        away = ((P.SESSION_EXPIRY, 100),)
        first = Client(b, "away", props=away)
        first.subscribe("t", qos=1)
        first.send(Disconnect())
        first.expect_closed()
        pub = Client(b, "p")
        for i in range(10):
            pub.ask(Publish("t", bytes([48 + i]) * 10, 1, i + 1))
        again = Client(b, "away", clean=False, props=away)
        got = again.texts(lines)
        again.expect_nothing()
        return len(got) == lines
    return check


def _qos0_queue(b: Site) -> bool:
    away = ((P.SESSION_EXPIRY, 100),)
    first = Client(b, "away", props=away)
    first.subscribe("t")
    first.send(Disconnect())
    first.expect_closed()
    pub = Client(b, "p")
    pub.send(Publish("t", b"zero"))
    pub.expect_nothing()
    return Client(b, "away", clean=False, props=away).texts(1) == [b"zero"]


def _inflight(b: Site) -> bool:
    sub = Client(b, "s", props=((P.RECEIVE_MAXIMUM, 100),))
    low = Client(b, "low")
    low.subscribe("t", qos=1)
    pub = Client(b, "p")
    for i in range(5):
        pub.ask(Publish("t", b"x", 1, i + 1))
    low.texts(2)
    low.expect_nothing()
    return sub.property(P.RECEIVE_MAXIMUM) == 2


def _inflight_bytes(b: Site) -> bool:
    sub = Client(b, "s")
    sub.subscribe("t", qos=1)
    pub = Client(b, "p")
    for i in range(5):
        pub.ask(Publish("t", b"x" * 10, 1, i + 1))
    got = sub.texts(3)           # the limit is reached by the third message
    sub.expect_nothing()
    return len(got) == 3


def _third_is_refused(b: Site) -> bool:
    kept = [Client(b, "a"), Client(b, "b")]
    third = b.wire()
    try:
        third.send(Connect("c"))
        raw = third.read_frame()
    except (BrokenPipeError, ConnectionResetError):
        raw = None
    return len(kept) == 2 and (raw is None or raw[3] != 0)


def _acl(b: Site) -> bool:
    client = Client(b)
    client.subscribe("news/x", "inbox/x")
    assert client.ask(Publish("news/x", b"no", 1, 1)) == Puback(1, 0x87)
    assert client.ask(Publish("inbox/x", b"yes", 1, 2)) == Puback(2, 0x00)       # matched, but must not be read
    client.expect_nothing()
    return True


def _check_retain_source(b: Site) -> bool:
    writer = Client(b, "w", username="ann")
    assert writer.ask(Publish("ann/x", b"kept", 1, 1, retain=True)) == Puback(1, 0x10)
    sub = Client(b, "s", username="ann")
    sub.subscribe("ann/x")
    assert sub.texts(1) == [b"kept"]
    (b.dir / "acl").write_text("user ann\ntopic read ann/#\n")      # the writer may no longer write it
    b.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        sub.subscribe("ann/x")
        sub.send(Pingreq())
        if sub.read_packet() == Pingresp():
            return True
        assert sub.read_packet() == Pingresp()
    return False


def _log_has(*texts: str) -> Check:
    def check(b: Site) -> bool:
        client = Client(b)
        client.expect_nothing()
        b.stop()
        return all(text in b.output() for text in texts)
    return check


def _log_lacks(*texts: str) -> Check:
    def check(b: Site) -> bool:
        client = Client(b)
        client.expect_nothing()
        b.stop()
        return not any(text in b.output() for text in texts)
    return check


def _pid_file(b: Site) -> bool:
    assert b.process is not None
    assert Client(b).connack.rc == 0        # the port accepts connections before that, because it is opened first
    return (b.dir / "pid").read_text().strip() == str(b.process.pid)


def _unix(b: Site) -> bool:
    path = b.dir / "s"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.connect(str(path))
        sock.sendall(Connect("u").encode(5))
        return stat.S_ISSOCK(os.stat(path).st_mode) and sock.recv(4)[3] == 0


def _mount(b: Site) -> bool:
    inside, outside = Client(b, "i"), Client(b, "o", port=b.other)
    outside.subscribe("#")
    inside.send(Publish("t", b"x"))
    packet = outside.read_packet()
    return isinstance(packet, Publish) and packet.topic == "below/t"


def _alias_out(b: Site) -> bool:
    client = Client(b, "a", props=((P.TOPIC_ALIAS_MAXIMUM, 5),))
    client.subscribe("t")
    client.send(Publish("t", b"1"))
    packet = client.read_packet()
    return isinstance(packet, Publish) and P.TOPIC_ALIAS not in dict(packet.props)


def _max_qos(b: Site) -> bool:
    client = Client(b)
    return client.property(P.MAXIMUM_QOS) == 1 and client.ask(Publish("t", b"x", 2, 1)) == Disconnect(0x9B)


def _sys(b: Site) -> bool:
    client = Client(b)
    client.subscribe("$SYS/broker/uptime")
    return len(client.texts(2)) == 2


def _two_ports(first: int, second: int) -> Check:
    """Check the reason codes for a client without a user name, at both ports."""
    def check(b: Site) -> bool:
        return Client(b).connack.rc == first and Client(b, port=b.other).connack.rc == second
    return check


def _log_file(b: Site) -> bool:
    Client(b).expect_nothing()
    b.stop()
    said = b.output()
    return "New client connected" in (b.dir / "log2").read_text() and "New client connected" not in said[:said.index(Site.SECOND)]


def answer(port: int, request: bytes) -> bytes:
    """Return the first bytes of an HTTP server's answer, up to the point where it waits or ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(request)
        got = b""
        while b"\r\n\r\n" not in got and (more := sock.recv(65536)):
            got += more
        return got


def upgrade(more: bytes = b"") -> bytes:
    return (b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n" + more + b"\r\n")


def upgrades(good: bytes, bad: bytes | None = None) -> Check:
    """Check that a WebSocket listener accepts one request and refuses the other."""
    return lambda b: b" 101 " in answer(b.other, good) and (bad is None or b" 101 " not in answer(b.other, bad))


def _proxy(b: Site) -> bool:
    with socket.create_connection(("127.0.0.1", b.other), timeout=5) as sock:
        sock.sendall(b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883\r\n" + Connect("c").encode(5))
        assert sock.recv(4)[3] == 0
    b.stop()
    return "from 10.1.2.3:4321" in b.log()


def _proxy_needs_tls(b: Site) -> bool:
    with socket.create_connection(("127.0.0.1", b.other), timeout=5) as sock:
        sock.sendall(b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12) + Connect("c").encode(5))
        try:
            return sock.recv(4) == b""
        except ConnectionResetError:
            return True


def _http_dir(b: Site) -> bool:
    return b" 200 " in answer(b.other, b"GET /conf.d/x.conf HTTP/1.1\r\nHost: h\r\n\r\n")


def _password(b: Site) -> bool:
    return (refused(b, username="ann", password=b"wrong") == 0x87 and refused(b) == 0x87
            and Client(b, username="ann", password=b"secret").connack.rc == 0)


def _password_on_the_other_port(b: Site) -> bool:
    return Client(b).connack.rc == 0 and Client(b, port=b.other, username="ann", password=b"secret").connack.rc == 0


TWO = HERE + "listener {other} 127.0.0.1\n"

PLAIN = "listener {port} 127.0.0.1\n"
WEB = HERE + "listener {other} 127.0.0.1\nprotocol websockets\n"
PLUGIN = "{0} /usr/lib/mosquitto_password_file.so\n{1}_password_file {{dir}}/passwd\n"

# {port}, {other}: free ports; {dir}: its own folder, with `acl`, `passwd` and a conf.d in it
EFFECTS: dict[str, tuple[str, Check]] = {
    "accept_protocol_versions": (HERE + "accept_protocol_versions 5", lambda b: refused(b, level=4) == 1 and Client(b).connack.rc == 0),
    "acl_file": ("acl_file {dir}/acl", _acl),
    "allow_anonymous": ("listener {port} 127.0.0.1\nallow_anonymous false", lambda b: refused(b) == 0x87),
    "allow_duplicate_messages": ("allow_duplicate_messages false", _duplicates),
    "allow_zero_length_clientid": ("allow_zero_length_clientid false", lambda b: refused(b, client_id="") != 0),
    "auto_id_prefix": ("auto_id_prefix pre-", lambda b: str(Client(b, "").property(P.ASSIGNED_ID)).startswith("pre-")),
    "check_retain_source": ("check_retain_source true\nacl_file {dir}/acl", _check_retain_source),
    "clientid_prefixes": ("clientid_prefixes dev-", lambda b: refused(b, client_id="x") == 0x87 and Client(b, "dev-1").connack.rc == 0),
    "connection_messages": ("connection_messages false", _log_lacks("New client connected", "New connection")),
    "global_max_clients": ("global_max_clients 2", _third_is_refused),
    "global_max_connections": ("global_max_connections 2", _third_is_refused),
    "include_dir": (HERE + "include_dir {dir}/conf.d", lambda b: Client(b, keepalive=60).property(P.SERVER_KEEPALIVE) == 9),
    "listener": ("listener 0 {dir}/s\nlistener {port} 127.0.0.1\nallow_anonymous true", _unix),
    "listener_allow_anonymous": (TWO + "listener_allow_anonymous false", _two_ports(0, 0x87)),
    "listener_auto_id_prefix": (HERE + "listener_auto_id_prefix l-", lambda b: str(Client(b, "").property(P.ASSIGNED_ID)).startswith("l-")),
    "log_dest": ("log_dest file {dir}/log2", _log_file),
    "log_timestamp": ("log_timestamp false", _log_has("\nmosq version 0.2.0 terminating\n")),
    "log_timestamp_format": ("log_timestamp_format AT-%Y", _log_has("\nAT-20")),
    "log_type": ("log_type warning", _log_lacks("New client connected")),
    "max_connections": (HERE + "max_connections 2", _third_is_refused),
    "max_inflight_bytes": ("max_inflight_bytes 25", _inflight_bytes),
    "max_inflight_messages": ("max_inflight_messages 2", _inflight),
    "max_keepalive": ("max_keepalive 7", _keepalive),
    "max_packet_size": ("max_packet_size 100", _packet),
    "max_qos": (HERE + "max_qos 1", _max_qos),
    "maximum_qos": (HERE + "maximum_qos 1", _max_qos),
    "max_queued_bytes": ("max_queued_bytes 50\nmax_queued_messages 0", _queue(5)),
    "max_queued_messages": ("max_queued_messages 3", _queue(3)),
    "max_topic_alias": (HERE + "max_topic_alias 3", connack(P.TOPIC_ALIAS_MAXIMUM, 3)),
    "max_topic_alias_broker": (HERE + "max_topic_alias_broker 0", _alias_out),
    "message_size_limit": ("message_size_limit 20", _size),
    "mount_point": (HERE + "mount_point below/\nlistener {other} 127.0.0.1", _mount),
    "per_listener_settings": ("per_listener_settings true\nlistener {port} 127.0.0.1\nallow_anonymous true\nlistener {other} 127.0.0.1",
                              _two_ports(0, 0x87)),
    "pid_file": ("pid_file {dir}/pid", _pid_file),
    "port": ("port {port}  # listener\nbind_address 127.0.0.1\nallow_anonymous true", lambda b: Client(b).connack.rc == 0),
    "bind_address": ("bind_address 127.0.0.1\nport {port}\n# listener\nallow_anonymous true", lambda b: Client(b).connack.rc == 0),
    "queue_qos0_messages": ("queue_qos0_messages true", _qos0_queue),
    "retain_available": ("retain_available false", _retained),
    "sys_interval": ("sys_interval 1", _sys),
    "enable_control_api": ("enable_control_api true", _control),
    "upgrade_outgoing_qos": ("upgrade_outgoing_qos true", _upgrade),
    "protocol": (WEB, upgrades(upgrade())),
    "websockets_origin": (WEB + "websockets_origin good.example", upgrades(upgrade(b"Origin: good.example\r\n"), upgrade(b"Origin: bad.example\r\n"))),
    "packet_buffer_size": ("packet_buffer_size 1000\n" + WEB, upgrades(upgrade(), upgrade(b"X: " + b"x" * 2000 + b"\r\n"))),
    "websockets_headers_size": ("websockets_headers_size 1000\n" + WEB, upgrades(upgrade(), upgrade(b"X: " + b"x" * 2000 + b"\r\n"))),
    "enable_proxy_protocol": (TWO + "enable_proxy_protocol 1", _proxy),
    "proxy_protocol_v2_require_tls": (TWO + "enable_proxy_protocol 2\nproxy_protocol_v2_require_tls true", _proxy_needs_tls),
    "http_dir": (TWO + "protocol http_api\nhttp_dir {dir}", _http_dir),
    "password_file": (PLAIN + "password_file {dir}/passwd", _password),
    "plugin": (PLAIN + PLUGIN.format("plugin", "plugin_opt"), _password),
    "auth_plugin": (PLAIN + PLUGIN.format("auth_plugin", "plugin_opt"), _password),
    "plugin_opt_": (PLAIN + PLUGIN.format("plugin", "plugin_opt"), _password),
    "auth_opt_": (PLAIN + PLUGIN.format("plugin", "auth_opt"), _password),
    "global_plugin": ("per_listener_settings true\n" + PLAIN + PLUGIN.format("global_plugin", "plugin_opt"), _password),
    "plugin_load": (PLUGIN.format("plugin_load p", "plugin_opt") + PLAIN + "plugin_use p", _password),
    "plugin_use": (PLUGIN.format("plugin_load p", "plugin_opt") + HERE + "listener {other} 127.0.0.1\nlistener_allow_anonymous false\n"
                   "plugin_use p", _password_on_the_other_port),
    "use_username_as_clientid": (HERE + "use_username_as_clientid true", lambda b: refused(b) == 0x87
                                 and Client(b, "x", username="ann").connack.rc == 0),
    **OF_TLS,
}

ELSEWHERE: dict[str, str] = {
    "bind_interface": "tests/net/test_listen.py",
    "auth_plugin_deny_special_chars": "tests/auth/test_plugins.py",
    "persistent_client_expiration": "tests/wire/flavours.py",
    "memory_limit": "tests/broker/test_bounds.py",
    "socket_domain": "tests/net/test_listen.py",
    **dict.fromkeys(("persistence", "retained_persistence", "persistence_location", "persistence_file"), "tests/durable/test_options.py"),
    **dict.fromkeys(("autosave_interval", "autosave_on_changes"), "tests/durable/test_handover.py"),
    "user": "tests/cli/test_process.py",
    "log_facility": "tests/log/test_log.py",
    "set_tcp_nodelay": "tests/broker/test_reload.py",
    **dict.fromkeys("""connection address addresses topic bridge_protocol_version remote_clientid clientid remote_username username
        remote_password password local_clientid local_cleansession cleansession start_type restart_timeout idle_timeout threshold
        keepalive_interval round_robin try_private notifications notifications_local_only notification_topic bridge_attempt_unsubscribe
        bridge_bind_address bridge_max_packet_size bridge_max_topic_alias bridge_receive_maximum bridge_session_expiry_interval
        bridge_outgoing_retain bridge_reload_type bridge_tcp_keepalive bridge_tcp_user_timeout""".split(), "tests/bridge/test_options.py"),
    **dict.fromkeys("""bridge_cafile bridge_capath bridge_certfile bridge_keyfile bridge_tls_version bridge_ciphers bridge_ciphers_tls1.3
        bridge_alpn bridge_tls_use_os_certs bridge_insecure bridge_require_ocsp bridge_identity bridge_psk""".split(),
        "tests/bridge/test_mosquitto.py"),
}

_OBSOLETE = "nothing to see: a warning, in test_options.py"
_LOCAL = "nothing to see: nobody checks a bridge here, as in Mosquitto; tests/bridge/test_mosquitto.py, test_local_username_..., shows both"
NOT_YET: dict[str, str] = {
    **dict.fromkeys(("retry_interval", "dhparamfile", "tls_engine", "tls_engine_kpass_sha1", "websockets_log_level"), _OBSOLETE),
    "retain_expiry_interval": "nothing to see: each message goes when it is due",
    **dict.fromkeys(("local_username", "local_password"), _LOCAL),
}


def test_every_keyword_has_one_row():
    rows = [*EFFECTS, *ELSEWHERE, *NOT_YET]
    assert sorted(rows) == sorted(KEYWORDS)


@pytest.mark.parametrize("keyword", ELSEWHERE)
def test_the_file_with_the_test_names_the_keyword(keyword):
    assert keyword in (ROOT / ELSEWHERE[keyword]).read_text()


@pytest.mark.parametrize("keyword", EFFECTS)
def test_effect(keyword):
    lines, check = EFFECTS[keyword]
    with Site(lines) as site:
        assert check(site)


def _reloadable(keyword: str) -> bool:
    option = find_option(keyword)
    return option is None or option.reload != RESTART


@pytest.mark.parametrize("keyword", [keyword for keyword in EFFECTS if _reloadable(keyword)])
def test_effect_of_a_reload(keyword):
    lines, check = EFFECTS[keyword]
    with Site("user root" if keyword == "http_dir" else "") as site:    # see LOADED_LATER in mosq/server/process.py
        site.reload(lines)
        assert check(site)


# options that Mosquitto's manual promises to reload at SIGHUP, and that 2.1 drops
FORGOTTEN = """per_listener_settings enable_control_api set_tcp_nodelay max_packet_size max_keepalive max_inflight_messages max_inflight_bytes
    max_queued_messages max_queued_bytes global_max_clients global_max_connections retain_available retain_expiry_interval""".split()


def test_options_that_mosquitto_ignores_at_a_reload_take_effect():
    shown = {keyword for keyword in EFFECTS if _reloadable(keyword)} | {"set_tcp_nodelay"}       # its test is in ELSEWHERE
    assert set(FORGOTTEN) - shown == {"retain_expiry_interval"} <= set(NOT_YET)
