"""Test `mosq init`: the files that it writes are accepted by the broker's check, and nothing is overwritten."""

from __future__ import annotations

import os
import pty
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.cli.init_files import is_name
from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S

KINDS = {
    "defaults": ("-y",), "local": ("--local", "-y"), "plain": ("--no-tls", "-y"), "anonymous": ("--anonymous", "--no-tls", "--local", "-y"),
    "users": ("--user", "ann", "--user", "ben", "-y"), "names": ("--host", "broker.example", "--host", "192.0.2.1", "--host", "::1", "-y"),
    "memory": ("--no-persistence", "--tls", "--local", "-p", "8884", "-y"),
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Provide a folder that the user of a broker that root starts can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_passes_the_check_of_the_broker(open_folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    tmp_path = open_folder
    assert main(["init", str(tmp_path / "new"), *KINDS[kind]]) == 0
    out, err = capsys.readouterr()
    assert "Start the broker:" in out
    assert "Warning" not in err
    assert ("enable_control_api true" in (tmp_path / "new/mosq.conf").read_text()) == (kind != "anonymous")
    assert main(["-c", str(tmp_path / "new/mosq.conf"), "--test-config"]) == 0
    assert not [line for line in capsys.readouterr().err.splitlines() if "Warning" in line and "root" not in line]


def test_secrets_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new"), "-y"]) == 0
    for name in ("passwd", "certs/ca.key", "certs/server.key"):
        assert stat.S_IMODE((tmp_path / "new" / name).stat().st_mode) == 0o600
    assert not [name for name in os.listdir(tmp_path / "new") if name.startswith(".init")]


def test_the_certificate_has_all_names(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new"), *KINDS["names"]]) == 0
    shown = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", str(tmp_path / "new/certs/server.crt")],
                           capture_output=True, text=True, check=True).stdout
    for name in ("DNS:broker.example", "IP Address:192.0.2.1", "DNS:localhost", "IP Address:127.0.0.1", "IP Address:0:0:0:0:0:0:0:1"):
        assert name in shown
    done = subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", str(tmp_path / "new/certs/ca.crt"), str(tmp_path / "new/certs/server.crt")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["mosq.conf", "passwd", "certs", "data", "acl"])
def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path), "-y"]) == 1
    assert "nothing is overwritten" in capsys.readouterr().err
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_the_package_of_a_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mosq").mkdir()
    (tmp_path / "mosq/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["init", "-y"]) == 1
    assert "is a Python package. Choose another folder, such as `mosq init my-broker`." in capsys.readouterr().err
    assert os.listdir(tmp_path / "mosq") == ["__init__.py"]


@pytest.fixture
def service(open_folder: Path) -> Path:
    """Provide a folder such as /etc/mosq of the Debian package."""
    (open_folder / "conf.d").mkdir()
    (open_folder / "mosq.conf").write_text(f"persistence false\nuser nobody\n\ninclude_dir {open_folder}/conf.d\n")
    return open_folder


def test_a_service_gets_a_part_of_its_configuration(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (service / "mosq.conf").read_text()
    assert main(["init", str(service), "--user", "ann", "--host", "broker.example", "-y"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"Written: {service}/conf.d/init.conf, which {service}/mosq.conf includes.\n" in out
    assert "Reload the broker:  systemctl reload mosq\n" in out
    assert (service / "mosq.conf").read_text() == before
    assert sorted(os.listdir(service)) == ["acl", "certs", "conf.d", "mosq.conf", "passwd"]
    text = (service / "conf.d/init.conf").read_text()
    assert "persistence" not in text and "\nlog_dest" not in text
    assert main(["-c", str(service / "mosq.conf"), "--test-config"]) == 0
    if os.geteuid() == 0:
        assert {(service / name).owner() for name in ("passwd", "certs/server.key")} == {"nobody"}
    assert main(["init", str(service), "--user", "ann", "-y"]) == 1
    assert f"{service}/conf.d/init.conf exists" in capsys.readouterr().err


def test_the_storage_of_a_service_is_not_changed(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(service), "--no-persistence", "-y"]) == 3
    assert f"{service}/mosq.conf has the options for storage" in capsys.readouterr().err
    (service / "mosq.conf").write_text(f"listner 1\ninclude_dir {service}/conf.d\n")
    assert main(["init", str(service), "-y"]) == 1
    assert "has an error. Correct it first: " in capsys.readouterr().err
    assert sorted(os.listdir(service)) == ["conf.d", "mosq.conf"] and os.listdir(service / "conf.d") == []


def test_openssl_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["init", str(tmp_path / "new"), "-y"]) == 1
    assert "apt install openssl" in capsys.readouterr().err
    assert os.listdir(tmp_path / "new") == []
    assert main(["init", str(tmp_path / "new"), "--no-tls", "-y"]) == 0


@pytest.mark.parametrize("words", [("--anonymous", "--user", "ann"), ("--host", "a b"), ("--host", "x\ny"), ("-p", "0"), ("--host", "a,DNS:b")])
def test_wrong_flags_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert main(["init", str(tmp_path / "new"), *words, "-y"]) == 3
    assert not (tmp_path / "new").exists()


def test_a_wrong_user_name_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "new"), "--user", "a:b", "-y"]) == 1
    assert os.listdir(tmp_path / "new") == []


def test_names_of_hosts() -> None:
    assert all(map(is_name, ["a", "a.b-c.d", "*.x.y", "::1", "10.0.0.1", socket.gethostname()]))
    assert not any(map(is_name, ["", "a..b", "a b", "a\n", "x" * 64, "é", "DNS:a", "a,b"]))


def test_questions_are_asked_on_a_terminal(tmp_path: Path) -> None:
    """Answers: a user `ann` with a password, this machine only, no TLS, no persistence."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "mosq", "init", str(tmp_path / "new")], cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal,
                               start_new_session=True)
    os.close(terminal)
    shown = b""
    for question, answer in ((b"password?", "y"), (b"User name", "ann"), (b"New password", "secret"), (b"Reenter", "secret"),
                             (b"other machines?", "n"), (b"TLS", "n"), (b"on disk?", "n")):
        seen = len(shown)
        while question not in shown[seen:]:
            shown += os.read(controller, 1000)
        os.write(controller, answer.encode() + b"\n")
    assert process.wait(TIMEOUT_S) == 0
    os.close(controller)
    text = (tmp_path / "new/mosq.conf").read_text()
    assert "\nlistener 1883 127.0.0.1\n" in text
    assert "\npersistence false\n" in text
    assert (tmp_path / "new/passwd").read_text().startswith("ann:$")
