"""Generates the file if there is none, as Mosquitto 2.1 does: an administrator, the usual roles, and a group of clients
without a user name.

The administrator's password is that of password_init_file, else that of MOSQUITTO_DYNSEC_PASSWORD in the environment.
Without both, the broker generates passwords for the administrator and for a client for experiments, and writes them
into FILE.pw, which only the owner may read. No password is logged.
"""

import os
import secrets

from mosq.auth.dynsec.store import password_of_2_0, replace, write
from mosq.auth.hashes import PBKDF2, new_hash, read_hash
from mosq.config.errors import ConfigError, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.auth.dynsec.reading import Object

ENVIRONMENT = "MOSQUITTO_DYNSEC_PASSWORD"
PASSWORD_CHARS_MIN = 12         # shortest password in the environment
PASSWORD_CHARS = 20             # length of a generated password
LINE_BYTES_MAX = 1023
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-=_+[]{}@#~,./<>?"
ALL_KINDS = ("publishClientSend", "publishClientReceive", "subscribePattern", "unsubscribePattern")
TO_READ = ("publishClientReceive", "subscribePattern", "unsubscribePattern")


def make_first(path: str, password_init_file: str | None, report: "Callable[[str], None]", named_at: "Origin | None"
               ) -> None:
    """Write the file. Raises ConfigError, and then no file exists."""
    tree, _ = generated(path, password_init_file, report, named_at)
    try:
        write(path, tree)
    except OSError as error:
        raise _not_written(path, error, named_at) from None


def generated(path: str, password_init_file: str | None, report: "Callable[[str], None]", named_at: "Origin | None"
              ) -> "tuple[Object, str | None]":
    """Return the JSON tree of the file, and the file with the generated passwords, which is written; None: there is
    none. Raises ConfigError."""
    report("Dynamic security plugin config not found, generating a default config.")
    made: list[tuple[str, str]] = []
    if password_init_file is not None:
        report(f"  Using admin password from file '{password_init_file}'")
        password = _of_file(password_init_file, named_at)
    elif ENVIRONMENT in os.environ:
        report(f"  Using admin password from {ENVIRONMENT} environment variable")
        password = os.environb[ENVIRONMENT.encode()]
        if len(password) < PASSWORD_CHARS_MIN:
            raise ConfigError(f"Not generating dynsec config, {ENVIRONMENT} must be at least {PASSWORD_CHARS_MIN} "
                              "characters.", named_at)
    else:
        report(f"  Generated passwords are at {path}.pw")
        made = [(user, "".join(secrets.choice(ALPHABET) for _ in range(PASSWORD_CHARS)))
                for user in ("admin", "democlient")]
        password = made[0][1].encode()
    clients = [_client("admin", "Admin user", password, "super-admin", "sys-observe", "topic-observe")]
    if made:
        clients.append(_client("democlient", "Reads and writes all topics, for experiments.", made[1][1].encode(),
                               "client"))
    passwords = os.path.realpath(f"{path}.pw") if made else None
    if passwords is not None:
        try:
            replace(passwords, (f"{user} {word}\n".encode() for user, word in made))
        except OSError as error:
            raise _not_written(path, error, named_at) from None
    return _tree(clients), passwords


def _not_written(path: str, error: OSError, named_at: "Origin | None") -> ConfigError:
    return ConfigError(f"Unable to write the dynamic security file '{path}': {error.strerror}.", named_at)


def _of_file(path: str, named_at: "Origin | None") -> bytes:
    try:
        with open(path, "rb") as file:
            line = file.readline(LINE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"Unable to get initial password from '{path}', file not accessible: {error.strerror}.",
                          named_at) from None
    password = line.partition(b"\0")[0].rstrip(b" \t\r\n\v\f")
    if not password:
        what = "password is empty" if line else "file empty"
        raise ConfigError(f"Unable to get initial password from '{path}', {what}. Expected it in the first line.",
                          named_at)
    return password


def _client(username: str, textname: str, password: bytes, *roles: str) -> "Object":
    encoded = new_hash(PBKDF2, password)
    return {"username": username, "textname": textname, "roles": [{"rolename": role} for role in roles],
            "encoded_password": encoded, **password_of_2_0(read_hash(encoded))}


def _role(name: str, description: str, topic: str, kinds: tuple[str, ...] = ALL_KINDS) -> "Object":
    return {"rolename": name, "textdescription": description,
            "acls": [{"acltype": kind, "topic": topic, "priority": 0, "allow": True} for kind in kinds]}


def _tree(clients: "list[Object]") -> "Object":
    return {
        "defaultACLAccess": {"publishClientSend": False, "publishClientReceive": True, "subscribe": False,
                             "unsubscribe": True},
        "clients": clients,
        "groups": [{"groupname": "unauthenticated", "textname": "Unauthenticated group",
                    "textdescription": "Rights of clients that connect without a user name, if that is allowed.",
                    "roles": []}],
        "roles": [
            _role("client", "Reads and writes all topics of applications.", "#"),
            _role("broker-admin", "Administers the broker in general.", "$CONTROL/broker/#"),
            _role("dynsec-admin", "Administers clients, groups and roles.", "$CONTROL/dynamic-security/#"),
            _role("super-admin", "Administers everything.", "$CONTROL/#"),
            _role("sys-notify", "Lets bridges publish the state of their connection.",
                  "$SYS/broker/connection/%c/state", ("publishClientSend",)),
            _role("sys-observe", "Reads $SYS.", "$SYS/#", ("publishClientReceive", "subscribePattern")),
            _role("topic-observe", "Reads all topics of applications.", "#", TO_READ),
        ],
        "anonymousGroup": "unauthenticated",
    }
