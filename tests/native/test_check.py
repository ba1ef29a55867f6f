"""The checks of a native plugin before the start (`mosq doctor`, `--test-config`), and the start's reports about the same libraries."""

import json
import os
import subprocess

import pytest

from mosq.auth.native import check
from mosq.config.errors import Origin
from mosq.config.plugin import Plugin
from tests.harness.broker import command
from tests.native.test_versions import NAMES, start

ENDS = "its library, or its function that returns the version, ends the process with"


@pytest.fixture
def folder(compiled):
    """Provide the folder of the compiled plugins, which the broker's user may read."""
    return compiled("checked", WHAT=0).parent


def run(tmp_path, lines, *arguments):
    """Return the exit status and the output of a command about a configuration with these lines."""
    path = tmp_path / "mosq.conf"
    path.write_text(f"listener 1883 127.0.0.1\n{lines}")
    words = ["-c", str(path), "--test-config"] if not arguments else [*arguments, str(path)]
    done = subprocess.run([*command(), *words], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def refused_everywhere(tmp_path, line, says, starts_with=13):
    """The check, doctor and the start refuse the plugin, with the same reason."""
    status, output = run(tmp_path, line)
    assert (status, says in output) == (3, True), output
    status, output = run(tmp_path, line, "doctor")
    assert (status, says in output) == (3, True), output
    assert "The broker will not start with this file." in output
    found = json.loads(run(tmp_path, line, "doctor", "--json")[1])
    assert found["starts"] is False
    if starts_with is not None:
        status, output = start(tmp_path, line)
        assert (status, says.partition(";")[0] in output) == (starts_with, True), output


def changed(good, path, **at):
    """Copy a library with other bytes: `at_OFFSET=bytes`."""
    content = bytearray(good.read_bytes())
    for name, value in at.items():
        offset = int(name.removeprefix("at_"))
        content[offset:offset + len(value)] = value
    path.write_bytes(content)
    path.chmod(0o755)


@pytest.mark.parametrize(("at", "machine"), [
    ({"at_18": b"\xf3\0"}, "RISC-V (64-bit)"), ({"at_4": b"\1", "at_18": b"\x28\0"}, "ARM (32-bit)"),
    ({"at_5": b"\2", "at_18": b"\0\x16"}, "S/390 (64-bit, big-endian)"), ({"at_18": b"\xff\x7f"}, "the machine with ELF's number 32767 (64-bit)"),
])
def test_a_library_of_another_machine(compiled, folder, tmp_path, at, machine):
    changed(compiled("checked", WHAT=0), folder / "other.so", **at)
    refused_everywhere(tmp_path, f"plugin {folder}/other.so\n", f"the library is for {machine}, but this machine is ")


@pytest.mark.parametrize("left", [0, 10, 40, 100, 1000, 9000])
def test_a_library_that_was_cut_off(compiled, folder, tmp_path, left):
    (folder / "cut.so").write_bytes(compiled("checked", WHAT=0).read_bytes()[:left])
    says = f"the file is cut off: it has {left} bytes and needs at least " if left else "the file is empty"
    refused_everywhere(tmp_path, f"plugin {folder}/cut.so\n", says)


def test_files_that_are_no_libraries(compiled, folder, tmp_path):
    (folder / "text.so").write_text("no library\n" * 100)
    changed(compiled("checked", WHAT=0), folder / "object.so", at_16=b"\1\0")
    os.mkfifo(folder / "pipe.so")
    for name, says in (("text.so", "it is no library of Linux: it has no ELF header"), ("object.so", "it is an object file; compile it with -shared"),
                       ("pipe.so", "it is no file, but a device, pipe or socket"), ("", "it is no file, but a folder"),
                       ("missing.so", "cannot open shared object file: No such file or directory")):
        refused_everywhere(tmp_path, f"plugin {folder}/{name}\n", says)


@pytest.mark.parametrize(("source", "macros", "says"), [
    ("odd", {"WHAT": 3}, "it is no plugin of Mosquitto: it has no function mosquitto_auth_plugin_version() or mosquitto_plugin_version()"),
    ("odd", {"WHAT": 5}, "Unsupported auth plugin version (got 6, expected 5)"),
    ("odd", {"WHAT": 6}, "it has no function mosquitto_plugin_init()"),
    ("older", {"VERSION": 4, "LEAVE_OUT": 8}, "Plugin has missing mosquitto_auth_continue() function"),
    *(("older", {"VERSION": version, "LEAVE_OUT": i}, f"it has no function mosquitto_auth_{'plugin_' * (i < 2)}{NAMES[i]}()")
      for version, i in ((2, 0), (3, 6), (4, 4))),
])
def test_missing_functions_and_unknown_versions_are_found_before_the_start(compiled, tmp_path, source, macros, says):
    line = f"plugin {compiled(source, **macros)}\n"
    refused_everywhere(tmp_path, line, says, starts_with=None)
    assert start(tmp_path, line)[0] == 13


def test_names_that_do_not_exist(compiled, tmp_path):
    for line, says, advice in ((compiled("odd", WHAT=4), "undefined symbol: mosquitto_does_not_exist", "a name that Mosquitto 2.1 exports"),
                               (compiled("checked", WHAT=6), "undefined symbol: not_linked", "to be linked to the plugin")):
        refused_everywhere(tmp_path, f"plugin {line}\n", says)
        assert advice in run(tmp_path, f"plugin {line}\n")[1]
    assert "without a / it is looked up in the folders of the system" in run(tmp_path, "plugin nowhere.so\n")[1]


@pytest.mark.timing             # a sanitizer writes a report about the crash
def test_a_crash_and_an_end_in_the_version_end_the_check_only(compiled, tmp_path):
    for what, says in ((2, f"{ENDS} signal 11."), (3, f"{ENDS} exit status 0.")):
        status, output = run(tmp_path, f"plugin {compiled('checked', WHAT=what)}\n")
        assert (status, says in output) == (3, True), output


def test_a_version_that_never_returns_has_a_limit(compiled, monkeypatch):
    monkeypatch.setattr(check, "WITHIN_S", 1)
    why = check.unloadable_native(Plugin(str(compiled("checked", WHAT=4)), None, "global", Origin("mosq.conf", 1)))
    assert why is not None and "does not return within 1 s" in why


def test_a_plugin_that_prints_is_good_and_is_not_initialized(compiled, tmp_path):
    for library in (compiled("checked", WHAT=1), compiled("older", VERSION=2), compiled("events")):
        assert run(tmp_path, f"plugin {library}\n") == (0, "Configuration file is OK.\n")
    made = tmp_path / "made"
    assert run(tmp_path, f"plugin {compiled('checked', WHAT=5)}\nplugin_opt_path {made}\n")[0] == 0
    assert not made.exists()


def test_a_library_that_the_broker_may_not_read(compiled, folder, tmp_path):
    """Root checks with the rights of the broker's user, as the start loads plugins."""
    changed(compiled("checked", WHAT=0), folder / "closed.so")
    (folder / "closed.so").chmod(0o600 if os.geteuid() == 0 else 0)
    refused_everywhere(tmp_path, f"plugin {folder}/closed.so\n", "cannot open shared object file: Permission denied", starts_with=None)


def test_a_check_imports_no_module_of_the_folder(compiled, tmp_path, monkeypatch):
    (tmp_path / "subprocess.py").write_text("raise SystemExit(77)\n")
    (tmp_path / "ctypes.py").write_text("raise SystemExit(77)\n")
    monkeypatch.chdir(tmp_path)
    assert check.unloadable_native(Plugin(str(compiled("checked", WHAT=0)), None, "global", Origin("mosq.conf", 1))) is None


# ---- the report about logins

def admitted(tmp_path, lines):
    """Return the line of the report about the listener, and the line about its clients that needs attention."""
    found = json.loads(run(tmp_path, lines, "doctor", "--json")[1])["findings"]
    [line] = [one["text"] for one in found if one["level"] == "same" and one["text"].startswith("listener ")]
    return line.partition("lets in ")[2], [one["text"] for one in found if one["level"] == "attention"]


def test_doctor_reports_that_the_plugin_decides(compiled, tmp_path):
    plugin = compiled("checked", WHAT=0)
    (tmp_path / "passwords").write_text("")
    (tmp_path / "passwords").chmod(0o600)
    allowed = f"the clients that the plugin {plugin.name} allows"
    left = f"{allowed}, and where it leaves the decision to the broker"
    for lines, says in (("", allowed), ("allow_anonymous true\n", f"{left}, all clients"),
                        (f"password_file {tmp_path}/passwords\n", f"{left}, clients with a password")):
        assert admitted(tmp_path, f"{lines}plugin {plugin}\n")[0] == says
    assert admitted(tmp_path, f"plugin {plugin}\nplugin {compiled('events')}\n")[0] == \
        f"the clients that the plugin {plugin.name} or events.so allows"


def test_doctor_warns_of_allow_anonymous_beside_a_plugin(compiled, tmp_path):
    path = tmp_path / "mosq.conf"
    path.write_text(f"listener 1883\nallow_anonymous true\nplugin {compiled('checked', WHAT=0)}\n")
    done = subprocess.run([*command(), "doctor", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "has allow_anonymous true: only the plugin checked-0.so can refuse clients that reach this machine" in done.stdout
    assert "lets in all clients" not in done.stdout


def test_doctor_reports_a_thread_that_has_no_effect(tmp_path):
    lines = "plugin sparkplug-aware\nplugin_thread loop\n"
    assert "plugin_thread has no effect on plugin sparkplug-aware, which is not in C" in admitted(tmp_path, lines)[1]
