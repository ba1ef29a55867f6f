"""Test that a take-over of Mosquitto's files needs no module that only root may read: Python may be installed below /root."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.db.test_mosquitto_sqlite import client as sqlite_client
from tests.db.test_mosquitto_sqlite import made as sqlite_made
from tests.durable.test_handover import mosquitto_wrote
from tests.harness.broker import ROOT

# This program first imports the modules that a take-over needs, as a broker does while it is root. Then it refuses every further
# import, and takes the file over. So it stands for a broker whose user cannot read the Python installation.
AS_A_STRANGER_TO_PYTHON = """
import importlib.abc, sys
from mosq.config.parser import load_config
from mosq.server import handover, process

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        raise ImportError(f"{name} is imported after rights were given up")

config = load_config(sys.argv[1])
assert handover.may_take_over(config, sys.argv[2])
process.load_now(process.LOADED_FOR_TAKE_OVER)
sys.meta_path.insert(0, Refuse())
handover.settle(config, sys.argv[2], lambda type, text: print(text))
"""


@pytest.mark.parametrize("kind", ["mosquitto.db", "sqlite"])
def test_a_take_over_imports_nothing_after_rights_are_given_up(kind: str, tmp_path: Path) -> None:
    lines = f"persistence true\npersistence_location {tmp_path}/\n"
    if kind == "sqlite":
        with contextlib.closing(sqlite_made(tmp_path / "mosquitto.sqlite3")) as found:
            sqlite_client(found, "c")
        lines = f"plugin /usr/lib/mosquitto_persist_sqlite.so\nplugin_opt_db_file {tmp_path}/mosquitto.sqlite3\n"
    else:
        mosquitto_wrote(tmp_path / "mosquitto.db", b"c")
    (tmp_path / "m.conf").write_text(lines + "listener 1883 127.0.0.1\n")
    store = tmp_path / ("mosquitto.sqlite3.store" if kind == "sqlite" else "mosquitto.db.store")
    done = subprocess.run([sys.executable, "-c", AS_A_STRANGER_TO_PYTHON, str(tmp_path / "m.conf"), str(store)], cwd=ROOT,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Taking over" in done.stdout
