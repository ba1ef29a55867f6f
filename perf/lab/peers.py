"""Describe the brokers that the lab can start: how each is found, asked for its version, configured and started.

This is data; broker.py starts the brokers. All configurations have the same effect: one listener on the loopback
interface, no login, no log, and limits so high that none of them decides the outcome; everything else is as shipped. In
the texts $port, $dir and $program stand for values that differ from run to run. NanoMQ, EMQX, VerneMQ and HiveMQ are
configured by their documentation and untested.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from mosq import __version__
from mosq.tools.bench.spec import OF_RELAY

ROOT = Path(__file__).parents[2]
SYSTEM = ("/usr/local/sbin", "/usr/sbin")           # not on every user's PATH
BELOW = ("", "bin", "sbin", "*", "*/bin", "*/sbin")  # where programs are below a folder of peers
VERSION_S = 20.0
TRANSPORTS = ("tcp", "tls", "ws")


@dataclass(frozen=True, eq=False)
class Peer:
    """Describe how a broker is found, configured and started."""

    family: str
    command: tuple[str, ...]        # $program, $conf
    programs: tuple[str, ...] = ()  # glob patterns of their names; (): part of this checkout
    version: tuple[str, ...] = ("--version",)
    text: str = ""                  # configuration, with $listener
    listener: dict[str, str] = field(default_factory=lambda: {"tcp": ""})   # configuration of the listener by transport
    file: str = "broker.conf"       # path below the run's folder
    durable: str = ""               # configuration for tests that need sessions on disk
    survives: str = "nothing is stored on disk"     # what remains of a durable session
    environment: dict[str, str] = field(default_factory=dict)
    shadow: bool = False            # configured only in its own folder: gets a folder of links to itself
    start_s: float = 15.0
    mqtt_5: bool = True
    tried: bool = True
    named: bool = False             # `all` does not contain it
    scenarios: tuple[str, ...] = () # scenarios of `mosq bench` that it can serve; (): all


MOSQUITTO = """$listener
${user}allow_anonymous true
log_dest none
max_inflight_messages 1000
max_queued_messages 0
max_packet_size 268435455
"""
MOSQUITTO_LISTENER = {
    "tcp": "listener $port 127.0.0.1",
    "tls": "listener $port 127.0.0.1\ncertfile $cert\nkeyfile $key",
    "ws": "listener $port 127.0.0.1\nprotocol websockets"}
PERSISTENCE = "persistence true\npersistence_location $dir/\n"

FLASHMQ = """thread_count 1
allow_anonymous true
log_level none
max_qos_msg_pending_per_client 65535
max_qos_bytes_pending_per_client 1000000000
client_max_write_buffer_size 268435456
$listener
"""
FLASHMQ_LISTENER = {
    "tcp": "listen {\n  protocol mqtt\n  port $port\n  inet_protocol ip4\n  inet4_bind_address 127.0.0.1\n}"}
FLASHMQ_LISTENER["tls"] = FLASHMQ_LISTENER["tcp"].replace("}", "  fullchain $cert\n  privkey $key\n}")
FLASHMQ_LISTENER["ws"] = FLASHMQ_LISTENER["tcp"].replace("mqtt", "websockets")

NANOMQ = """system { num_taskq_thread = 1, max_taskq_thread = 1, parallel = 4
  hook_ipc_url = "ipc://$dir/hook.ipc", cmd_ipc_url = "ipc://$dir/cmd.ipc" }
mqtt { max_packet_size = 256MB, max_mqueue_len = 65535, max_inflight_window = 65535, retry_interval = 60s
  keepalive_multiplier = 1.25, property_size = 32 }
$listener
log { to = [console], level = fatal }
auth { allow_anonymous = true, no_match = allow, deny_action = ignore }
"""

VERNEMQ = """nodename = lab$port@127.0.0.1
distributed_cookie = lab
accept_eula = yes
allow_anonymous = on
$listener
listener.max_connections = 1000000
listener.vmq.clustering = 127.0.0.1:44053
max_inflight_messages = 0
max_online_messages = -1
max_offline_messages = -1
max_message_size = 0
max_message_rate = 0
log.console = off
"""

HIVEMQ = """<?xml version="1.0"?>
<hivemq>
  <listeners>
    $listener
  </listeners>
  <mqtt>
    <queued-messages><max-queue-size>10000000</max-queue-size></queued-messages>
    <packets><max-packet-size>268435460</max-packet-size></packets>
    <receive-maximum><server-receive-maximum>65535</server-receive-maximum></receive-maximum>
  </mqtt>
  <persistence><mode>$mode</mode></persistence>
  <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
</hivemq>
"""

AEDES = """import { createServer } from 'node:net'
import { Aedes } from 'file://$program/aedes.js'

const broker = await Aedes.createBroker({ concurrency: 10000, queueLimit: 1000000 })
createServer(broker.handle).listen($port, '127.0.0.1')
"""

AMQTT = """listeners:
  default:
    type: tcp
    bind: 127.0.0.1:$port
    max_connections: 1000000
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""

MOSQ = Peer(
    "mosq", (sys.executable, "-m", "mosq", "$flags", "-c", "$conf"),
    text=MOSQUITTO, listener=MOSQUITTO_LISTENER, durable=PERSISTENCE, environment={"PYTHONPATH": str(ROOT)},
    survives="kill -9: written before the acknowledgement (durability group)")

RELAY = Peer(
    "relay", (sys.executable, "-m", "mosq", "bench", "relay", "--port", "$port"), environment={"PYTHONPATH": str(ROOT)},
    named=True, scenarios=OF_RELAY, survives="nothing is stored")

PEERS = (
    MOSQ,
    RELAY,
    Peer("mosquitto", ("$program", "-c", "$conf"), ("mosquitto", "mosquitto-[0-9]*"), ("-h",), MOSQUITTO,
         MOSQUITTO_LISTENER, durable=PERSISTENCE,
         survives="a normal stop: a snapshot then, and every half an hour; kill -9 loses later messages"),
    Peer("flashmq", ("$program", "--config-file", "$conf"), ("flashmq", "flashmq-[0-9]*"), text=FLASHMQ,
         listener=FLASHMQ_LISTENER, durable="storage_dir $dir\n",
         survives="a normal stop: snapshots at intervals and at the end; kill -9 loses later messages"),
    Peer("nanomq", ("$program", "start", "--conf", "$conf"), ("nanomq",), ("--version",), NANOMQ,
         {"tcp": 'listeners.tcp { bind = "127.0.0.1:$port" }'}, tried=False),
    Peer("emqx", ("$program", "foreground"), ("emqx",), ("version",), start_s=90.0, tried=False, environment={
        "EMQX_NODE__NAME": "lab$port@127.0.0.1", "EMQX_NODE__COOKIE": "lab", "EMQX_NODE__DATA_DIR": "$dir",
        "EMQX_LOG_DIR": "$dir", "EMQX_LOG__CONSOLE__ENABLE": "false", "EMQX_LOG__FILE__ENABLE": "false",
        "EMQX_LISTENERS__TCP__DEFAULT__BIND": "127.0.0.1:$port",
        "EMQX_LISTENERS__SSL__DEFAULT__ENABLE": "false", "EMQX_LISTENERS__WS__DEFAULT__ENABLE": "false",
        "EMQX_LISTENERS__WSS__DEFAULT__ENABLE": "false", "EMQX_DASHBOARD__LISTENERS__HTTP__BIND": "0",
        "EMQX_MQTT__MAX_INFLIGHT": "65535", "EMQX_MQTT__MAX_MQUEUE_LEN": "infinity",
        "EMQX_MQTT__MAX_AWAITING_REL": "infinity", "EMQX_MQTT__MAX_PACKET_SIZE": "256MB"}),
    Peer("vernemq", ("$program", "console", "-noshell", "-noinput"), ("vernemq",), ("version",), VERNEMQ,
         {"tcp": "listener.tcp.default = 127.0.0.1:$port"}, "etc/vernemq.conf", shadow=True, start_s=90.0, tried=False,
         survives="kill -9, except for the last moments: LevelDB without syncing"),
    Peer("hivemq", ("$program",), ("hivemq*/bin/run.sh",), (), HIVEMQ,
         {"tcp": "<tcp-listener><port>$port</port><bind-address>127.0.0.1</bind-address></tcp-listener>"},
         "config.xml", start_s=90.0, tried=False, survives="kill -9: its file persistence", environment={
             "HIVEMQ_CONFIG_FOLDER": "$dir", "HIVEMQ_DATA_FOLDER": "$dir", "HIVEMQ_LOG_FOLDER": "$dir",
             "HIVEMQ_HEAPDUMP_FOLDER": "$dir", "HIVEMQ_JMX_PORT": "0"}),
    Peer("aedes", ("node", "$conf"), ("node_modules/aedes",), (), AEDES, file="broker.mjs", mqtt_5=False),
    Peer("amqtt", ("$program", "-c", "$conf"), ("amqtt",), text=AMQTT, file="broker.yaml", mqtt_5=False),
)


@dataclass(frozen=True)
class Found:
    """Hold a peer whose program was found."""

    peer: Peer
    program: Path
    version: str

    @property
    def name(self) -> str:
        return self.peer.family if not self.peer.programs else f"{self.peer.family}-{self.version}"


@dataclass(frozen=True)
class Made:
    """Hold what one run starts."""

    text: str
    command: list[str]
    environment: dict[str, str]


def made(                               # parameters: one for each placeholder of the templates
        found: Found, *, port: int, folder: Path, flags: tuple[str, ...] = (), transport: str = "tcp",
        durable: bool = False, cert: str = "", key: str = "") -> Made:
    """Return the configuration, command line and environment of one broker at one port."""
    peer = found.peer
    names = {"port": str(port), "dir": str(folder), "program": str(found.program), "conf": str(folder / peer.file),
             "user": "user root\n" if os.geteuid() == 0 else "",     # another user may not read the folder
             "mode": "file" if durable else "in-memory", "cert": cert, "key": key}
    names["listener"] = Template(peer.listener[transport]).substitute(names)
    text = Template(peer.text + (peer.durable if durable else "")).substitute(names)
    command = [one for part in peer.command for one in (flags if part == "$flags" else (part,))]
    if peer.shadow:
        names["program"] = str(folder / "bin" / found.program.name)
    return Made(text, [Template(one).substitute(names) for one in command],
                {name: Template(value).substitute(names) for name, value in peer.environment.items()})


def settings(found: Found) -> str:
    """Return a broker's settings for readers: the same for each run, except for the port and the folder."""
    peer = found.peer
    plain = made(found, port=1883, folder=Path("DIR"))
    lines = [f"{name}={value}\n" for name, value in plain.environment.items() if name != "PYTHONPATH"] + [plain.text]
    if peer.durable:
        lines.append(f"# in tests with sessions on disk:\n{Template(peer.durable).substitute(dir='DIR')}")
    return "".join(lines) + f"# durable sessions survive: {peer.survives}\n"


# ---------------------------------------------------------------- finding them

def find(folders: list[Path]) -> list[Found]:
    """Return mosq and its relay, and all brokers whose program is on PATH or below a folder; those on PATH first."""
    places = [Path(one) for one in (*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM) if one]
    found: dict[str, Found] = {}
    for peer in PEERS:
        seen: set[Path] = set()
        for program in [ROOT] if not peer.programs else _programs(peer, places, folders):
            if program.resolve() in seen:
                continue
            seen.add(program.resolve())
            one = Found(peer, program, version_of(peer, program))
            found.setdefault(one.name, one)
    return list(found.values())


def _programs(peer: Peer, places: list[Path], folders: list[Path]) -> list[Path]:
    hits = [hit for place in places for pattern in peer.programs for hit in sorted(place.glob(pattern))]
    hits += [hit for folder in folders for below in BELOW for pattern in peer.programs
             for hit in sorted(folder.glob(f"{below}/{pattern}" if below else pattern))]
    if peer.family == "aedes":      # a library, for a script that node runs
        return [hit for hit in hits if (hit / "aedes.js").is_file()] if shutil.which("node") else []
    return [hit for hit in hits if hit.is_file() and os.access(hit, os.X_OK)]


def version_of(peer: Peer, program: Path) -> str:
    """Return the version that a program reports, or "unknown"."""
    if not peer.programs:
        return __version__
    if peer.family == "aedes":
        return str(json.loads((program / "package.json").read_text())["version"])
    if not peer.version:            # the folder's name has the version: hivemq-ce-2024.9
        text = program.parents[1].name
    else:
        try:
            done = subprocess.run([str(program), *peer.version], capture_output=True, text=True, errors="replace",
                                  timeout=VERSION_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return "unknown"
        text = done.stdout + done.stderr
    number = re.search(r"\d+\.\d+[\w.-]*", text)
    return number.group().rstrip(".") if number else "unknown"
