"""Provide administrators of dynamic security, and brokers to administer: mosq, and Mosquitto with its own plugin."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache

from typing import Any

from mosq.auth.hashes import PBKDF2, new_hash, read_hash
from mosq.auth.dynsec.store import password_of_2_0
from tests.harness.broker import Broker
from tests.harness.packets import Connect, Publish, Subscribe
from tests.harness.wire import Wire

TOPIC = "$CONTROL/dynamic-security/v1"
PASSWORD = "secret of the admin"
LET_IN, REFUSED, REFUSED_5 = 0, 5, 0x87
Object = dict[str, Any]

CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
plugin PLUGIN
plugin_opt_config_file {dir}/dynsec.json
"""
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin") or "mosquitto"


@cache
def debians_plugin() -> str:
    """Return the path of Debian's plugin."""
    files = subprocess.run(["dpkg", "-L", "mosquitto"], capture_output=True, text=True, check=True).stdout.splitlines()
    return next(path for path in files if path.endswith("mosquitto_dynamic_security.so"))


def theirs() -> tuple[list[str], str]:
    """Return the other broker and its plugin: Debian's, or those that MOSQ_DYNSEC_PEER and MOSQ_DYNSEC_PLUGIN name."""
    return [os.environ.get("MOSQ_DYNSEC_PEER", MOSQUITTO)], os.environ.get("MOSQ_DYNSEC_PLUGIN") or debians_plugin()


def their_version() -> tuple[int, int]:
    said = subprocess.run([*theirs()[0], "-h"], capture_output=True, text=True, check=False).stdout
    words = said.split("version ", 1)[1].split(".")
    return int(words[0]), int(words[1])


def password(word: str, iterations: int = 101) -> Object:
    """Return a password as Mosquitto 2.0 writes it."""
    return password_of_2_0(read_hash(new_hash(PBKDF2, word.encode(), iterations)))


def role(name: str, *rules: tuple[str, str, bool] | tuple[str, str, bool, int], **more: object) -> Object:
    return {"rolename": name, **more, "acls": [
        {"acltype": rule[0], "topic": rule[1], "allow": rule[2], "priority": rule[3] if len(rule) > 3 else 0} for rule in rules]}


def everything(name: str, topic: str) -> Object:
    return role(name, *((kind, topic, True) for kind in ("publishClientSend", "publishClientReceive", "subscribePattern",
                                                        "unsubscribePattern")))


def state(**more: object) -> Object:
    """Return a file with an administrator that may also do everything else."""
    admin = {"username": "admin", "textname": "Admin", "roles": [{"rolename": "admin"}, {"rolename": "all"}], **password(PASSWORD)}
    made: Object = {"defaultACLAccess": {"publishClientSend": False, "publishClientReceive": True, "subscribe": False, "unsubscribe": True},
                    "clients": [admin], "groups": [], "roles": [everything("admin", "$CONTROL/dynamic-security/#"), everything("all", "#")]}
    for name, value in more.items():
        made[name] = [*made[name], *value] if isinstance(value, list) else value
    return made


class Ruled(Broker):
    """Run mosq with dynamic security; `real`: Mosquitto."""

    def __init__(self, content: Object | None = None, real: bool = False, config: str = "", env: dict[str, str] | None = None,
                 files: dict[str, str] | None = None) -> None:
        command, plugin = theirs() if real else (None, "/usr/lib/mosquitto_dynamic_security.so")
        super().__init__(config if "listener" in config else CONFIG.replace("PLUGIN", plugin) + config, files, command, env)
        self.file = self.dir / "dynsec.json"
        self.admins: list[Admin] = []
        if content is not None:
            self.put(json.dumps(content))

    def put(self, content: str) -> None:
        self.file.write_text(content)
        self.file.chmod(0o666)
        if os.geteuid() == 0 and self.command:
            shutil.chown(self.file, "mosquitto")

    def written(self) -> Object:
        found: Object = json.loads(self.file.read_bytes())
        return found

    def admin(self, user: str = "admin", word: str = PASSWORD, client_id: str = "boss", level: int = 4) -> Admin:
        made = Admin(self.port, user, word, client_id, level)
        self.admins.append(made)
        return made

    def close(self) -> None:
        for admin in self.admins:
            admin.wire.close()
        super().close()


class Admin:
    """Send commands as a client. Messages that arrive on other topics are kept in `other`."""

    def __init__(self, port: int, user: str, word: str, client_id: str, level: int) -> None:
        self.wire, self.rc = login(port, user, word, client_id, level)
        assert self.rc == LET_IN
        self.wire.send(Subscribe(1, (("$CONTROL/dynamic-security/#", 0),)))
        assert self.wire.read_packet().codes == (0,)

    def publish(self, payload: bytes, topic: str = TOPIC) -> None:
        self.wire.send(Publish(topic, payload))

    def hear(self) -> bytes:
        packet = self.wire.read_packet()
        assert packet.topic == f"{TOPIC}/response", packet
        return bytes(packet.payload)

    def raw(self, payload: bytes) -> bytes:
        self.publish(payload)
        return self.hear()

    def ask(self, *commands: object) -> list[Object]:
        said = json.loads(self.raw(json.dumps({"commands": commands}).encode()))
        assert list(said) == ["responses"]
        return list(said["responses"])

    def does(self, command: str, **more: object) -> None:
        """Send a command that must succeed."""
        assert self.ask({"command": command, **more}) == [{"command": command}]


def login(port: int, user: str | None, word: str | bytes | None, client_id: str = "c", level: int = 4, **more: object) -> tuple[Wire, int]:
    wire = Wire(port, level)
    wire.send(Connect(client_id, username=user, password=word.encode() if isinstance(word, str) else word, **more))
    return wire, wire.read_packet().rc


def lets_in(port: int, user: str | None, word: str | bytes | None, client_id: str = "c") -> bool:
    wire, rc = login(port, user, word, client_id)
    wire.close()
    return rc == LET_IN
