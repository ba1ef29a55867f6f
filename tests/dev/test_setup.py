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
