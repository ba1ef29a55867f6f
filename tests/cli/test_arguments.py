"""Test accepted and refused command lines, and their exit status."""

import json

import click
import pytest

from mosq import __version__
from mosq.cli import commands
from mosq.cli.start import Start, plain_start


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_on_stdout_with_examples_and_status_0(flag, mosq):
    done = mosq(flag)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("-c", "-p", "-d", "-q", "-v", "--test-config", "--version", "-h", "Examples:", "Exit status:"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    # scripts look for the version in the first line, and for the usage
    assert done.stdout.startswith("mosquitto version 2.")
    assert "\nUsage: mosquitto [-c config_file] [-d] [-h] [-p port] [-v]\n" in done.stdout


def test_version(mosq):
    done = mosq("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mosq version {__version__}\n", "")


@pytest.mark.parametrize(("arguments", "said"), [
    (["--foo"], "Error: Unknown option '--foo'.\n"), (["--prot", "1"], "Error: Unknown option '--prot'. Did you mean"),
    (["-p", "0"], "Error: Invalid port specified (0)."), (["-p", "65536"], "Error: Invalid port specified (65536)."),
    (["-p", "x"], "Error: Invalid port specified (x). Expected a number from 1 to 65535."),
    (["-p", "9" * 5000], f"Error: Invalid port specified ({'9' * 40})."), (["-p", "٣"], "Error: Invalid port specified"),
    (["-p"], "Error: -p argument given, but no port specified."), (["--port"], "Error: -p argument given, but no port specified."),
    (["-c"], "Error: -c argument given, but no config file specified."),
    (["-v", "--config-file"], "Error: -c argument given, but no config file specified."),
    (["--tls-keylog"], "Error: --tls-keylog argument given, but no file specified."),
    (["--test-config"], "expected `-c FILE`"), (["what"], "what"), (["-c", ""], "Unable to open config file"),
    (["-c", "missing.conf"], "Unable to open config file 'missing.conf'. Expected a file that can be read: No such file or directory."),
    (["-p", "2000"] * 11, "Only 10 ports"),
])
def test_mistakes_end_with_status_3_on_stderr(arguments, said, mosq):
    done = mosq(*arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_check_of_a_good_file(mosq, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("listener 1883\nallow_anonymous true\n")
    for arguments in (["-c", path, "--test-config"], ["--test-config", "-c", path], ["--config-file", path, "--test-config"]):
        done = mosq(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Configuration file is OK.\n", "")


def test_test_config_prints_warnings_and_writes_nothing(mosq, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text(f"persistence true\nretry_interval 9\npersistence_location {tmp_path}/\npid_file {tmp_path}/pid\n")
    done = mosq("-c", path, "--test-config")
    assert (done.returncode, done.stdout) == (0, "Configuration file is OK.\n")
    assert "retry_interval" in done.stderr
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("check", [["--test-config"], []])
def test_a_mistake_in_a_file(check, mosq, tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("listener 1883\n\nallow_anonymous = true\n")
    done = mosq("-c", path, *check)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == ("Error: Invalid 'allow_anonymous' value (=). There is no '=' in this file; "
                           f"write `allow_anonymous true`.\nError found at {path}:3.\n")


@pytest.mark.parametrize("check", [["--test-config"], []])
def test_a_mistake_in_an_acl_file(check, mosq, tmp_path):
    (tmp_path / "rules").write_text("topic x\nallow y\n")
    path = tmp_path / "m.conf"
    path.write_text(f"acl_file {tmp_path}/rules\n")
    done = mosq("-c", path, *check)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"Error found at {tmp_path}/rules:2." in done.stderr


@pytest.mark.parametrize("check", [["--test-config"], []])
def test_a_broken_file_of_dynamic_security(check, mosq, tmp_path):
    (tmp_path / "d.json").write_text("{")
    path = tmp_path / "m.conf"
    path.write_text(f"dynamic_security {tmp_path}/d.json\nuser root\n")
    done = mosq("-c", path, *check)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"'{tmp_path}/d.json': line 1" in done.stderr and f"Error found at {path}:1." in done.stderr
    assert (tmp_path / "d.json").read_text() == "{"


@pytest.mark.parametrize("arguments", [
    [], ["-v"], ["-q", "-d"], ["--quiet", "--verbose", "--daemon"], ["-c", "x.conf"], ["--config-file", "x y", "-v"],
    ["-p", "1883", "--port", "1884"], ["-v", "-p", "1", "-c", "a", "-p", "65535"], ["-c", "a", "-c", "b"], ["-p", "01883"],
])
def test_plain_start_agrees_with_click(arguments, monkeypatch):
    seen = []
    monkeypatch.setattr(commands, "run", lambda start: seen.append(vars(start)) or 0)
    assert commands.main(arguments) == 0
    assert [vars(plain_start(arguments))] == seen


@pytest.mark.parametrize("arguments", [
    ["-h"], ["-vq"], ["-cx.conf"], ["--config-file=x"], ["-p", "0"], ["-p", "65536"], ["-p", "x"], ["-p"], ["-c"], ["-c", "-v"], ["-c", ""],
    ["--test-config"], ["--version"], ["x"], ["-p", "٣"], ["--"], ["-p", "9" * 5000],
])
def test_other_arguments_are_left_to_click(arguments):
    assert plain_start(arguments) is None


def test_joined_spellings_work_too(monkeypatch):
    seen = []
    monkeypatch.setattr(commands, "run", lambda start: seen.append(vars(start)) or 0)
    assert commands.main(["-vqcx.conf", "--port=99"]) == 0
    assert seen == [vars(Start("x.conf", (99,), quiet=True, verbose=True))]


def test_further_commands_have_a_place(monkeypatch):
    monkeypatch.setattr(commands, "run", lambda start: pytest.fail("the broker was started"))
    ran = []
    monkeypatch.setitem(commands.mosq.commands, "passwd", click.Command("passwd", callback=lambda: ran.append(1)))
    assert commands.main(["passwd"]) == 0
    assert ran == [1]


def test_a_file_for_tls_keys(start, tmp_path):
    told = json.loads(start("--tls-keylog", tmp_path / "keys", way="tell").stdout.readline())["settings"]
    assert told["tls_keylog"] == str(tmp_path / "keys")
