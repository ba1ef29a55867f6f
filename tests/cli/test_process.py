"""Test a broker from start to stop: log lines, signals, pid file, background, and the exit status of errors."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mosq.config.options import TUNING

from tests.harness.effort import AT_ONCE_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_at_once_with_status_0(number, start, until):
    process = start()
    until(process, "the loop runs")
    began = time.monotonic()
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(AT_ONCE_S) == 0
    assert time.monotonic() - began < AT_ONCE_S
    assert "the loop ends" in rest
    assert rest.splitlines()[-1].endswith(": mosq version 0.2.0 terminating")


def test_a_stop_before_the_loop_has_begun(start, until):
    process = start(way="late")
    until(process, "0.2.0 running")
    process.terminate()
    assert "the loop ends" in process.stderr.read()
    assert process.wait(AT_ONCE_S) == 0


def test_a_data_plane_that_does_not_listen_does_not_delay_the_end(start, until):
    process = start(way="deaf")
    until(process, "the loop runs")
    began = time.monotonic()
    process.terminate()
    rest = process.stderr.read()
    assert process.wait(AT_ONCE_S) == 0
    assert time.monotonic() - began < AT_ONCE_S
    assert "did not stop in time" in rest


def test_start_lines_of_local_only_mode(start, until):
    process = start("-p", "1890")
    lines = [line.split(": ", 1)[1] for line in until(process, "0.2.0 running")]
    assert lines[:2] == ["mosq version 0.2.0 starting", "Using default config."]
    assert all(line.endswith("available.") for line in lines[2:7])
    assert lines[7:10] == [
        "Starting in local only mode. Connections will only be possible from clients running on this machine.",
        "Create a configuration file which defines a listener to allow remote access.",
        "For more details see https://mosquitto.org/documentation/authentication-methods/"]
    assert "Opening ipv4 listen socket on port 1890." in lines
    assert lines[-1] == "mosq version 0.2.0 running"


def test_start_lines_of_a_file(start, until, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("websockets_log_level 60\nuser root\nallow_anonymous true\nlistener 1891\nsocket_domain ipv4\nlistener 1892 ::1\nlistener 0 /tmp/x.sock\n")
    lines = [line.split(": ", 1) for line in until(start("-c", path), "0.2.0 running")]
    assert all(stamp.isdigit() for stamp, _ in lines)
    text = [line for _, line in lines]
    assert text[:2] == ["mosq version 0.2.0 starting", f"Config loaded from {path}."]
    assert text[7].startswith(f"Warning: 'websockets_log_level 60' ({path}:1) has no effect: ")
    assert text[8:11] == ["Opening ipv4 listen socket on port 1891.", "Opening ipv6 listen socket on port 1892.",
                          "Opening unix listen socket on path /tmp/x.sock."]
    assert text[11].startswith("Info: running mosq as user: ")
    assert text[-1] == "mosq version 0.2.0 running"


def test_quiet_and_log_types(start, until, mosq, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("log_type error\nallow_anonymous true\nlistener 1883\n")
    assert json.loads(start("-c", path, way="tell").stdout.readline())["settings"]["log_mask"] == 1
    assert json.loads(start("-c", path, "-v", way="tell").stdout.readline())["settings"]["log_mask"] == 511
    assert json.loads(start("-c", path, "-v", "-q", way="tell").stdout.readline())["settings"]["log_mask"] == 0
    path.write_text("log_type all\nlog_type none\nlog_type debug notice\n")
    assert json.loads(start("-c", path, way="tell").stdout.readline())["settings"]["log_mask"] == 20
    path.write_text("log_dest none\n")
    assert json.loads(start("-c", path, way="tell").stdout.readline())["settings"]["log_mask"] == 0


def test_switches_of_the_command_line_override_the_file(start, mosq, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("index tree\npool_grow 7\nhash_buckets 5\nlistener 1883\n")
    told = json.loads(start("-c", path, "--index", "hash", "--letter-index", "27", "--match-cache", "off", "--pool", "off",
                            "--child-hash-threshold", "off", "--pool-idle-max", "0", way="tell").stdout.readline())["settings"]
    assert {name: told[name] for name in TUNING} == {
        "index": "hash", "letter_index": "27", "hash_buckets": 5, "child_hash_threshold": 0, "match_cache": 0, "pool": "off",
        "pool_grow": 7, "pool_idle_max": 0}
    for flags, expected in ((["--index", "fast"], "Expected one of full, letter"), (["--pool-grow", "0"], "Expected a number from 1"),
                            (["--match-cache", "no"], "or off"), (["--hash-buckets", ""], "Empty 'hash_buckets'")):
        for check in ([], ["-c", path, "--test-config"]):
            done = mosq(*check, *flags)
            assert done.returncode == 3
            assert expected in done.stderr
            assert flags[0] in done.stderr


def test_settings_that_the_engine_receives(start, tmp_path):
    (tmp_path / "rules").write_text("user ann\ntopic read a/#\npattern write b/%u\n")
    path = tmp_path / "m.conf"
    path.write_text(f"""acl_file {tmp_path}/rules
allow_anonymous true
retain_expiry_interval 2
persistent_client_expiration 1d
receive_maximum_policy disconnect
clientid_prefixes dev-
max_inflight_messages 0
listener 1893 127.0.0.1
max_qos 1
accept_protocol_versions 4,5
mount_point m/
use_username_as_clientid true
max_topic_alias 3
listener 0 {tmp_path}/s
listener_allow_anonymous false
""")
    told = json.loads(start("-c", path, way="tell").stdout.readline())
    assert told["securities"][0]["acl"] == [["ann", "topic", "read", "a/#"], [None, "pattern", "write", "b/%u"]]
    settings = told["settings"]
    assert settings["persistent_client_expiration"] == 86400
    assert settings["receive_maximum_policy"] == "disconnect"
    assert settings["clientid_prefixes"] == "dev-"
    assert settings["max_inflight_messages"] == 0
    assert settings["version"] == "mosquitto version 2.1.2 (mosq 0.2.0)"
    assert all(type(value) in (int, str, list) for value in settings.values())
    first, second = told["listeners"]
    assert (first["port"], first["host"]) == (1893, "127.0.0.1")
    said = {"path": "", "socket_domain": "", "bind_interface": "", "max_connections": -1, "max_qos": 1, "max_topic_alias": 3,
            "max_topic_alias_broker": 10, "allow_anonymous": 1, "allow_zero_length_clientid": 1, "versions": 0b110000,
            "auto_id_prefix": "auto-", "mount_point": "m/", "use_username_as_clientid": 1, "protocol": "mqtt", "certfile": "",
            "ciphers_tls1.3": "", "websockets_origin": [], "enable_proxy_protocol": 0, "security": 0}
    assert {name: first[name] for name in said} == said
    assert (second["port"], second["path"], second["allow_anonymous"]) == (0, f"{tmp_path}/s", 0)


@pytest.mark.parametrize(("way", "status", "said"), [
    ("busy", 1, "Error: cannot listen on 127.0.0.1 port 1883: Address already in use"),
    ("nonsense", 3, "Error: turn_budget is 0; it must be between 1000 and 9"),
    ("dies", 1, "Error: The data plane ended by itself: OSError(9, 'epoll failed')."),
])
@pytest.mark.parametrize("background", [[], ["-d"]])
def test_a_broker_that_cannot_serve_logs_the_reason_and_ends(way, status, said, background, mosq):
    if background and way == "dies":
        return      # the broker is in the background by then
    done = mosq(*background, way=way)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_pid_file(start, until, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text(f"pid_file {tmp_path}/pid\nuser root\n")
    process = start("-c", path)
    until(process, "0.2.0 running")
    assert (tmp_path / "pid").read_text() == str(process.pid)
    process.terminate()
    assert process.wait(AT_ONCE_S) == 0
    assert not (tmp_path / "pid").exists()


def test_a_pid_file_that_cannot_be_written(mosq, tmp_path):
    path = tmp_path / "m.conf"
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    for target in ("none/pid", "link"):
        path.write_text(f"pid_file {tmp_path}/{target}\n")
        done = mosq("-c", path)
        assert done.returncode == 1
        assert f"Unable to write pid file {tmp_path}/{target}" in done.stderr
    assert not (tmp_path / "precious").exists()


def test_background(mosq, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text(f"pid_file {tmp_path}/pid\nuser root\n")
    done = mosq("-c", path, "-d")
    assert done.returncode == 0
    pid = int((tmp_path / "pid").read_text())       # the pid file exists when the command returns
    try:
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/fd/2") == "/dev/null"
        watch = os.pidfd_open(pid)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert select.select([watch], [], [], 5)[0]
    os.close(watch)
    assert not (tmp_path / "pid").exists()


def test_a_user_that_does_not_exist(mosq, start, until, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("user nobody-of-this-name\n")
    if os.geteuid() == 0:
        done = mosq("-c", path)
        assert done.returncode == 3
        assert "Unable to drop privileges to 'nobody-of-this-name' because this user does not exist" in done.stderr
    else:
        until(start("-c", path), "0.2.0 running")     # only root changes its user


def test_the_broker_gives_up_the_rights_of_root(start, until, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("user nobody\n")
    process = start("-c", path)
    until(process, "0.2.0 running")
    text = Path(f"/proc/{process.pid}/status").read_text()
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    uids, gids = status["Uid"].split(), status["Gid"].split()
    assert len(set(uids)) == len(set(gids)) == 1
    assert uids[0] != "0" or os.geteuid() != 0
    assert gids[0] != "0" or os.getegid() != 0
    assert "0" not in status["Groups"].split() or os.geteuid() != 0


def test_room_for_descriptors() -> None:
    """Test in a separate process: the soft limit becomes the hard one, and no descriptor stays open."""
    code = ("import os, resource; from mosq.server.process import room_for_descriptors\n"
            "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
            "before = os.listdir('/proc/self/fd')\n"
            "assert room_for_descriptors() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n"
            "assert os.listdir('/proc/self/fd') == before\n")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
