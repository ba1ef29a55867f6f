"""Test `mosq config diff`, `mosq config explain`, `mosq doctor` and --test-config."""

import contextlib
import datetime
import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mosq.cli.commands import main, mosq
from mosq.tools.db.mark import EXPORTED, Mark, identity, write_mark
from tests.db import mosquitto_db as made
from tests.db.test_mosquitto_sqlite import made as sqlite_made


@pytest.fixture
def run(capsys, monkeypatch):
    """Provide run("doctor", "x.conf"), which returns status, stdout and stderr. The broker's user is the user of the test:
    test_doctor_rights.py is about other users."""
    monkeypatch.setenv("PUID", "0")

    def run_command(*arguments):
        status = main([str(argument) for argument in arguments])
        done = capsys.readouterr()
        return status, done.out, done.err

    return run_command


@pytest.fixture
def write(tmp_path):
    def write_file(name, *lines):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return path

    return write_file


# ---- config diff

def test_diff(run, write):
    old = write("old.conf", "listener 1883 127.0.0.1", "max_qos 1", "user a")
    new = write("new.conf", "listener 1883 127.0.0.1", "user b", "listener 1884 127.0.0.1", "set_tcp_nodelay false")
    status, out, _ = run("config", "diff", old, new)
    assert status == 1
    assert out == ("At once:\n  max_qos of the listener 127.0.0.1:1883: 1 -> 2\n  listener 127.0.0.1:1884 is new\n\nFor new connections:\n  set_tcp_nodelay: true -> false\n\n"
                   "Only after a restart of the broker:\n  user: a -> b\n")
    status, out, _ = run("config", "diff", "--json", old, new)
    assert status == 1
    assert {change["option"]: change["reload"] for change in json.loads(out)} == {
        "user": "restart of the broker", "set_tcp_nodelay": "new connections", "max_qos": "live", "listener": "live"}
    assert run("config", "diff", old, old) == (0, "Both have the same meaning.\n", "")


def test_diff_of_a_bad_file(run, write):
    good, bad = write("good.conf", "sys_interval 1"), write("bad.conf", "", "sys_interval x")
    for pair in ((good, bad), (bad, good)):
        status, out, err = run("config", "diff", *pair)
        assert (status, out) == (3, "")
        assert err.endswith(f"Error found at {bad}:2.\n")
    assert run("config", "diff", good, "missing.conf")[0] == 3
    assert run("config", "diff", good)[0] == 3


# ---- config explain

def test_explain(run, write):
    path = write("m.conf", "max_queued_messages 5", "listener 1883 127.0.0.1", "max_qos 1", "connection b", "address h", "topic #",
                 "remote_password hunter2")
    status, out, _ = run("config", "explain", "-c", path)
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["max_queued_messages", "5", "#", f"{path}:1"] in lines
    assert ["max_qos", "1", "#", f"{path}:3"] in lines
    assert ["bridge", "b:"] in lines
    assert "hunter2" not in out and "max_inflight_messages" not in out
    status, out, _ = run("config", "explain", "-c", path, "--all")
    assert ["max_inflight_messages", "20", "#", "default"] in [line.split() for line in out.splitlines()]
    assert "hunter2" not in out


def test_explain_one_option(run, write):
    path = write("m.conf", "listener 1883", "listener 1884", "listener_allow_anonymous true")
    status, out, _ = run("config", "explain", "-c", path, "allow_anonymous")
    assert (status, "allow_anonymous false  # implied: there is a listener" in out) == (0, True)
    found = json.loads(run("config", "explain", "-c", path, "--json", "listener_allow_anonymous")[1])
    assert [(one["scope"], one["value"], one["source"]) for one in found] == [
        ("listener port 1883", "false", "implied: allow_anonymous"), ("listener port 1884", "true", f"{path}:3")]
    status, out, _ = run("config", "explain", "-c", write("empty.conf"), "allow_anonymous")
    assert "allow_anonymous true  # implied: there is no listener" in out
    found = json.loads(run("config", "explain", "-c", path, "--json", "maximum_qos")[1])
    assert [one["option"] for one in found] == ["max_qos", "max_qos"]


def test_explain_mistakes(run, write):
    path = write("m.conf", "sys_interval 1")
    status, _, err = run("config", "explain", "-c", path, "max_qoss")
    assert (status, "Did you mean 'max_qos'?" in err) == (3, True)
    assert run("config", "explain")[0] == 3
    assert run("config", "explain", "-c", "missing.conf")[0] == 3
    for option in ("plugin", "plugin_opt_x", "listener", "include_dir", "retry_interval"):
        assert run("config", "explain", "-c", path, option)[0] == 0


# ---- doctor

def findings(run, path, level="attention"):
    status, out, _ = run("doctor", "--json", path)
    found = json.loads(out)
    assert status == (0 if not found["attention"] else 1 if found["starts"] else 3)
    return [one["text"] for one in found["findings"] if one["level"] == level]


def test_a_healthy_file(run, write):
    path = write("m.conf", "listener 1883 127.0.0.1", "allow_anonymous true", "max_qos 1")
    status, out, err = run("doctor", path)
    assert (status, err) == (0, "")
    assert "Nothing needs attention: start mosq with this file." in out
    assert "listener 127.0.0.1:1883: mqtt, lets in all clients  (line 1)" in out
    assert "Needs attention" not in out


def test_a_file_with_workers_that_fits_the_machine_needs_no_attention(run, write, monkeypatch):
    monkeypatch.setattr("mosq.tools.doctor.findings.os.sched_getaffinity", lambda _: {0, 1})
    path = write("m.conf", "listener 1883 127.0.0.1", "allow_anonymous true", "cluster_local 2", "memory_limit 100000000")
    assert findings(run, path) == []
    assert any("`mosq upgrade` does not know workers" in text for text in findings(run, path, "better"))
    assert not any("cluster_local" in text for text in findings(run, path, "same"))
    assert "2 options have the same meaning as in Mosquitto" in findings(run, path, "same")


@pytest.mark.parametrize(("lines", "said"), [
    (("port 1884",), "'port' works and is deprecated by Mosquitto"),
    (("retry_interval 20",), "no longer available"),
    (("plugin /usr/lib/auth-plug.so",), "Unable to load plugin '/usr/lib/auth-plug.so': "),
    (("acl_file /no/such/file",), "acl_file /no/such/file cannot be read"),
    (("listener 8883", "certfile /no/c", "keyfile /no/k"), "keyfile /no/k cannot be read"),
    (("listener 1883", "allow_anonymous true"), "lets in all clients that reach this machine"),
    (("listener 1883", "listener 1883"), "is configured twice"),
    (("listener 1883",), "No client can connect to"),
    (("listener 8883", "certfile /c", "keyfile /k", "tls_version tlsv1.1"), "tls_version tlsv1.1 is broken"),
    (("listener 8883", "certfile /c", "keyfile /k", "tls_version tls12"), "tls_version tls12 is unknown: the broker will not start"),
    (("listener 8883", "tls_version tls12"), "tls_version tls12 is unknown: the listener has no TLS, so it has no effect"),
    (("listener 8883", "certfile /c", "keyfile /k", "ciphers HIGH:RC4-SHA:!MD5"), "name broken ones: RC4-SHA"),
    (("listener 8883", "certfile /c", "keyfile /k", "require_certificate true"), "trusts no authority"),
    (("connection b", "address h", "topic #", "bridge_certfile /c", "bridge_keyfile /k"), "The bridge 'b'"),
    (("connection b", "address h", "topic #", "bridge_insecure true"), "does not check the other broker's name"),
    (("connection b", "address h", "topic #", "remote_password x"), "sends its password without TLS"),
    (("log_dest dlt",), "does not log to dlt"),
    (("max_qos 1 2",), "has no meaning and is ignored"),
    (("cluster_local 64",), "there are more workers than processor cores"),
    (("cluster_local 2", "memory_limit 40000000"), "memory_limit 40000000 is divided: each of 2 workers gets 20 MB"),
    (("cluster_local 2", "persistence true", "persistence_location /no/such/folder/"), "and workers need one"),
])
def test_findings_of_doctor(lines, said, run, write):
    assert [text for text in findings(run, write("m.conf", *lines)) if said in text]


def test_persist_sqlite_needs_no_plugin(run, write):
    status, out, _ = run("doctor", write("m.conf", "listener 1883 127.0.0.1", "plugin /usr/lib/mosquitto_persist_sqlite.so",
                                        "plugin_opt_db_file /tmp/m.sqlite3"))
    assert "persist-sqlite: mosq keeps durable sessions in a store of its own" in out
    assert status == 0


def left_by_mosquitto(path):
    path.write_bytes(made.header() + made.config() + made.message(1, b"q", b"x") + made.message(2, b"r", b"x", retain=1) + made.client(b"c")
                     + made.subscription(b"c", b"q") + made.client_message(1, b"c", 0) + made.retain(2))


def test_the_first_start_with_mosquittos_file(run, write, tmp_path):
    path, file = write("m.conf", "persistence true", f"persistence_location {tmp_path}/"), tmp_path / "mosquitto.db"
    left_by_mosquitto(file)
    said = f"{file}: the first start takes over 1 sessions, 1 subscriptions, 1 queued and 1 retained messages; the file is kept as {file}.kept"
    assert [text for text in findings(run, path, "better") if text.startswith(said)]
    assert "Stop Mosquitto first: it writes the file at its end." in run("doctor", path)[1]
    assert not findings(run, path)
    file.write_bytes(file.read_bytes()[:-1])
    assert [text for text in findings(run, path) if str(file) in text and "expected at most" in text]
    assert "The broker will not start with it. Repair it, or move it away" in run("doctor", path)[1]
    file.write_bytes(made.header(7))
    assert [text for text in findings(run, path) if "format 7; expected 5 (Mosquitto 1.6) or 6" in text]
    file.write_bytes(b"")
    assert not findings(run, path)


def test_mosquittos_file_beside_a_store(run, write, tmp_path):
    path, file = write("m.conf", "persistence true", f"persistence_location {tmp_path}/"), tmp_path / "mosquitto.db"
    left_by_mosquitto(file)
    assert run("db", "import", file)[0] == 0
    assert not findings(run, path)
    (tmp_path / "new").write_bytes(file.read_bytes())
    (tmp_path / "new").rename(file)
    assert [text for text in findings(run, path) if "was changed after mosq wrote it: 1 sessions" in text]
    assert "The next start takes that over, and sets the store" in run("doctor", path)[1]
    file.write_bytes(b"damaged")
    assert "The next start uses the store" in run("doctor", path)[1]
    (tmp_path / "mosquitto.db.store" / "mosquitto.mark").unlink()
    left_by_mosquitto(file)
    assert [text for text in findings(run, path) if "is not from the store" in text]
    assert f"mosq db import --force {file} {file}.store" in run("doctor", path)[1]


def test_the_first_start_with_the_database_of_persist_sqlite(run, write, tmp_path):
    file = tmp_path / "mosquitto.sqlite3"
    path = write("m.conf", "listener 1883 127.0.0.1", "plugin /usr/lib/mosquitto_persist_sqlite.so", f"plugin_opt_db_file {file}", "persistence true",
                 f"persistence_location {tmp_path}/")
    with database(file) as found:
        found.execute("INSERT INTO clients VALUES ('c', NULL, 0, 0, 0, 1883, 0, 2, 1, -1, 0)")
    before = sorted(os.listdir(tmp_path))
    assert [text for text in findings(run, path, "better")
            if text.startswith(f"{file}: the first start takes over 1 sessions, 0 subscriptions, 0 queued and 0 retained messages; the file stays")]
    left_by_mosquitto(tmp_path / "mosquitto.db")
    assert [text for text in findings(run, path) if text == f"{file} exists too, and is not taken over"]
    (tmp_path / "mosquitto.db").unlink()
    with database(file, (2, 0, 0)):
        pass
    assert [text for text in findings(run, path) if "Unknown database_schema version 2.0.0; expected 1.0 to 1.1" in text]
    assert sorted(os.listdir(tmp_path)) == before


@contextlib.contextmanager
def database(file, version=(1, 1, 0)):
    file.unlink(missing_ok=True)
    found = sqlite_made(file, version)
    try:
        yield found
    finally:
        found.close()


def test_a_removed_file_of_mosquitto_is_reported(run, write, tmp_path):
    """The mark says that mosq wrote a file, and there is none: the next start would begin empty."""
    path, file = write("m.conf", "persistence true", f"persistence_location {tmp_path}/"), tmp_path / "mosquitto.db"
    left_by_mosquitto(file)
    assert run("db", "import", file)[0] == 0
    found = identity(str(file))
    write_mark(f"{file}.store", Mark(str(file), [found], EXPORTED))
    assert not findings(run, path)
    file.unlink()
    assert [text for text in findings(run, path) if text.startswith(f"{file} was removed after mosq wrote it: the next start begins without sessions")]
    assert f"remove the file {file}.store/mosquitto.mark" in run("doctor", path)[1]
    (tmp_path / "mosquitto.db.store/mosquitto.mark").unlink()
    assert not findings(run, path)


@pytest.mark.parametrize(("lines", "clients"), [
    ((), "no client"),
    (("allow_anonymous true",), "all clients"),
    (("password_file p",), "clients with a password"),
    (("password_file p", "allow_anonymous true"), "clients with a password, and those without a user name"),
    (("plugin acl-file", "plugin_opt_acl_file a"), "no client"),
    (("plugin dynamic-security", "plugin_opt_config_file d"), "clients with a password"),
    (("certfile c", "keyfile k", "cafile c", "password_file p"), "clients with a password"),
    (("certfile c", "keyfile k", "cafile c", "require_certificate true", "password_file p"), "clients with a certificate and a password"),
    (("certfile c", "keyfile k", "cafile c", "require_certificate true", "allow_anonymous true"), "clients with a certificate"),
    (("certfile c", "keyfile k", "cafile c", "require_certificate true", "use_identity_as_username true"), "clients with a certificate"),
    (("require_certificate true", "password_file p"), "clients with a password"),
    (("psk_hint h", "psk_file k", "use_identity_as_username true"), "clients with a pre-shared key"),
    (("psk_hint h", "psk_file k", "password_file p"), "clients with a pre-shared key and a password"),
])
def test_the_report_says_which_clients_get_in(lines, clients, run, write):
    [text] = [text for text in findings(run, write("m.conf", "listener 8883 127.0.0.1", *lines), "same") if text.startswith("listener")]
    assert text.partition("lets in ")[2] == clients


def test_password_files(run, write):
    file = write("passwd", "ann:$7$101$c2FsdA==$aGFzaA==", "bob:$6$c2FsdA==$aGFzaA==", "# a comment", "", "carl:secret", "dora", "eve:$argon2id$x")
    path = write("m.conf", "listener 1883", f"password_file {file}")
    found = findings(run, path)
    assert [text.partition(": ")[2].split(" passwords")[0].split(" lines")[0] for text in found if text.startswith("password_file")] == ["1", "1", "1"]
    assert [text for text in found if "passwords without TLS" in text]
    file.chmod(0o644)
    assert [text for text in findings(run, path) if "can be read by all users" in text]
    assert "secret" not in run("doctor", path)[1]


def test_acl_files(run, write):
    rules = write("acl", "pattern read a/%u", "pattern read b")
    path = write("m.conf", "listener 1883 127.0.0.1", "allow_anonymous true", f"acl_file {rules}")
    assert [text.split("the pattern ")[1] for text in findings(run, path)] == ["'b' has neither %c nor %u as a whole level: it applies to all clients"]
    rules.write_text("nonsense\n")
    assert "Invalid line in acl_file" in findings(run, path)[0]


def certificate(folder: Path, name: str, days: tuple[int, int]) -> tuple[Path, Path]:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now + datetime.timedelta(days[0]))
            .not_valid_after(now + datetime.timedelta(days[1])).sign(key, hashes.SHA256()))
    certfile, keyfile = folder / f"{name}.crt", folder / f"{name}.key"
    certfile.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    keyfile.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    keyfile.chmod(0o600)
    return certfile, keyfile


def test_certificates(run, write, tmp_path):
    good, old = certificate(tmp_path, "good", (-1, 400)), certificate(tmp_path, "old", (-20, -10))
    soon, later = certificate(tmp_path, "soon", (-1, 10)), certificate(tmp_path, "later", (10, 400))
    for (certfile, keyfile), said in ((good, []), (old, ["has expired on"]), (soon, ["expires in 9 days"]), (later, ["is not valid before"]),
                                      ((good[0], old[1]), ["do not belong together"]), ((good[1], good[1]), ["cannot be used"])):
        found = findings(run, write("m.conf", "listener 8883 127.0.0.1", f"certfile {certfile}", f"keyfile {keyfile}", "allow_anonymous true"))
        assert [True for text in found for word in said if word in text] == [True] * len(said)
        assert bool(found) == bool(said)


def test_a_file_that_the_broker_refuses(run, write):
    status, out, err = run("doctor", write("m.conf", "nonsense 1"))
    assert (status, out) == (3, "")
    assert err.startswith("Error: Unknown configuration variable 'nonsense'.") and "Correct that line first." in err
    status, out, _ = run("doctor", "--json", "missing.conf")
    assert status == 3 and "Unable to open" in json.loads(out)["error"]


def test_doctor_does_not_read_from_a_pipe(run, write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    pipe = tmp_path / "pipe"
    path = write("m.conf", "listener 8883", f"certfile {pipe}", f"keyfile {pipe}", f"acl_file {pipe}", f"password_file {pipe}")
    assert run("doctor", path)[0] == 1
    assert run("-c", path, "--test-config")[0] == 0


def test_doctor_explain_diff_and_check_write_nothing(run, write, tmp_path):
    path = write("m.conf", "persistence true", f"persistence_location {tmp_path}/", f"log_dest file {tmp_path}/log", f"pid_file {tmp_path}/pid")
    before = sorted(os.listdir(tmp_path))
    for command in (["doctor", path], ["config", "explain", "-c", path], ["config", "diff", path, path], ["-c", path, "--test-config"]):
        run(*command)
    assert sorted(os.listdir(tmp_path)) == before


def test_help_has_examples_and_exit_statuses():
    for command in (["doctor"], ["config", "diff"], ["config", "explain"]):
        done = CliRunner().invoke(mosq, [*command, "--help"])
        assert done.exit_code == 0 and "Examples:" in done.output, done.output


# ---- --test-config

def test_test_config_warns_of_unreadable_files(run, write):
    path = write("m.conf", "listener 8883", "certfile /no/c", "keyfile /no/k", "password_file /no/p", "acl_file /no/a")
    status, out, err = run("-c", path, "--test-config")
    assert (status, out) == (0, "Configuration file is OK.\n")
    for said in ("'certfile'", "'keyfile'", "'password_file'", "'acl_file'"):
        assert said in err


@pytest.mark.parametrize(("path", "said"), [
    ("python:no_such_module:Auth", "there is no module 'no_such_module'"), ("python:email.no_such:Auth", "there is no module 'email.no_such'"),
    ("python:no-such-point", "no entry point 'no-such-point' of mosq.plugins"),
])
def test_a_python_plugin_that_the_start_refuses_is_found_before(run, write, path, said):
    conf = write("m.conf", "listener 1883 127.0.0.1", f"plugin {path}")
    status, out, err = run("-c", conf, "--test-config")
    assert (status, out) == (3, "") and said in err and f"{conf}:2" in err
    status, out, err = run("doctor", conf)
    assert status == 3 and said in " ".join((out + err).split())
    assert run("-c", conf)[0] == 3                      # the start


def test_a_check_runs_no_code_of_a_plugin(run, write, tmp_path, monkeypatch):
    (tmp_path / "own_plugins").mkdir()
    for name in ("__init__", "auth"):
        (tmp_path / f"own_plugins/{name}.py").write_text("raise SystemExit(77)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    conf = write("m.conf", "listener 1883 127.0.0.1", "plugin python:own_plugins.auth:Auth")
    assert run("-c", conf, "--test-config")[:2] == (0, "Configuration file is OK.\n")
    assert "own_plugins" not in run("doctor", conf)[1]


@pytest.mark.parametrize("name", ["jwt", "mosq.auth.jwt:Jwt"])
def test_a_missing_extra_of_a_plugin_is_found(write, monkeypatch, capsys, name):
    monkeypatch.delitem(sys.modules, "mosq.auth.jwt", raising=False)
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert main(["-c", write("m.conf", "listener 1883 127.0.0.1", f"plugin python:{name}"), "--test-config"]) == 3
    err = capsys.readouterr().err
    assert "there is no module 'jwt'" in err and "pip install" in err


def test_a_missing_package_of_a_listener_is_found(write, monkeypatch, capsys):
    conf = write("m.conf", "listener 1883 127.0.0.1", "listener 0 127.0.0.1", "protocol http_api", "http_metrics true")
    assert main(["-c", conf, "--test-config"]) == 0
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["-c", conf, "--test-config"]) == 1             # as the start
    out, err = capsys.readouterr()
    assert out == "" and "http_metrics needs the package prometheus-client. To install it: " in err
    assert "pip install 'prometheus-client" in err and f"({conf}:4)" in err
    assert main(["doctor", str(conf)]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "http_metrics needs the package prometheus-client" in out and "pip install 'prometheus-client" in out


def test_test_config_refuses_a_native_plugin_as_the_start_does(run, write):
    path = write("m.conf", "listener 1883 127.0.0.1", "certfile /no/c", "keyfile /no/k", "plugin /usr/lib/mosquitto_go_auth.so",
                 "plugin mosquitto_password_file.so", "plugin_opt_password_file /no/p")
    status, out, err = run("-c", path, "--test-config")
    assert (status, out) == (3, "")
    assert "Error: The broker does not start with this file: Unable to load plugin '/usr/lib/mosquitto_go_auth.so'" in err
    assert "No such file" in err and f"{path}:4" in err and "'certfile'" in err
    assert run("-c", path)[0] == 13                     # without --test-config: as Mosquitto
