"""Test that mosq reads files of Debian's mosquitto_passwd, and that Debian's Mosquitto reads files of `mosq passwd`."""

import shutil
import socket
import subprocess

import pytest

from mosq.auth.password_file import load_passwords
from mosq.cli.commands import main

pytestmark = pytest.mark.interop

WAIT_S = 20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "passwd"


def theirs(*arguments, input=None):
    subprocess.run([shutil.which("mosquitto_passwd"), *map(str, arguments)], check=True, capture_output=True, timeout=WAIT_S,
                   input=input)


def good(path, user, password):
    return load_passwords(str(path)).hashes[user].matches(password.encode())


def test_files_of_mosquitto_passwd_are_read(path):
    theirs("-c", "-b", path, "ann", "one")
    theirs("-b", path, "josé", "pässword")
    theirs("-H", "sha512", "-b", path, "old", "three")
    theirs("-I", "77", "-b", path, "many", "four")
    for user, password in (("ann", "one"), ("josé", "pässword"), ("old", "three"), ("many", "four")):
        assert good(path, user, password)
        assert not good(path, user, password + "x")
    assert main(["passwd", "-b", str(path), "ann", "new"]) == 0
    theirs("-b", path, "ben", "two")
    assert good(path, "ann", "new")
    assert good(path, "ben", "two")
    theirs("-D", path, "ann")
    assert "ann" not in load_passwords(str(path)).hashes


def test_a_plain_file_that_mosquitto_passwd_hashed(path):
    path.write_text("ann:one\nben:two\n")
    theirs("-U", path)
    assert good(path, "ann", "one")
    assert good(path, "ben", "two")


@pytest.fixture
def broker(path, tmp_path):
    """Run Debian's Mosquitto with our file; return the port."""
    main(["passwd", "-c", "-b", str(path), "ann", "one"])
    main(["passwd", "-H", "sha512", "-b", str(path), "old", "two"])
    main(["passwd", "-I", "9", "-b", str(path), "josé", "pässword"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(f"listener {port} 127.0.0.1\npassword_file {path}\nuser root\n")
    program = shutil.which("mosquitto", path="/usr/local/sbin:/usr/sbin:/usr/bin")
    with subprocess.Popen([program, "-c", str(conf), "-v"], stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.rstrip().endswith("running"):
                break
        yield port
        process.terminate()


def test_mosquitto_reads_files_of_mosq_passwd(broker):
    pub = shutil.which("mosquitto_pub")

    def login(user, password):
        return subprocess.run([pub, "-p", str(broker), "-u", user, "-P", password, "-t", "a", "-n"], capture_output=True,
                              timeout=WAIT_S).returncode == 0

    assert login("ann", "one")
    assert login("old", "two")
    assert login("josé", "pässword")
    assert not login("ann", "two")
    assert not login("old", "one")
