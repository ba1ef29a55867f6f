"""Test the shell functions that build and run a checkout."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANGED = """
source "$1/dev/setup.sh"
cd "$2"
compile() { echo compiled; }
compile_changed %s
"""


@pytest.mark.parametrize("option", ["", "--tests"])
def test_a_fresh_clone_is_compiled(option: str, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    for name in ("cext", "mosq", "dev"):
        (tmp_path / name).mkdir()
    for name in ("setup.py", "dev/unit.py", "dev/compiling.py"):
        (tmp_path / name).write_text("")
    run = subprocess.run(["bash", "-c", CHANGED % option, "bash", str(ROOT), str(tmp_path)], capture_output=True, text=True, timeout=60,
                         check=True)
    assert run.stdout == "compiled\n"
    assert run.stderr == ""


OTHER_PYTHON = """
source "$1/dev/setup.sh"
cd "$2"
VENV=venv PYTHON=$2/python3
mkdir -p venv/bin; pwd > venv/.place; : > venv/pyvenv.cfg
printf '#!/bin/sh\\ncase $2 in *base_prefix*) echo 3.11 in /usr ;; esac\\n' > venv/bin/python
printf '#!/bin/sh\\ncase $2 in *base_prefix*) echo %s in /usr ;; esac\\n' > "$PYTHON"
chmod +x venv/bin/python "$PYTHON"
make_venv
"""


@pytest.mark.parametrize(("version", "is_reported"), [("3.11", False), ("3.13", True)])
def test_an_environment_of_another_python_is_reported(version: str, is_reported: bool, tmp_path: Path) -> None:
    run = subprocess.run(["bash", "-c", OTHER_PYTHON % version, "bash", str(ROOT), str(tmp_path)], capture_output=True, text=True,
                         timeout=60, check=True)
    assert ("to change it: make clean build" in run.stderr) == is_reported, run.stderr


def test_a_mosquitto_that_is_missing_is_reported_before_the_build(tmp_path: Path) -> None:
    """The environment would be made in this folder."""
    run = subprocess.run(["dev/differential", "--mosquitto", "/no/mosquitto -v"], cwd=ROOT, capture_output=True, text=True, timeout=60,
                         check=False, env={"PATH": "/usr/bin:/bin", "MOSQ_VENV": str(tmp_path / "venv")})
    assert (run.returncode, run.stderr) == (1, "== there is no program /no/mosquitto; --mosquitto (MOSQUITTO=) is the command of a Mosquitto\n")
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_the_conformance_tests_needs_no_suite() -> None:
    run = subprocess.run(["dev/conformance", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.startswith("Runs Mosquitto's own broker tests")
