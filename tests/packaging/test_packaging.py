"""The files of the Debian package and of the container. dev/install-matrix installs them; these checks take no second."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mosq
from mosq.server.node.parent import LEAVE_S
from mosq.server.workers.parent import STOP_S
from mosq.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "packaging/debian"
SCRIPTS = sorted(path for path in DEBIAN.iterdir() if path.suffix in (".postinst", ".prerm", ".postrm"))
EXCHANGE = ROOT / "packaging/exchange.py"


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_maintainer_script_is_a_script_and_ends_at_an_error(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True, timeout=60)
    text = script.read_text()
    assert text.startswith("#!/bin/sh\n") and "\nset -e\n" in text and "\n#DEBHELPER#\n" in text


def test_the_package_and_the_example_have_the_same_unit() -> None:
    example, packaged = ([line for line in path.read_text().splitlines() if line and not line.startswith("#")]
                         for path in (ROOT / "conf/mosq.service", DEBIAN / "mosq.service"))
    differences = {one.partition("=")[0] for one in set(example) ^ set(packaged)}
    assert differences == {"Documentation", "ExecStart", "User", "Group", "RuntimeDirectory", "LogsDirectory", "LogsDirectoryMode",
                           "StateDirectory", "StateDirectoryMode"}
    assert "ExecStart=/usr/bin/mosq -c /etc/mosq/mosq.conf" in packaged


def test_systemd_waits_until_a_node_has_left_its_cluster() -> None:
    [line] = [line for line in (DEBIAN / "mosq.service").read_text().splitlines() if line.startswith("TimeoutStopSec=")]
    assert int(line.partition("=")[2]) > LEAVE_S + 2 * STOP_S       # STOP_S: for the workers, and then for the agent
    assert "\nKillMode=mixed\n" in (DEBIAN / "mosq.service").read_text()       # else all workers get SIGTERM at once


def test_the_package_and_its_unit_give_folders_the_same_owner_and_mode() -> None:
    """The package made the folder of the log 0750 of group adm, and each start of the service 0755 of group mosq."""
    unit = dict(line.split("=", 1) for line in (DEBIAN / "mosq.service").read_text().splitlines() if "=" in line and not line.startswith("#"))
    script = (DEBIAN / "mosq.postinst").read_text()
    assert f"chown {unit['User']}:{unit['Group']} /var/lib/mosq /var/log/mosq\n" in script
    assert unit["LogsDirectoryMode"] == unit["StateDirectoryMode"] == "0750" and "chmod 0750 /var/lib/mosq /var/log/mosq\n" in script


def test_the_examples_are_in_one_folder() -> None:
    """They were in examples/examples."""
    patterns = [line.removeprefix("tree/doc/") for line in (DEBIAN / "mosq.examples").read_text().splitlines()]
    found = [path for pattern in patterns for path in ROOT.glob(pattern)]
    assert len({path.name for path in found}) == len(found) and "examples" not in {path.name for path in found}
    below = {inner for path in found for inner in (path, *path.rglob("*")) if inner.is_file()}
    assert below == {path for path in (ROOT / "conf").rglob("*") if path.is_file()}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        return                  # the test above compares it with the unit that tests of the service use
    unit = tmp_path / "mosq.service"
    unit.write_text((DEBIAN / "mosq.service").read_text().replace("/usr/bin/mosq", "/bin/true"))
    done = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False)
    assert not [line for line in (done.stdout + done.stderr).splitlines() if "mosq.service" in line]


def test_the_configuration_of_the_package_is_accepted(tmp_path: Path) -> None:
    for name, source in (("mosq.conf", "packaging/mosq.conf"), ("mosquitto.conf", "packaging/container/mosquitto.conf")):
        text = (ROOT / source).read_text()
        for folder in ("/var/lib/mosq/", "/var/log/mosq/", "/etc/mosq/conf.d", "/mosquitto/data/"):
            text = text.replace(folder, f"{tmp_path}/")
        (tmp_path / name).write_text(text.replace(f"include_dir {tmp_path}/\n", "").replace("\nuser mosq\n", "\nuser root\n"))
        done = subprocess.run([sys.executable, "-m", "mosq", "-c", tmp_path / name, "--test-config"], cwd=ROOT, capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 0, done.stderr


def test_the_user_of_the_configuration_is_that_of_the_unit() -> None:
    """`mosq doctor` and `mosq init`, run by root, take the user from the configuration."""
    assert "\nUser=mosq\n" in (DEBIAN / "mosq.service").read_text()
    assert "\nuser mosq\n" in (ROOT / "packaging/mosq.conf").read_text()


def test_the_named_packages_of_python_fit_the_requirements() -> None:
    named = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", (ROOT / "packaging/vendor.txt").read_text(), re.MULTILINE))
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for one in required:
        name, least, _, below = re.fullmatch(r"([a-z0-9-]+)>=([0-9.]+)(,<([0-9.]+))?", one).groups()
        assert number(named[name]) >= number(least), one
        assert not below or number(named[name]) < number(below), one


def test_each_named_package_of_python_has_digests() -> None:
    lines = [line for line in (ROOT / "packaging/vendor.txt").read_text().splitlines() if not line.startswith("#")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if "==" in line:
            assert line.endswith(" \\") and re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", following), line


def test_pages_name_the_present_version() -> None:
    assert f"\n## {VERSION} " in (ROOT / "CHANGELOG.md").read_text()
    assert set(re.findall(r"mosq[-_](\d+\.\d+\.\d+)", (ROOT / "docs/install.md").read_text())) == {VERSION}


def test_the_container_runs_as_the_user_of_eclipse_mosquitto() -> None:
    lines = (ROOT / "packaging/container/Containerfile").read_text().replace("\\\n", " ").splitlines()
    words = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in lines if line and not line.startswith("#")}
    assert words["USER"] == "1883:1883" and "--uid 1883" in words["RUN"]
    assert json.loads(words["CMD"])[-1] == "/mosquitto/config/mosquitto.conf"
    for line in lines:
        if line.startswith("COPY packaging"):
            assert (ROOT / line.split()[1]).is_file(), line


def exchange(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-sPE", EXCHANGE, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def test_the_health_check_succeeds_only_with_a_broker() -> None:
    with mosq.Broker() as broker:
        port = broker.port
        assert exchange("health", port).returncode == 0
    assert exchange("health", port).returncode == 1


def test_the_exchange_reports_messages_that_are_lost() -> None:
    with mosq.Broker() as broker:
        assert exchange("leave", 3, broker.port).returncode == 0
        done = exchange("fetch", 3, broker.port)
        assert (done.returncode, done.stderr) == (0, "")
    with mosq.Broker() as broker:
        assert exchange("fetch", 3, broker.port).stderr == "the session is lost\n"
