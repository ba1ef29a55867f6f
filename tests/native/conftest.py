"""Compile the C plugins of the tests, each once in a session."""

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent / "sources"


@pytest.fixture(scope="session")
def compiled():
    """Return a function that compiles a source with macros and returns the library. A broker that root starts reads it with the
    rights of another user, to which the folders of pytest are closed."""
    folder = Path(tempfile.mkdtemp(prefix="mosq-plugins-"))
    folder.chmod(0o755)
    made = {}
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]

    def compile_one(source, **macros):
        key = (source, *sorted(macros.items()))
        if key not in made:
            path = folder / ("-".join(map(str, [source, *macros.values()])) + ".so")
            subprocess.run([compiler, "-g1", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-o", str(path),
                            *(f"-D{name}={value}" for name, value in macros.items()), str(SOURCES / f"{source}.c"), "-lpthread"],
                           check=True, timeout=60)
            made[key] = path
        return made[key]

    yield compile_one
    shutil.rmtree(folder, ignore_errors=True)
