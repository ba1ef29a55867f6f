"""Test brokers whose store or dynamic security file is in a folder that is missing or cannot be written: `--test-config`, the
start and `mosq doctor` agree."""

import json
import os
import signal
import subprocess
import sys

import pytest

from mosq.config.parser import load_config
from mosq.log_types import ERROR, WARNING
from mosq.server.unkept import LOOK_EVERY_S, REPORT_EVERY_S, Unkept, unusable
from tests.cli.test_drop_in import connack, ended, logged
from tests.harness.broker import ROOT, Broker

LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
NO_FOLDER = "persistence true\npersistence_location {dir}/none/\n"
A_FILE = "persistence true\npersistence_location {dir}/mosq.conf/\n"
UNKEPT = "Nothing is kept over a restart, although persistence is true: the store cannot be opened ("
NOT_USABLE = "the dynamic security file"


def mosq(*arguments):
    return subprocess.run([sys.executable, "-m", "mosq", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.mark.parametrize(("lines", "why"), [(NO_FOLDER, "none: No such file or directory"), (A_FILE, "mosq.conf: Not a directory")])
def test_persistence_alone_runs_without_its_folder_and_reports_that_nothing_is_kept(lines, why):
    with Broker(LISTENER + lines) as broker:
        assert connack(broker, client_id="c", clean=False).rc == 0
        assert f"{why})" in logged(broker, f"Error: {UNKEPT}")[0]
        checked = mosq("-c", broker.config, "--test-config")
        assert (checked.returncode, checked.stdout) == (0, "Configuration file is OK.\n")
        assert f"Warning: {UNKEPT}" in checked.stderr
        report = json.loads(mosq("doctor", "--json", broker.config).stdout)
        assert any(one["level"] == "attention" and UNKEPT in one["text"] for one in report["findings"])
        broker.send_signal(signal.SIGUSR1)
        logged(broker, f"Error: {UNKEPT}", 2)
        broker.send_signal(signal.SIGHUP)
        logged(broker, "Reloading config.")
        assert connack(broker).rc == 0
        assert broker.stop() == 0


@pytest.mark.parametrize(("promise", "option"), [
    ("durability group\n", "durability"), ("durability_topic strict a/#\n", "durability_topic"), ("stream s a/#\n", "stream"),
    ("listener_durability strict\n", "listener_durability"), ("plugin persist-sqlite\nplugin_opt_db_file x\n", "persist-sqlite"),
])
def test_a_promise_to_keep_messages_stops_the_broker(promise, option, tmp_path):
    config = tmp_path / "mosq.conf"
    config.write_text((LISTENER + NO_FOLDER + promise).format(port=1, dir=tmp_path) + "user root\n")
    for found in (ended(config), mosq("-c", config, "--test-config")):
        assert found.returncode == 1
        assert f"Error: The store cannot be opened ({tmp_path}/none: No such file or directory), and '{option}' promises" in found.stderr
    assert "OK" not in found.stdout


def test_dynamic_security_needs_a_folder_for_its_file(tmp_path):
    config = tmp_path / "mosq.conf"
    for path in (tmp_path / "none" / "d.json", config / "d.json"):
        config.write_text(LISTENER.format(port=1) + f"plugin dynamic-security\nplugin_opt_config_file {path}\nuser root\n")
        for found in (ended(config), mosq("-c", config, "--test-config")):
            assert found.returncode == 3
            assert NOT_USABLE in found.stderr and f"Error found at {config}:3." in found.stderr
    config.write_text(LISTENER.format(port=1) + f"plugin dynamic-security\nplugin_opt_config_file {tmp_path}/d.json\nuser root\n")
    assert mosq("-c", config, "--test-config").returncode == 0
    assert not (tmp_path / "d.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root's rights are needed to take those of another user")
def test_the_check_looks_with_the_rights_of_the_broker(tmp_path):
    """Test a folder that only root may write."""
    (tmp_path / "root").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    config = tmp_path / "mosq.conf"
    for user, is_kept in (("root", True), ("nobody", False)):
        config.write_text(f"listener 1 127.0.0.1\npersistence true\npersistence_location {tmp_path}/root/\nuser {user}\n")
        assert (UNKEPT in mosq("-c", config, "--test-config").stderr) != is_kept


def test_the_broker_looks_again_until_the_folder_is_there(tmp_path):
    path = tmp_path / "m.conf"
    path.write_text(NO_FOLDER.format(dir=tmp_path))
    config = load_config(str(path))
    config.without_store = unusable(config)
    lines = []
    unkept = Unkept(config, lambda kind, text: lines.append((kind, text.partition(":")[2][:16])), 0.0)
    assert lines.pop() == (ERROR, " Nothing is kept")
    assert unkept.due_in_s(1.0) == LOOK_EVERY_S - 1
    unkept.look(LOOK_EVERY_S)
    assert not lines                        # nothing new, and no time yet for the line again
    unkept.look(REPORT_EVERY_S)
    assert lines.pop() == (ERROR, " Nothing is kept")
    (tmp_path / "none").mkdir()
    unkept.look(REPORT_EVERY_S + 1)
    assert not lines                        # not due
    unkept.look(REPORT_EVERY_S + LOOK_EVERY_S)
    unkept.look(REPORT_EVERY_S + 2 * LOOK_EVERY_S)
    assert lines == [(WARNING, " The folder of t")]
