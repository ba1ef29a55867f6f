"""Compile and run the example of docs/plugins-c.md, with the headers of Mosquitto, and check the page's table of decisions."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from mosq.auth.hashes import PBKDF2, new_hash
from tests.harness.broker import ROOT, Broker
from tests.harness.packets import Connect, Publish
from tests.native.test_events import closed_connections, opened     # noqa: F401

EXAMPLE = (ROOT / "docs/plugins-c.md").read_text().partition("\n## An example\n")[2].partition("\n## ")[0]
CODE, CONFIG, MAKE, USE = (text for _, text in re.findall(r"^```(\w*)\n(.*?)^```$", EXAMPLE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder():
    """Provide a folder that the user of a broker that root starts can read, with the files of the page."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    (made / "gate.c").write_text(CODE)
    wrapper = made / "bin/mosq"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mosq "$@"\n')
    wrapper.chmod(0o755)
    yield made
    shutil.rmtree(made)


def run(folder, line):
    """Run a line of the page; return its exit status and output."""
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("thread", ["", "plugin_thread own\n", "plugin_thread loop\n"])
def test_the_example_works(folder, thread):
    (folder / "gate.conf").write_text(CONFIG + "user root\n")      # another user may not be able to read the Python of the tests
    compile_it, write, doctor, start = MAKE.splitlines()
    assert run(folder, compile_it) == (0, "")
    assert run(folder, write) == (0, "")
    assert run(folder, doctor)[0] == 0
    assert start.startswith("mosq -c gate.conf ")
    config = CONFIG.replace("1884", "{port}").replace("./", f"{folder}/")
    with Broker(config + thread) as broker:
        assert start.partition("# logs: ")[2] in broker.log()
        allowed, refused = USE.replace("1884", str(broker.port)).splitlines()
        assert run(folder, allowed) == (0, "")
        status, output = run(folder, refused)
        assert f"{refused.partition('# ')[2]}" == f"not authorised, status {status}" and "not authorised" in output
        assert broker.stop() == 0
        assert "gate: 1 messages" in broker.log()


def test_the_example_explains_a_missing_option(folder):
    run(folder, MAKE.splitlines()[0])
    (folder / "gate.conf").write_text(CONFIG.partition("plugin_opt_")[0])
    status, output = run(folder, MAKE.splitlines()[3])
    assert status == 3 and "gate: expected plugin_opt_users FILE" in output


DEFER, IGNORE = "17", "32"


@pytest.mark.parametrize("thread", ["own", "loop"])
@pytest.mark.parametrize(("answer", "with_files", "logins", "closed"), [
    (None, False, (0, 0, 0, 0), 0), (DEFER, False, (0x87, 0x87, 0x87, 0), 0x87), (IGNORE, False, (0, 0, 0, 0), 0),
    *((answer, True, (0, 0x87, 0x87, 0), 0x87) for answer in (None, DEFER, IGNORE)),
])
def test_the_table_of_decisions_is_true(compiled, folder, thread, answer, with_files, logins, closed):
    """`logins`: a good, a bad and an unknown user, and a client without a name; `closed`: a topic for which the file has no rule."""
    (folder / "passwords").write_text(f"bob:{new_hash(PBKDF2, b'secret')}\n")
    (folder / "rules").write_text("topic readwrite open\n")
    lines = f"listener {{port}} 127.0.0.1\nallow_anonymous true\nplugin {compiled('checked', WHAT=0)}\nplugin_thread {thread}\n"
    if answer is not None:
        lines += f"plugin_opt_login {answer}\nplugin_opt_access {answer}\n"
    if with_files:
        lines += f"password_file {folder}/passwords\nacl_file {folder}/rules\n"
    with Broker(lines) as broker:
        users = (("bob", b"secret"), ("bob", b"bad"), ("eve", b"x"), (None, None))
        assert tuple(login(broker, *user)[1] for user in users) == logins
        wire, _ = login(broker, None, None)
        for topic, code in (("open", 0 if with_files else closed), ("closed", closed)):
            wire.send(Publish(topic, b"x", 1, 1))
            assert wire.read_packet().rc in ((code,) if code else (0, 0x10))


def login(broker, username, password):
    """Return the connection and the reason code of CONNACK."""
    wire = opened(broker, 5)
    wire.send(Connect("c", username=username, password=password))
    return wire, wire.read_packet().rc


def test_printed_lines_come_at_once(compiled, tmp_path):
    """A plugin's printf would wait in a buffer if the output is no terminal, and a crash would lose it."""
    path = tmp_path / "mosq.conf"
    path.write_text(f"user root\nlistener 0 {tmp_path}/socket\nplugin {compiled('checked', WHAT=1)}\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          cwd=ROOT, env=environment) as broker:
        limit = threading.Timer(30, broker.kill)
        limit.start()
        assert broker.stdout.readline() == b"printed by a constructor\n"
        assert broker.poll() is None
        limit.cancel()
        broker.kill()
