"""Changes the plugin's JSON file while no broker uses it: makes a new one (`dynsec init`) or sets a password (`-f FILE
dynsec setClientPassword`). Passwords are written in a form that every version of Mosquitto reads."""

import base64
import hashlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ITERATIONS = 1000               # as in Mosquitto 2.1
SALT_BYTES = 12                 # the only length that Mosquitto 2.0 accepts
MODE = 0o640
ADMIN_ROLE = "admin"
# rights of the administrator: to administer, and to read all topics
ADMIN_ACLS = (
    ("publishClientSend", "$CONTROL/dynamic-security/#"), ("publishClientReceive", "$CONTROL/dynamic-security/#"),
    ("subscribePattern", "$CONTROL/dynamic-security/#"), ("publishClientReceive", "$SYS/#"),
    ("subscribePattern", "$SYS/#"), ("publishClientReceive", "#"), ("subscribePattern", "#"),
    ("unsubscribePattern", "#"),
)


class FileProblemError(Exception):
    """The file cannot be made or changed; the text says why."""


def hashed(password: str, iterations: int = ITERATIONS) -> "dict[str, Any]":
    """Return the password hash fields in the form of Mosquitto 2.0."""
    salt = os.urandom(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
    return {"password": base64.b64encode(digest).decode(), "salt": base64.b64encode(salt).decode(),
            "iterations": iterations}


def create(path: str, username: str, password: str) -> None:
    """Make a new file. Raises FileProblemError, also if the file exists."""
    tree = {
        "clients": [{"username": username, "textName": "Dynsec admin user", **hashed(password),
                     "roles": [{"rolename": ADMIN_ROLE}]}],
        "roles": [{"rolename": ADMIN_ROLE, "acls": [{"acltype": kind, "topic": topic, "allow": True}
                                                    for kind, topic in ADMIN_ACLS]}],
        "defaultACLAccess": {"publishClientSend": False, "publishClientReceive": True, "subscribe": False,
                             "unsubscribe": True},
    }
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise FileProblemError(f"dynsec init: Unable to open '{path}' for writing ({error.strerror}).") from None
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(tree, file, ensure_ascii=False, indent="\t")


def set_password(path: str, username: str, password: str, iterations: int = ITERATIONS) -> None:
    """Set a password. Raises FileProblemError, and then the file is unchanged."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
            status = os.fstat(file.fileno())
    except OSError as error:
        raise FileProblemError(f"Unable to open {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise FileProblemError(f"{path} is not valid JSON.") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("clients"), list):
        raise FileProblemError(f"{path} is not a valid dynamic-security config file.")
    for client in tree["clients"]:
        if isinstance(client, dict) and client.get("username") == username:
            client.pop("encoded_password", None)
            client |= hashed(password, iterations)
            break
    else:
        raise FileProblemError(f"Client {username} not found.")
    _replace(path, json.dumps(tree, ensure_ascii=False, indent="\t"), status)


def _replace(path: str, text: str, status: os.stat_result) -> None:
    """Replace the file atomically; owner and mode are kept."""
    new = f"{path}.new-{os.getpid()}"
    try:
        fd = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(fd, status.st_mode & 0o7777)
                if os.geteuid() == 0:
                    os.fchown(fd, status.st_uid, status.st_gid)
                os.fsync(fd)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        raise FileProblemError(f"Unable to write to {path}: {error.strerror}.") from None
