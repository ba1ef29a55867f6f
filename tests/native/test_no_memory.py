"""Requests for which the shim finds no memory are refused: each single allocation fails once."""

import shlex
import subprocess
import sysconfig
from pathlib import Path

SHIM = Path(__file__).resolve().parents[2] / "cext" / "shim"
SOURCES = Path(__file__).resolve().parent / "sources"


def test_a_request_without_memory_is_refused(tmp_path):
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    sources = sorted(map(str, SHIM.glob("*.c")))
    subprocess.run([compiler, "-g1", "-O1", "-Werror=implicit-function-declaration", "-include",
                    str(SOURCES / "failing.h"), "-c", *sources], check=True, timeout=120, cwd=tmp_path)
    objects = sorted(map(str, tmp_path.glob("*.o")))
    subprocess.run([compiler, "-g1", "-O1", "-o", "no_memory", str(SOURCES / "no_memory.c"), *objects, "-lcrypto", "-ldl", "-lpthread"],
                   check=True, timeout=120, cwd=tmp_path)
    done = subprocess.run([tmp_path / "no_memory"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "0 problems\n"), done.stdout + done.stderr
