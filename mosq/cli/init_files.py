"""Writes the files of `mosq init`: a commented configuration, users, access rules, an own CA and a server certificate.
In the folder of a service, such as that of the Debian package, the configuration becomes a part of the service's own.

All files are made in a folder of their own, and moved into place when the broker's own check accepts them.
"""

import ipaddress
import os
import shutil
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CONF, PASSWD, ACL, CERTS, DATA = "mosq.conf", "passwd", "acl", "certs", "data"
CA_DAYS, SERVER_DAYS = 3650, 825
OPENSSL_S = 60
CONF_D, PART = "conf.d", "init.conf"
SERVICES = {CONF: "mosq", "mosquitto.conf": "mosquitto"}    # the unit of a configuration in Debian's packages
SECRETS = (PASSWD, f"{CERTS}/ca.key", f"{CERTS}/server.key")


class InitError(Exception):
    """No configuration is written; the text says why, and what to do."""


class Wanted:
    """The answers of the user."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        self.service = service_file(self.folder)
        self.conf = os.path.join(CONF_D, PART) if self.service else CONF    # the file to write, below the folder
        self.users: dict[str, bytes] = {}       # password by name; {}: anonymous clients
        self.address: str | None = None         # None: all addresses
        self.port = 1883
        self.names: list[str] = []              # names and addresses in the certificate; []: no TLS
        self.is_persistent = not self.service


def service_file(folder: str) -> str:
    """Return the configuration of a service in this folder that includes the files in its folder conf.d; "" if there is
    none."""
    for name in SERVICES:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
                lines = [line.split(None, 1) for line in file]
        except OSError:
            continue
        if any(words[:1] == ["include_dir"] and os.path.normpath(words[-1].strip()) == os.path.join(folder, CONF_D)
               for words in lines):
            return os.path.join(folder, name)
    return ""


def refuse_existing(path: str) -> None:
    """Raise InitError if there is such a file or folder."""
    if os.path.lexists(path):
        raise InitError(f"{path} exists. Choose another folder, or remove it: nothing is overwritten.")


def refuse_package(folder: str) -> None:
    """Raise InitError if the folder is a Python package, such as `mosq` in a checkout: secrets do not belong there."""
    if os.path.lexists(os.path.join(folder, "__init__.py")):
        raise InitError(f"{folder} is a Python package. Choose another folder, such as `mosq init my-broker`.")


def write(wanted: Wanted, echo: "Callable[[str], None]") -> None:
    """Write all files. Raises InitError; then the folder is as it was."""
    targets = [wanted.conf, ACL, *([PASSWD] if wanted.users else []), *([CERTS] if wanted.names else []),
               *([DATA] if wanted.is_persistent else [])]
    for name in targets:
        refuse_existing(os.path.join(wanted.folder, name))
    stage = os.path.join(wanted.folder, f".init.{os.getpid()}")
    try:
        os.makedirs(stage, mode=0o755)
        _write_all(wanted, stage, echo)
        for name in [*targets[1:], wanted.conf]:       # the configuration last: with it, everything is there
            os.rename(os.path.join(stage, name), os.path.join(wanted.folder, name))
    except OSError as error:
        raise InitError(f"{error.filename or wanted.folder}: {error.strerror}. Choose another folder.") from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write_all(wanted: Wanted, stage: str, echo: "Callable[[str], None]") -> None:
    if wanted.users:
        _passwords(wanted, os.path.join(stage, PASSWD))
    _file(os.path.join(stage, ACL), acl_text(list(wanted.users)))
    if wanted.names:
        echo(f"Making a CA and a certificate for {', '.join(wanted.names)}.")
        certificates(os.path.join(stage, CERTS), wanted.names)
    if wanted.is_persistent:
        os.mkdir(os.path.join(stage, DATA), 0o700)
    os.makedirs(os.path.dirname(os.path.join(stage, wanted.conf)), exist_ok=True)
    _file(os.path.join(stage, wanted.conf), conf_text(wanted))
    for name in SECRETS:
        if os.path.exists(os.path.join(stage, name)):
            os.chmod(os.path.join(stage, name), 0o600)
    _give(stage, wanted)


def _file(path: str, text: str) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)


def _passwords(wanted: Wanted, path: str) -> None:
    from mosq.auth.hashes import PBKDF2
    from mosq.cli import passwd as file

    hashing = file.Hashing(PBKDF2, None)
    try:
        for number, (name, password) in enumerate(wanted.users.items()):
            file.check_user(name)
            file.check_password(password)
            (file.update if number else file.create)(path, name, password, hashing, lambda text: None)
    except file.PasswdError as error:
        raise InitError(str(error).removeprefix("Error: ")) from None


def _give(stage: str, wanted: Wanted) -> None:
    """Give the files that the broker reads or writes later to the user that a broker started by root becomes."""
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config
    from mosq.server.process import find_account

    try:
        account = find_account(load_config(wanted.service).user if wanted.service else "mosquitto")
    except ConfigError as error:
        raise InitError(f"{wanted.service} has an error. Correct it first: {error}") from None
    except (LookupError, ValueError):
        account = None
    if account is None:
        return
    for name in (PASSWD, DATA, f"{CERTS}/server.key", f"{CERTS}/server.crt"):
        path = os.path.join(stage, name)
        if os.path.lexists(path):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


# ---------------------------------------------------------------- texts

def acl_text(users: list[str]) -> str:
    """Return the access rules."""
    rules = "".join(f"\nuser {name}\ntopic readwrite #\ntopic read $SYS/#\ntopic readwrite $CONTROL/mosq/#\n"
                    for name in users)
    anonymous = "" if users else "\ntopic readwrite #\ntopic read $SYS/#\n"
    return ("# Access rules. Without a rule, a client may neither read nor write a topic.\n"
            "# `topic [read|write|readwrite|deny] FILTER` applies to the user above it; `pattern` may contain %u\n"
            "# (user name) and %c (client id). Reload after a change: mosq signal -a config-reload\n"
            f"{rules}{anonymous}\n# Example: each device writes below its own name only.\n"
            "#pattern write devices/%u/#\n")


def conf_text(wanted: Wanted) -> str:
    """Return the configuration."""
    at = f" {wanted.address}" if wanted.address else ""
    where = "clients of this machine" if wanted.address in ("127.0.0.1", "::1", "localhost") else "clients"
    folder = wanted.folder
    lines = ["# Configuration of mosq, made by `mosq init`. All options: docs/options.md; check it with",
             f"#   mosq -c {wanted.service or f'{folder}/{CONF}'} --test-config", "", "# ---- login and rights", ""]
    if wanted.users:
        lines += ["allow_anonymous false", "# Add a user (with a rule in acl_file), or change a password:",
                  f"#   mosq passwd {folder}/{PASSWD} NAME", f"password_file {folder}/{PASSWD}"]
    else:
        lines += ["# Every client that reaches the port may connect without a password.", "allow_anonymous true"]
    lines += ["# Which topics a user may read and write.", f"acl_file {folder}/{ACL}", ""]
    if wanted.users:
        lines += ["# Serve `mosq ctl`, `mosq top` and `mosq trace` to users that may write $CONTROL/mosq/#.",
                  "enable_control_api true", ""]
    lines += ["# ---- listeners", ""]
    if wanted.names:
        lines += [f"# MQTT over TLS, for {where}. They need {folder}/{CERTS}/ca.crt to check the broker.",
                  f"listener {wanted.port}{at}", f"certfile {folder}/{CERTS}/server.crt",
                  f"keyfile {folder}/{CERTS}/server.key",
                  "# Ask clients for certificates of the same CA, too (docs/tls.md):",
                  f"#cafile {folder}/{CERTS}/ca.crt", "#require_certificate true"]
        if wanted.address is None:
            lines += ["", "# Without TLS, for programs on this machine.", "listener 1883 127.0.0.1"]
    else:
        lines += [f"# MQTT without encryption, for {where}.", f"listener {wanted.port}{at}"]
    lines += ["", "# WebSockets for browsers:", "#listener 9001", "#protocol websockets", ""]
    if wanted.service:
        return "\n".join([*lines, f"# {wanted.service} has the options for storage and log.", ""])
    lines += ["# ---- storage", ""]
    if wanted.is_persistent:
        lines += ["# Acknowledged messages survive the end of the broker (docs/storage.md).", "persistence true",
                  f"persistence_location {folder}/{DATA}/"]
    else:
        lines += ["# Sessions and messages are lost when the broker ends.", "persistence false"]
    lines += ["", "# ---- limits", "", "# Memory of the whole process; the broker sheds load before.",
              "#memory_limit 1073741824", "max_queued_messages 10000", "", "# ---- log", "",
              "# To standard error (the journal of systemd). Or to a file:", f"#log_dest file {folder}/mosq.log",
              "log_dest stderr", "log_timestamp_format %Y-%m-%dT%H:%M:%S", ""]
    return "\n".join(lines)


# ---------------------------------------------------------------- certificates

def certificates(folder: str, names: list[str]) -> None:
    """Make a CA and a server certificate with the program openssl. Raises InitError."""
    os.mkdir(folder, 0o755)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    _openssl(folder, "req", "-x509", *key, "-days", str(CA_DAYS), "-subj", "/CN=mosq CA", "-keyout", "ca.key",
             "-out", "ca.crt", "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(folder, "req", *key, "-subj", f"/CN={names[0][:64]}", "-keyout", "server.key", "-out", "server.csr")
    _file(os.path.join(folder, "server.ext"),
          f"subjectAltName={','.join(map(alternative, names))}\nbasicConstraints=critical,CA:FALSE\n"
          "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n")
    _openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", str(SERVER_DAYS), "-extfile", "server.ext", "-out", "server.crt")
    for name in ("server.csr", "server.ext", "ca.srl"):
        if os.path.exists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))


def alternative(name: str) -> str:
    """Return a name or an address as subjectAltName."""
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def is_name(text: str) -> bool:
    """Return whether a text is an address or the name of a host, which may begin with `*.`."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        labels = text.removeprefix("*.").split(".")
        return len(text) <= 253 and all(label and len(label) <= 63 and label.isascii() and
                                        label.replace("-", "").replace("_", "").isalnum() for label in labels)
    return True


def _openssl(folder: str, *words: str) -> None:
    try:
        done = subprocess.run(["openssl", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=OPENSSL_S, check=False)
    except FileNotFoundError:
        raise InitError("The program openssl is not installed. Install it (Debian: apt install openssl), or give "
                        "--no-tls.") from None
    except subprocess.TimeoutExpired:
        raise InitError(f"openssl {words[0]} took longer than {OPENSSL_S} s.") from None
    if done.returncode != 0:
        raise InitError(f"openssl {words[0]} failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
