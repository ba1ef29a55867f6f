"""Test `mosq passwd` and the files that it writes."""

import os
import pty
import subprocess
import sys

import pytest

from mosq.cli import passwd as module
from mosq.auth.password_file import load_passwords
from mosq.cli.commands import main

WAIT_S = 30


def passwd(*arguments):
    return main(["passwd", *map(str, arguments)])


def run(*arguments, input=""):
    return subprocess.run([sys.executable, "-m", "mosq", "passwd", *map(str, arguments)], input=input, text=True,
                          capture_output=True, timeout=WAIT_S)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "passwd"


def good(path, user, password):
    users = load_passwords(str(path))
    return user in users.hashes and users.hashes[user].matches(password.encode())


def mode(path):
    return path.stat().st_mode & 0o7777


def test_a_new_file_then_more_users_then_a_new_password(path, capsys):
    assert passwd("-c", "-b", path, "ann", "one") == 0
    assert mode(path) == 0o600
    assert passwd("-b", path, "ben", "two") == 0
    assert passwd("-b", path, "ann", "three") == 0
    assert capsys.readouterr().out == ("Adding password for user ann\nAdding password for user ben\n"
                                       "Updating password for user ann\n")
    assert good(path, "ann", "three")
    assert good(path, "ben", "two")
    assert [line.partition(":")[0] for line in path.read_text().splitlines()] == ["ann", "ben"]


@pytest.mark.parametrize(("flags", "begins"), [
    ([], "$7$1000$"), (["-I", "17"], "$7$17$"), (["-H", "sha512-pbkdf2"], "$7$1000$"), (["-H", "sha512"], "$6$"),
    (["-H", "argon2id"], "$argon2id$v=19$m=47104,t=1,p=1$"),
])
def test_hashes(path, flags, begins):
    assert passwd(*flags, "-c", "-b", path, "ann", "pw") == 0
    assert path.read_text().startswith(f"ann:{begins}")
    assert good(path, "ann", "pw")


def test_to_standard_output(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert passwd("-c", "-b", "-", "ann", "pw") == 0
    path.write_text(capsys.readouterr().out)
    assert good(path, "ann", "pw")
    assert os.listdir(tmp_path) == ["passwd"]


def test_delete(path, capsys):
    path.write_text("# mine\nann:$6$a$b\nben:x\n")
    assert passwd("-D", path, "ann") == 0
    assert path.read_text() == "# mine\nben:x\n"
    assert passwd("-D", path, "ann") == 1
    assert capsys.readouterr().err == "Warning: User ann not found in password file.\n"


def test_hash_a_plain_file(path, capsys):
    passwd("-c", "-b", path, "cid", "three")
    hashed = path.read_text()
    path.write_text("# users\n\nann:one\nben: t:wo \r\n" + hashed)
    capsys.readouterr()
    assert passwd("-U", path) == 0
    assert capsys.readouterr().out == "1 passwords are hashed already and stay as they are.\n"
    assert path.read_text().startswith("# users\n\nann:$7$1000$")
    assert good(path, "ann", "one")
    assert good(path, "ben", "t:wo")
    assert good(path, "cid", "three")
    assert path.read_text().endswith(hashed)


def test_unchanged_lines_stay_byte_for_byte(path):
    before = b"# caf\xe9\r\n\r\n  ben : x \r\nann:old\r\nlast:x"
    path.write_bytes(before)
    assert passwd("-b", path, "cid", "pw") == 0
    assert path.read_bytes().startswith(before + b"\ncid:$7$")
    assert passwd("-b", path, "ann", "pw") == 0
    assert path.read_bytes().startswith(before.partition(b"ann:")[0] + b"ann:$7$")


def test_mode_and_links_stay(path, tmp_path):
    path.write_text("ann:x\n")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert passwd("-b", link, "ann", "pw") == 0
    assert link.is_symlink()
    assert mode(path) == 0o640
    assert passwd("-c", "-b", path, "ben", "pw") == 0
    assert mode(path) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link", "passwd"]


def test_a_file_that_cannot_be_replaced_is_overwritten(path, monkeypatch):
    path.write_text("a:" + "x" * 1000 + "\n")

    def busy(*_):
        raise OSError(16, "Device or resource busy")    # like a file that is mounted into a container

    monkeypatch.setattr(module.os, "rename", busy)
    assert passwd("-b", path, "a", "pw") == 0
    assert good(path, "a", "pw")
    assert path.read_text().count("\n") == 1
    assert os.listdir(path.parent) == ["passwd"]


def test_a_failure_leaves_the_file_unchanged(path, monkeypatch, capsys):
    path.write_text("ann:x\n")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    assert passwd("-b", path, "ann", "pw") == 1
    assert path.read_text() == "ann:x\n"
    assert os.listdir(path.parent) == ["passwd"]
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "says"), [
    ([], "Error: Expected password file, username"),
    (["f"], "Error: Expected"),
    (["-b", "f", "u"], "Error: Expected"),
    (["-b", "f", "u", "p", "q"], "Error: Expected"),
    (["-U", "f", "u"], "Error: Expected"),
    (["-x", "f", "u"], "No such option"),
    (["-c", "-D", "f", "u"], "Error: -c and -D cannot be used together."),
    (["-c", "-U", "f"], "Error: -c and -U cannot be used together."),
    (["-D", "-U", "f"], "Error: -D and -U cannot be used together."),
    (["-b", "-D", "f", "u"], "Error: -b and -D cannot be used together."),
    (["-H", "md5", "-b", "f", "u", "p"], "Error: Unknown hash type 'md5'"),
    (["-I", "0", "-b", "f", "u", "p"], "Error: Number of iterations must be > 0."),
    (["-I", "x", "-b", "f", "u", "p"], "Error: Number of iterations must be > 0."),
    (["-I", "10000001", "-b", "f", "u", "p"], "Error: Number of iterations must be <= 10000000."),
    (["-c", "-b", "f", "u:v", "p"], "Error: Username must not contain the ':' character."),
    (["-c", "-b", "f", "u\nv", "p"], "Error: Username must not contain control characters."),
    (["-c", "-b", "f", "#u", "p"], "Error: Username must not begin or end with a blank"),
    (["-c", "-b", "f", "", "p"], "Error: Username must not be empty."),
    (["-c", "-b", "f", "u" * 65536, "p"], "Error: Username must be less than 65536 characters long."),
    (["-c", "-b", "f", "u", "p" * 65536], "Error: Password must be less than 65536 characters long."),
    (["-b", "none", "u", "p"], "Error: Unable to open password file none. No such file or directory."),
    (["-D", "none", "u"], "Error: Unable to open password file none."),
    (["-U", "none"], "Error: Unable to open password file none."),
    (["-c", "-b", "nowhere/f", "u", "p"], "Error: Unable to open file"),
])
def test_mistakes_end_with_status_1_and_change_nothing(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert passwd(*arguments) == 1
    assert says in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"ann:x\nnonsense\n", b"ann:x\nben:\n", b"ann:x\n:y\n"])
@pytest.mark.parametrize("arguments", [["-D", "ann"], ["-b", "ann", "pw"], ["-U"]])
def test_a_corrupt_file_stays_unchanged(path, content, arguments, capsys):
    path.write_bytes(content)
    flags = [word for word in arguments if word.startswith("-")]
    assert passwd(*flags, path, *arguments[len(flags):]) == 1
    assert capsys.readouterr().err == "Error: Corrupt password file at line 2.\n"
    assert path.read_bytes() == content


def test_the_password_is_asked_for_twice(path):
    done = run("-c", path, "ann", input="pw\npw\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Password: \nReenter password: \nAdding password for user ann\n"
    assert good(path, "ann", "pw")


@pytest.mark.parametrize(("typed", "status", "says"), [
    ("pw\nother\n", 2, "Error: Passwords do not match.\n"), ("\n", 1, "Error: Empty password.\n"),
    ("", 1, "Error: Empty password.\n"), ("pw\n\n", 1, "Error: Empty password.\n"),
])
def test_a_mistyped_password_changes_nothing(path, typed, status, says):
    done = run("-c", path, "ann", input=typed)
    assert (done.returncode, done.stderr) == (status, says)
    assert not path.exists()


def test_on_a_terminal_the_password_is_not_shown(path):
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "mosq", "passwd", "-c", str(path), "ann"], stdin=slave, stdout=slave,
                          stderr=slave) as process:
        os.close(slave)
        seen = b""
        for prompt in (b"Password: ", b"Reenter password: "):
            while not seen.endswith(prompt):
                seen += os.read(master, 1000)
            os.write(master, b"s3cret\n")
        try:
            while more := os.read(master, 1000):
                seen += more
        except OSError:                     # Linux: the other end is closed
            pass
        assert process.wait(WAIT_S) == 0
    os.close(master)
    assert b"s3cret" not in seen
    assert good(path, "ann", "s3cret")
