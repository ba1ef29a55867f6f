"""Test that `mosq doctor`, run by root, examines files with the rights of the broker's user, and that its advice is right.

Without root, the broker's user is the user of the test, and files without any permission take the place of root's files.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.auth.hashes import SHA512, new_hash
from mosq.cli.commands import main
from mosq.config.parser import load_config
from mosq.server.process import can_load, find_account
from tests.cli.test_drop_in import ended, logged
from tests.harness.broker import Broker, free_port

IS_ROOT = os.geteuid() == 0
CLOSED = 0o600 if IS_ROOT else 0
EMPTY = '{"clients": [], "groups": [], "roles": []}'
PASSWORDS = "ann:$7$101$c2FsdA==$aGFzaA==\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide a folder that all users may enter. The folders of pytest are closed to other users."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(autouse=True)
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that all users can read Python: that differs between machines, and the last test examines it."""
    monkeypatch.setattr("mosq.tools.doctor.rights.can_load", lambda account: True)


def file(path: Path, content: str, mode: int = 0o644) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def report(config: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Return (text, advice) of the findings that need attention."""
    main(["doctor", "--json", str(config)])
    return [(one["text"], one["advice"]) for one in json.loads(capsys.readouterr().out)["findings"] if one["level"] == "attention"]


def configuration(folder: Path, *lines: str) -> Path:
    return file(folder / "m.conf", "\n".join((f"listener {free_port()} 127.0.0.1", "allow_anonymous true", *lines)) + "\n")


def test_a_file_whose_user_may_do_everything_needs_no_attention(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = configuration(folder, f"acl_file {file(folder / 'acl', 'topic read a')}", "pid_file /dev/shm/mosq.pid", "log_dest file /dev/null")
    assert report(path, capsys) == []


@pytest.mark.parametrize(("option", "content"), [("password_file", PASSWORDS), ("acl_file", "topic read a\n")])
def test_a_file_that_a_reload_cannot_read_is_reported(option: str, content: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = file(folder / "secret", content, CLOSED)
    [(text, advice)] = report(configuration(folder, f"{option} {secret}"), capsys)
    assert text.startswith(f"{option} {secret} cannot be read")
    if IS_ROOT:
        subprocess.run(advice, shell=True, check=True)
        assert report(configuration(folder, f"{option} {secret}"), capsys) == []


def test_the_advice_for_a_secret_that_all_can_read_keeps_the_way_for_a_reload(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, content in (("password_file", PASSWORDS), ("plugin_opt_config_file", EMPTY)):
        secret = file(folder / "secret", content)
        path = configuration(folder, *(["plugin dynamic-security"] if option != "password_file" else []), f"{option} {secret}")
        found = dict(report(path, capsys))
        advice = found[f"{option} {secret} can be read by all users of this machine"]
        subprocess.run(advice, shell=True, check=True)
        assert secret.stat().st_mode & 0o777 == 0o600
        assert not [text for text, _ in report(path, capsys) if "secret" in text and "folder" not in text]
        account = find_account(load_config(str(path)).user)
        assert secret.stat().st_uid == (os.geteuid() if account is None else account.uid)


def test_the_file_of_dynamic_security_that_cannot_be_read_stops_the_broker(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = file(folder / "dynamic.json", EMPTY, CLOSED)
    path = configuration(folder, "plugin dynamic-security", f"plugin_opt_config_file {secret}")
    assert ended(path).returncode == 3
    [(text, advice)] = report(path, capsys)
    assert text.startswith(f"dynamic security file {secret} cannot be read by the user")
    assert advice.startswith("The broker will not start with it.")
    assert main(["-c", str(path), "--test-config"]) == 0
    assert text in capsys.readouterr().err


def test_the_folder_of_dynamic_security_must_let_commands_change_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = file(folder / "dynamic.json", EMPTY)
    if IS_ROOT:
        shutil.chown(secret, find_account("mosquitto").uid)     # type: ignore[union-attr]
    secret.chmod(0o600)
    path = configuration(folder, "plugin dynamic-security", f"plugin_opt_config_file {secret}")
    folder.chmod(0o755 if IS_ROOT else 0o555)
    assert ["cannot write in its folder" in text for text, _ in report(path, capsys)] == [True]
    folder.chmod(0o755)


def test_a_folder_that_is_missing_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = configuration(folder, f"pid_file {folder}/none/pid", f"log_dest file {folder}/none/log")
    done = ended(path)
    assert (done.returncode, f"Unable to write pid file {folder}/none/pid" in done.stderr) == (1, True)
    assert [text.split(" cannot")[0] for text, _ in report(path, capsys)] == [f"pid_file {folder}/none/pid", f"log_dest file {folder}/none/log"]
    assert main(["-c", str(path), "--test-config"]) == 0
    assert f"Warning: pid_file {folder}/none/pid cannot be written" in capsys.readouterr().err


def test_a_link_in_the_place_of_the_pid_file_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pid").symlink_to(folder / "other")
    assert [text for text, _ in report(configuration(folder, f"pid_file {folder}/pid"), capsys)] == [
        f"pid_file {folder}/pid cannot be written (it is a symbolic link)"]


def test_a_user_that_does_not_exist_is_reported_to_root(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = configuration(folder, "user no-such-user")
    assert [text.split("because")[0] for text, _ in report(path, capsys)] == ["Unable to drop privileges to 'no-such-user' "] * IS_ROOT
    assert main(["-c", str(path), "--test-config"]) == 0
    assert ("Unable to drop privileges to 'no-such-user'" in capsys.readouterr().err) == IS_ROOT


def test_a_folder_of_the_store_that_the_user_cannot_write_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "data"
    place.mkdir(mode=0o755 if IS_ROOT else 0o555)
    path = configuration(folder, "persistence true", f"persistence_location {place}/")
    [(text, advice)] = report(path, capsys)
    assert f"({place}: Permission denied)" in text
    if IS_ROOT:
        subprocess.run(advice, shell=True, check=True)
        assert report(path, capsys) == []


def test_a_file_of_mosquitto_that_the_user_cannot_read_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "data"
    place.mkdir()
    if IS_ROOT:
        shutil.chown(place, find_account("mosquitto").uid)      # type: ignore[union-attr]
    left = file(place / "mosquitto.db", "x", CLOSED)
    path = configuration(folder, "persistence true", f"persistence_location {place}/")
    assert [text for text, _ in report(path, capsys) if text.startswith(f"{left} cannot be read by the user")]


def test_the_configuration_itself_must_be_readable_for_a_reload(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without root, the command cannot read the file either, and reports that as an error."""
    (folder / "conf.d").mkdir()
    file(folder / "conf.d/a.conf", "sys_interval 1\n", 0o600)
    path = configuration(folder, f"include_dir {folder}/conf.d")
    path.chmod(0o600)
    found = report(path, capsys)
    assert [shlex.split(text)[2] for text, _ in found] == [str(path), f"{folder}/conf.d/a.conf"][:2 * IS_ROOT]
    for _, advice in found:
        subprocess.run(advice, shell=True, check=True)
    assert report(path, capsys) == []


def test_a_reload_works_after_the_advice() -> None:
    """A broker that the user of the test starts keeps its rights and needs no advice."""
    broker = Broker("", {})
    secret = file(Path(broker.dir) / "passwd", f"ann:{new_hash(SHA512, b'x')}\n", 0o600)
    broker.config.write_text(f"listener {broker.port} 127.0.0.1\npassword_file {secret}\n")
    with broker:
        assert (f"Warning: password_file {secret} was read as root" in broker.log()) == IS_ROOT
        if IS_ROOT:
            broker.send_signal(signal.SIGHUP)
            assert "Permission denied" in logged(broker, "Unable to open pwfile")[0]
            shutil.chown(secret, find_account("mosquitto").uid)     # type: ignore[union-attr]
        broker.config.write_text(f"{broker.config.read_text()}user nobody\n")
        broker.send_signal(signal.SIGHUP)
        logged(broker, "Warning: 'user' has changed")


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_a_python_that_only_root_can_read_is_reported(folder: Path, is_open: bool, capsys: pytest.CaptureFixture[str],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """`mosq upgrade` starts the new process without root's rights."""
    module = file(folder / "module.py", "", 0o644 if is_open else CLOSED)
    monkeypatch.setattr("mosq.tools.doctor.rights.can_load", can_load)
    monkeypatch.setattr("mosq.server.process.os.__file__", str(module))
    monkeypatch.setattr("mosq.server.process.__file__", str(module))
    found = [one for one in report(configuration(folder), capsys) if "mosq upgrade" in one[0]]
    if is_open or not IS_ROOT:          # without root the broker keeps the user that runs doctor, which can read both
        assert found == []
    else:
        [(text, advice)] = found
        assert "cannot read Python or mosq" in text and "where all users can read them" in advice


def test_a_node_of_a_cluster_need_not_write_the_file_of_dynamic_security(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closed = folder / "closed"
    closed.mkdir()
    lines = "plugin dynamic-security", f"plugin_opt_config_file {file(closed / 'dynamic.json', EMPTY)}"
    closed.chmod(0o555)
    for node, found in (((), True), (("persistence true", "cluster redis://host", "cluster_node a"), False)):
        assert any("commands cannot change it" in text for text, _ in report(configuration(folder, *lines, *node), capsys)) == found
    closed.chmod(0o755)
