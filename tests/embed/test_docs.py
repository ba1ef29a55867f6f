"""Run every example of docs/embedding.md unchanged; the example of the pytest plugin tests the plugin."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "embedding.md").read_text(), re.DOTALL | re.MULTILINE)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_page_has_five_examples():
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example(block, tmp_path):
    path = tmp_path / "test_example.py"
    path.write_text(block)
    if "def test_" in block:
        # by name, whether or not the package is installed with its entry point
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:mosq", "-p", "mosq.pytest_plugin",
                   "-p", "no:cacheprovider", "--strict-markers", "--rootdir", str(tmp_path), str(path)]
    else:
        command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_entry_point_names_the_plugin():
    assert '[project.entry-points.pytest11]\nmosq = "mosq.pytest_plugin"\n' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.mosq("max_queued_messages 3\n", max_qos=1)
def test_marker_with_a_text(mosq_broker):
    config = mosq_broker._config
    assert (config.max_queued_messages, config.listeners[0].max_qos) == (3, 1)
