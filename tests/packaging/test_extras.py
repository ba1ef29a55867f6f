"""Test the advice on optional packages: one text for each way in which mosq was installed, and the same in each message."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from unittest.mock import Mock

import pytest

from mosq.auth import hashes
from mosq.auth.loading import make_plugin
from mosq.auth.password_file import parse_passwords
from mosq.cli.commands import main
from mosq.config.errors import ConfigError, Origin
from mosq.config.plugin import Plugin
from mosq.tools import extras
from mosq.tools.extras import CHECKOUT, DEBIAN, WHEEL, install_advice, packages_advice, requirements, way_of

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
METADATA = """Metadata-Version: 2.1
Name: mosq
Version: 0.2.0
Requires-Dist: click>=8.1
Requires-Dist: PyJWT[crypto]>=2.8; extra == "jwt"
Requires-Dist: pyarrow>=14; extra == "bench"
Requires-Dist: jinja2>=3.1 ; extra == 'bench'
"""


def installed(folder: Path) -> str:
    """Write the metadata of an installed mosq; return its folder."""
    (folder / "mosq-0.2.0.dist-info").mkdir(parents=True)
    (folder / "mosq-0.2.0.dist-info/METADATA").write_text(METADATA)
    return str(folder)


def test_a_checkout_names_the_packages_of_pyproject() -> None:
    assert way_of(str(ROOT)) == CHECKOUT
    for extra in ("bench", "http", "jwt", "pipeline", "socks", "top"):
        wanted = " ".join(f"'{one}'" for one in DECLARED[extra])
        assert install_advice(extra) == f"{sys.executable} -m pip install {wanted}"


@pytest.mark.parametrize("unreadable", ["tomllib", "pyproject.toml"])
def test_a_checkout_that_the_user_may_not_read_names_the_extra(unreadable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    if unreadable == "tomllib":
        monkeypatch.setitem(sys.modules, "tomllib", None)       # its import raises ImportError
    else:
        monkeypatch.setattr("builtins.open", Mock(side_effect=PermissionError))
    assert install_advice("jwt", str(tmp_path)) == f"{sys.executable} -m pip install 'mosq[jwt]'"


def test_a_wheel_names_the_packages_of_its_metadata(tmp_path: Path) -> None:
    folder = installed(tmp_path)
    assert way_of(folder) == WHEEL
    assert install_advice("bench", folder) == f"{sys.executable} -m pip install 'pyarrow>=14' 'jinja2>=3.1'"
    assert install_advice("jwt", folder) == f"{sys.executable} -m pip install 'PyJWT[crypto]>=2.8'"


def test_the_debian_package_names_a_folder_that_its_command_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed(tmp_path / "lib")
    monkeypatch.setattr(extras, "DEBIAN_FOLDER", folder)
    assert way_of(folder) == DEBIAN
    advice = install_advice("jwt", folder)
    assert advice == f"as root: apt install python3-pip && python3 -m pip install --target {extras.DEBIAN_EXTRAS} 'PyJWT[crypto]>=2.8'"
    (tmp_path / "lib/mosq").mkdir()
    (tmp_path / "lib/mosq/__init__.py").write_text("")
    (tmp_path / "lib/mosq/cli.py").write_text("import subprocess, sys, taken\ndef main():\n    print(taken.__file__)\n"
                                              "    return subprocess.call([sys.executable, '-c', 'import taken; print(taken.__file__)'])\n")
    place = tmp_path / "extras"
    place.mkdir()
    (place / "taken.py").write_text("")
    program = (ROOT / "packaging/mosq.py").read_text().replace("/usr/lib/mosq", folder)
    shown = extras.DEBIAN_EXTRAS.replace(f"{sys.version_info[0]}.{sys.version_info[1]}", "{sys.version_info[0]}.{sys.version_info[1]}")
    assert program.count(f'f"{shown}"') == 1
    (tmp_path / "mosq").write_text(program.replace(f'f"{shown}"', repr(str(place))))
    done = subprocess.run([sys.executable, "-sP", tmp_path / "mosq"], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.splitlines() == [str(place / "taken.py")] * 2


def test_no_metadata_leaves_the_name_of_the_extra(tmp_path: Path) -> None:
    assert requirements("bench", str(tmp_path)) == []
    assert "'mosq[bench]'" in install_advice("bench", str(tmp_path))


def test_the_advice_is_a_command_of_this_python() -> None:
    words = packages_advice(["click>=8.1"]).split()
    assert shutil.which(words[0]) is not None
    assert words[1:4] == ["-m", "pip", "install"]
    assert sysconfig.get_path("scripts").startswith(sys.prefix)


def test_each_message_has_the_same_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argon2 = packages_advice(["argon2-cffi>=23.1"])
    monkeypatch.setitem(sys.modules, "argon2", None)
    monkeypatch.setattr("mosq.auth.password_file.has_argon2", lambda: False)
    assert main(["passwd", "-b", "-c", "-H", "argon2id", str(tmp_path / "p"), "ann", "x"]) == 1
    assert argon2 in capsys.readouterr().err
    with pytest.raises(ConfigError) as error:
        parse_passwords(b"ann:$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$" + b"A" * 43 + b"\n", "p")
    assert argon2 in str(error.value)
    assert hashes.argon2_advice() == argon2


@pytest.mark.parametrize("path", ["python:mosq.auth.jwt:Jwt", "python:jwt"])
def test_a_plugin_without_its_package_says_how_to_install_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "mosq.auth.jwt", raising=False)
    with pytest.raises(ConfigError) as error:
        make_plugin(Plugin(path, None, "global", Origin("m.conf", 1)))
    assert "there is no module 'jwt'" in str(error.value)
    assert install_advice("jwt") in str(error.value)
