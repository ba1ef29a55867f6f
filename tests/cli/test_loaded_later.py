"""Test that a broker loads all modules that it may need before it gives up its rights, because it may be unable to read Python's own files
afterwards.
"""

import json
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.cli.site import Client, Site
from tests.harness.packets import Publish

LOG = "log_dest stderr\nlog_dest topic\nlog_type all\nlog_format json\n"
OPEN = "listener {port} 127.0.0.1\nallow_anonymous true\n"
CONTROL = "enable_control_api true\ncontrol_loopback true\n"
BRIDGE = "connection b\naddress 127.0.0.1:1 localhost:1\ntopic # both 2\nbridge_identity me\nbridge_psk 00\n"
TLS = "certfile {dir}/server.crt\nkeyfile {dir}/server.key\n"


def _asks(topic: str, *commands: str) -> Callable[[Site], None]:
    def ask(site: Site) -> None:
        client = Client(site, "admin", username="admin", password=b"secret secret 12")
        assert client.connack.rc == 0, site.log()
        client.subscribe(f"{topic}/#")
        client.send(Publish(topic, json.dumps({"commands": [{"command": one} for one in commands]}).encode()))
        got = client.read_packet()
        assert isinstance(got, Publish), got
        assert [one.get("error") for one in json.loads(got.payload)["responses"]] == [None] * len(commands)
    return ask


def _connects(site: Site) -> None:
    assert Client(site, "x", username="ann", password=b"secret").connack.rc == 0



@pytest.mark.parametrize(("lines", "does"), [
    (OPEN + BRIDGE, _connects),
    (OPEN + CONTROL + BRIDGE, _asks("$CONTROL/broker/v1", "listListeners", "listPlugins")),
    (OPEN + CONTROL + BRIDGE, _asks("$CONTROL/mosq/broker/v1", "listBridges", "listClients")),
    (OPEN + LOG + "log_dest file {dir}/log2\n", _connects),
    ("listener {port} 127.0.0.1\npassword_file {dir}/passwd\nacl_file {dir}/acl\n", _connects),
    (OPEN + "listener {other} 127.0.0.1\nprotocol websockets\n" + TLS, _connects),
    (OPEN + "listener {other} 127.0.0.1\nbind_interface lo\npsk_hint h\npsk_file {dir}/psk\n", _connects),
    (OPEN + "plugin /usr/lib/mosquitto_sparkplug_aware.so\n", _connects),
    (OPEN + "plugin /usr/lib/mosquitto_dynamic_security.so\nplugin_opt_config_file {dir}/dynsec.json\nplugin_opt_password_init_file {dir}/init\n",
     _asks("$CONTROL/dynamic-security/v1", "listClients", "getDefaultACLAccess")),
])
def test_modules_that_a_reload_needs_are_loaded(lines: str, does: Callable[[Site], None]) -> None:
    site = Site(lines)
    (site.dir / "init").write_text("secret secret 12\n")
    full, site.two = site.config.read_text(), False
    site.config.write_text(OPEN.replace("{port}", str(site.port)))
    site.command = [sys.executable, "-m", "tests.cli.loaded"]
    with site:
        site.reload(full.replace(str(site.dir), "{dir}"))
        does(site)
        site.send_signal(signal.SIGUSR2)
        site.send_signal(signal.SIGHUP)     # the same configuration again, and with the current rights
        _until(lambda: site.output().count("Reloading config.") >= 2)
        site.stop()
        assert "not reloaded" not in site.log()
        assert "missed: \n" in site.log(), site.log()     # a thread of its own prints the tree, perhaps later


def _until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)

