"""Define scenes that both brokers run: configurations and steps of clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace

from mosq.auth.hashes import PBKDF2, new_hash
from tests.cli.certified import PSK_KEY, context
from tests.harness.certificates import TLS_LINES, server_files
from tests.harness.packets import Connect, Publish, Puback, Pubcomp, Pubrec, Pubrel, Subscribe, Unsubscribe, Will
from tests.harness.properties import P
from tests.side.peer import Scene, Step, connect, drop, last, send

BASE = "log_type all\nlog_dest stderr\nuser root\nsys_interval 0\nmax_packet_size 2000000\n"
PLAIN = f"{BASE}listener {{port}} 127.0.0.1\nallow_anonymous true\n"


def sub(mid: int, *filters: tuple[str, int]) -> Subscribe:
    return Subscribe(mid, tuple(filters))


def refused(name: str, step: Step, config: str = PLAIN, **more: object) -> Scene:
    return Scene(name, config, (step,), **more)


USERS = {"passwd": f"ann:{new_hash(PBKDF2, b'secret', 101)}\n"}
PASSWORDS = f"{BASE}listener {{port}} 127.0.0.1\npassword_file {{dir}}/passwd\n"
SECURE = PLAIN + TLS_LINES
KEYS = f"{BASE}listener {{port}} 127.0.0.1\npsk_hint hint\npsk_file {{dir}}/psk\nuse_identity_as_username true\n"


def anonymous() -> ssl.SSLContext:
    return context()


def as_ann() -> ssl.SSLContext:
    return context("ann")


def secured(who: str, tls: Callable[[], ssl.SSLContext], level: int = 4, **fields: object) -> Step:
    return replace(connect(who, level, **fields), tls=tls)


def publishes(identity: str, key: str) -> Step:
    """Publish with Mosquitto's client, because this Python's ssl has no pre-shared keys."""
    return Step(identity, ("mosquitto_pub", "-h", "localhost", "-p", "{port}", "-i", identity, "-t", "t", "-m", "x", "-q", "1",
                           "--psk-identity", identity, "--psk", key, "--tls-version", "tlsv1.2"), "run")


PLAYED = (
    Scene("in and out", PLAIN, tuple(connect(f"c{level}", level) for level in (3, 4, 5))),
    Scene("every version by name", PLAIN, (
        connect("a", 5, clean=False, props=((P.SESSION_EXPIRY, 60),)), connect("b", 4, clean=False),
        connect("c", 4, username="ann", password=b"x"), connect("d", 5, keepalive=7))),
    Scene("made up names", PLAIN, (connect("a", 5, client_id=""), connect("b", 4, client_id=""))),
    refused("3.1 without a name", connect("a", 3, client_id="")),
    refused("3.1.1 without a name and not clean", connect("a", 4, client_id="", clean=False)),
    refused("no name where none may be", connect("a", 5, client_id=""), PLAIN + "allow_zero_length_clientid false\n"),
    refused("unknown level", connect("a", 4, level_byte=9)),
    refused("level of 3.1 under the name of 3.1.1", connect("a", 4, level_byte=3)),
    refused("unknown protocol", connect("a", 4, protocol="MQTQ")),
    refused("reserved flag", connect("a", 4, flags=0x03)),
    refused("will QoS 3", connect("a", 4, flags=0x1A)),
    refused("password without a user", connect("a", 4, flags=0x42)),
    refused("not a CONNECT", Step("a", (b"\x30\x03\x00\x01t",), "connect")),
    refused("TLS to a plain listener", Step("a", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,), "connect")),
    refused("anonymous where nobody may be, 3.1.1", connect("a", 4), f"{BASE}listener {{port}} 127.0.0.1\n"),
    refused("anonymous where nobody may be, 5.0", connect("a", 5), f"{BASE}listener {{port}} 127.0.0.1\n"),
    refused("authentication method that nobody knows", connect("a", 5, props=((P.AUTH_METHOD, "x"),))),
    refused("a version that the listener does not take", connect("a", 4),
            f"{BASE}listener {{port}} 127.0.0.1\naccept_protocol_versions 5\nallow_anonymous true\n", needs="2.1"),
    refused("keepalive over the maximum, 3.1.1", connect("a", 4, keepalive=100), PLAIN + "max_keepalive 50\n"),
    Scene("keepalive over the maximum, 5.0", PLAIN + "max_keepalive 50\n", (connect("a", 5, keepalive=100),)),
    Scene("second CONNECT", PLAIN, (connect("a", 4), last("a", Connect("a")))),
    Scene("QoS 0, 1 and 2", PLAIN, (
        connect("pub", 4), connect("sub", 4), send("sub", sub(1, ("t/#", 2))),
        send("pub", Publish("t/0", b"zero")), send("pub", Publish("t/1", b"one", qos=1, mid=1)), send("sub", Puback(1)),
        send("pub", Publish("t/2", b"two", qos=2, mid=2)), send("pub", Pubrel(2)), send("sub", Pubrec(2)), send("sub", Pubcomp(2)))),
    Scene("QoS 0, 1 and 2 in 5.0", PLAIN, (
        connect("pub", 5), connect("sub", 5), send("sub", sub(1, ("t/#", 2))),
        send("pub", Publish("t/0", b"zero")), send("pub", Publish("t/1", b"one", qos=1, mid=1)), send("sub", Puback(1)),
        send("pub", Publish("nobody", b"none", qos=1, mid=3)),
        send("pub", Publish("t/2", b"two", qos=2, mid=2)), send("pub", Pubrel(2)), send("sub", Pubrec(2)), send("sub", Pubcomp(2)))),
    Scene("subscribing, again, and no more", PLAIN, (
        connect("a", 5), send("a", sub(1, ("a/+", 0), ("b/#", 1), ("$share/g/c", 2))), send("a", sub(2, ("a/+", 1))),
        send("a", Unsubscribe(3, ("a/+", "never"))), send("a", Publish("a/x", b"1")))),
    Scene("a filter that is none", PLAIN, (connect("a", 4), last("a", sub(1, ("a#", 0))))),
    Scene("a publish with a wildcard", PLAIN, (connect("a", 5), last("a", Publish("a/+", b"x")))),
    Scene("a publish with QoS 3", PLAIN, (connect("a", 4), last("a", b"\x36\x05\x00\x01t\x00\x01"))),
    Scene("a packet of no type", PLAIN, (connect("a", 5), last("a", b"\x00\x00"))),
    Scene("acknowledging what was never sent", PLAIN, (
        connect("a", 4), send("a", Puback(7)), send("a", Pubrec(8)), send("a", Pubcomp(9)), send("a", Pubrel(10)))),
    Scene("retained", PLAIN, (
        connect("a", 4), send("a", Publish("r/1", b"one", retain=True)), send("a", Publish("r/2", b"two", qos=1, mid=1, retain=True)),
        send("a", Publish("r/1", b"", retain=True)), send("a", sub(2, ("r/#", 1))), send("a", Puback(1)))),
    Scene("retained where it is not available", PLAIN + "retain_available false\n", (
        connect("a", 5), last("a", Publish("r/1", b"one", retain=True)))),
    Scene("a QoS that the listener does not take", PLAIN + "max_qos 1\n", (
        connect("a", 5), last("a", Publish("t", b"x", qos=2, mid=1)))),
    Scene("a will that is sent, and one that is not", PLAIN, (
        connect("hears", 4), send("hears", sub(1, ("w/#", 1))),
        connect("dies", 4, will=Will("w/dies", b"gone", 1)), connect("leaves", 5, will=Will("w/leaves", b"gone")),
        drop("dies"), last("leaves", b"\xe0\x00"))),
    Scene("a will of somebody who says so", PLAIN, (
        connect("hears", 4), send("hears", sub(1, ("w/#", 0))),
        connect("leaves", 5, will=Will("w/leaves", b"gone")), last("leaves", b"\xe0\x01\x04"))),
    Scene("taken over", PLAIN, (
        connect("a", 5), send("a", sub(1, ("t", 0))), Step("b", (Connect("a"),), "connect", 5))),
    Scene("a session that is resumed", PLAIN, (
        connect("a", 4, clean=False), send("a", sub(1, ("t", 1))), drop("a"), connect("p", 4),
        send("p", Publish("t", b"kept", qos=1, mid=1)), connect("a", 4, clean=False))),
    Scene("too large a payload", PLAIN + "message_size_limit 4\n", (
        connect("a", 5), send("a", Publish("t", b"12345", qos=1, mid=1)), send("a", Publish("t", b"1234", qos=1, mid=2)))),
    Scene("too large a packet", PLAIN.replace("2000000", "40"), (connect("a", 5), last("a", Publish("t", b"x" * 60)))),
    Scene("more than may be in flight", PLAIN + "max_inflight_messages 1\nmax_queued_messages 1\n", (
        connect("sub", 4), send("sub", sub(1, ("t", 1))), connect("pub", 4),
        *(send("pub", Publish("t", b"%d" % i, qos=1, mid=i)) for i in (1, 2, 3, 4)))),
    Scene("max_connections", PLAIN + "max_connections 1\n", (connect("a", 4), Step("b", (Connect("b"),), "connect"))),
    Scene("prefixes of client ids", PLAIN + "clientid_prefixes dev-\n", (connect("dev-1", 4), connect("other", 4))),
    Scene("acl", PLAIN + "acl_file {dir}/acl\n", (
        connect("ann", 4, username="ann"), connect("bob", 5, username="bob"),
        send("ann", sub(1, ("#", 0))), send("bob", sub(1, ("#", 0))),
        send("bob", Publish("open/x", b"1", qos=1, mid=1)), send("bob", Publish("closed", b"2", qos=1, mid=2)),
        send("ann", Publish("closed", b"3", qos=1, mid=3)), send("ann", Publish("of/ann", b"4"))),
          {"acl": "user ann\ntopic open/#\n\nuser bob\ntopic write open/#\npattern of/%u\n"}),
    Scene("a name that is dangerous in a pattern", PLAIN + "acl_file {dir}/acl\n", (
        connect("a#", 4, username="a"), send("a#", Publish("of/a", b"1", qos=1, mid=1))), {"acl": "pattern of/%c\n"}),
    *(Scene(f"passwords, {name}", PASSWORDS, (
        connect("right", level, username="ann", password=b"secret"), connect("wrong", level, username="ann", password=b"wrong"),
        connect("unknown", level, username="eve", password=b"secret"), connect("anonymous", level),
        connect("silent", level, username="ann")), USERS) for level, name in ((4, "3.1.1"), (5, "5.0"))),
    Scene("passwords, and anonymous clients too", PASSWORDS + "allow_anonymous true\n", (
        connect("anonymous", 4), connect("unknown", 5, username="eve", password=b"x"), connect("right", 4, username="ann", password=b"secret")),
          USERS),
    Scene("TLS", SECURE, (
        secured("a", anonymous), secured("b", anonymous, 5), send("a", sub(1, ("t", 0))), send("b", Publish("t", b"x" * 40000)), drop("a")),
          server_files()),
    Scene("a client's certificate", SECURE + "require_certificate true\n", (
        secured("ann", as_ann, 5), secured("none", anonymous)), server_files()),
    Scene("a certificate's name", SECURE + "require_certificate true\nuse_identity_as_username true\n", (
        secured("a", as_ann, 5, username="eve"), secured("b", as_ann)), server_files()),
    Scene("a certificate's subject", SECURE + "require_certificate true\nuse_subject_as_username true\n", (secured("a", as_ann),),
          server_files()),
    Scene("no certificate where one names the user", SECURE + "use_identity_as_username true\n", (
        secured("a", anonymous), secured("b", anonymous, 5)), server_files()),
    Scene("not TLS where it should be", SECURE, (connect("a", 4),), server_files()),
    Scene("pre-shared keys", KEYS, (
        publishes("ann", PSK_KEY), publishes("ann", "00"), publishes("eve", PSK_KEY)), {"psk": f"ann:{PSK_KEY}\n"}),
    Scene("WebSocket", PLAIN + "protocol websockets\n", (
        replace(connect("a", 4), websocket=True), replace(connect("b", 5), websocket=True), send("a", sub(1, ("t", 1))),
        send("b", Publish("t", b"x", qos=1, mid=1)), send("a", Puback(1))), needs="2.1"),
)


def failing(name: str, config: str, status: int, **more: object) -> Scene:
    return Scene(name, config, status=status, fails=True, **more)


FAILING = (
    failing("no such file", "", 3, arguments=("-c", "{dir}/none.conf")),
    failing("unknown option", "nonsense true\n", 3),
    failing("bad number", "listener {port}\nmax_connections x\n", 3),
    failing("bad bool", "allow_anonymous maybe\n", 3),
    failing("port out of range", "listener 70000\n", 3),
    failing("empty value", "acl_file\n", 3),
    failing("missing acl_file", "listener {port} 127.0.0.1\nuser root\nacl_file {dir}/none\n", 3),
    failing("bad acl_file", "listener {port} 127.0.0.1\nuser root\nacl_file {dir}/acl\n", 3, files={"acl": "nonsense\n"}),
    failing("unknown option of the command line", "", 3, arguments=("--nonsense",)),
    failing("a port that is none", "", 3, arguments=("-p", "x")),
    failing("-c without a file", "", 3, arguments=("-c",)),
    failing("an address that is not ours", "listener {port} 192.0.2.1\nuser root\n", 1),
    failing("a pid file that cannot be written", "listener {port} 127.0.0.1\nuser root\npid_file {dir}/none/pid\n", 1),
    failing("a user that does not exist", "listener {port} 127.0.0.1\nuser nobody-of-this-name\n", 3),
    failing("--test-config", "listener {port}\n", 0, arguments=("-c", "{dir}/m.conf", "--test-config")),
    failing("--test-config of a bad file", "listener x\n", 3, arguments=("-c", "{dir}/m.conf", "--test-config")),
    failing("help", "", 0, arguments=("-h",)),
)
