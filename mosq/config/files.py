"""Checks the files that a configuration names. Opens files only to read them.

Mosquitto's `--test-config` does not open these files, so a problem here does not change its verdict.
"""

import os
import stat

from mosq.config.acl import load_acl
from mosq.config.errors import Origin
from mosq.config.model import Config
from mosq.config.security import securities_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.acl import AclRule

FILE, FOLDER = "file", "folder"
LISTENER_FILES = {"cafile": FILE, "capath": FOLDER, "certfile": FILE, "keyfile": FILE, "crlfile": FILE,
                  "http_dir": FOLDER}
BRIDGE_FILES = {"bridge_cafile": FILE, "bridge_capath": FOLDER, "bridge_certfile": FILE, "bridge_keyfile": FILE}
PLUGIN_FILES = {"acl-file": "acl_file", "password-file": "password_file"}
NO_AUTHORITIES = "the bridge trusts none of its authorities"
SECRET_FILES = ("cluster_secret_file", "cluster_password_file", "password_file", "psk_file", "keyfile",
                "bridge_keyfile", "plugin_opt_config_file")


class Pointer:
    """An option that names a file or a folder."""

    __slots__ = ("option", "path", "kind", "origin")

    def __init__(self, option: str, path: str, kind: str, origin: Origin | None) -> None:
        self.option, self.path, self.kind, self.origin = option, path, kind, origin

    def problem(self) -> str | None:
        """Return why the path cannot be used; None if it can."""
        try:
            mode = os.stat(self.path).st_mode
            if self.kind == FOLDER:
                if not stat.S_ISDIR(mode):
                    return "is not a folder"
                os.listdir(self.path)
            elif stat.S_ISDIR(mode):
                return "is a folder"
            elif stat.S_ISREG(mode):
                with open(self.path, "rb"):
                    pass
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return f"cannot be read ({reason})"
        return None

    @property
    def is_needed(self) -> bool:
        """Return whether the broker does not start without it. OpenSSL reads the folder of a bridge at each connection.
        """
        return self.option != "bridge_capath"

    @property
    def readable(self) -> bool:
        """Return whether the path is a regular file that can be read without waiting, so no pipe and no device."""
        return self.problem() is None and stat.S_ISREG(os.stat(self.path).st_mode)

    @property
    def open_to_all(self) -> bool:
        """Return whether the path is a secret that every user of this machine may read."""
        try:
            return self.option in SECRET_FILES and bool(os.stat(self.path).st_mode & stat.S_IROTH)
        except (OSError, ValueError):
            return False


def pointers(config: Config) -> list[Pointer]:
    """Return all files and folders that the configuration names, each once."""
    found = []
    for option, path in (("cluster_secret_file", config.cluster_secret_file),
                         ("cluster_password_file", config.cluster_password_file)):
        if path is not None:
            found.append(Pointer(option, path, FILE, config.origins.get(option)))
    for source in securities_of(config):
        for option, path, origin in (("acl_file", source.acl_file, source.acl_origin),
                                     ("password_file", source.password_file, source.password_origin),
                                     ("psk_file", source.psk_file, source.psk_origin)):
            if path is not None:
                found.append(Pointer(option, path, FILE, origin))
        for plugin in source.plugins:
            option = PLUGIN_FILES.get(plugin.kind, "")
            path = plugin.option(option) if option else None
            if path is not None:
                found.append(Pointer(option, path, FILE, plugin.origin))
    for listener in config.listeners:
        for option, kind in LISTENER_FILES.items():
            path = getattr(listener, option)
            if path is not None:
                found.append(Pointer(option, path, kind, listener.origins.get(option)))
    for bridge in config.bridges:
        for option, kind in BRIDGE_FILES.items():
            path = getattr(bridge, option)
            if path is not None:
                found.append(Pointer(option, path, kind, bridge.origins.get(option)))
    return list({(pointer.option, pointer.path, str(pointer.origin)): pointer for pointer in found}.values())


def readable_acls(config: Config) -> "dict[str, list[AclRule]]":
    """Return the rules of each acl_file that can be opened, by path. Raises ConfigError."""
    return {pointer.path: load_acl(pointer.path, pointer.origin) for pointer in pointers(config)
            if pointer.option == "acl_file" and pointer.readable}


def not_reloadable(config: Config) -> list[Pointer]:
    """Return the files and folders that exist and that the rights of this moment do not allow to read: a broker that
    read them as root cannot read them again."""
    found = []
    for pointer in pointers(config):
        try:
            os.stat(pointer.path)
            need = os.R_OK | os.X_OK if pointer.kind == FOLDER else os.R_OK
            is_denied = not os.access(pointer.path, need, effective_ids=True)
        except PermissionError:         # a folder above it, such as /etc/letsencrypt/live
            is_denied = True
        except (OSError, ValueError):
            continue
        if is_denied:
            found.append(pointer)
    return found


def file_problems(config: Config) -> list[str]:
    """Return a line for each file or folder that cannot be used."""
    return [f"'{pointer.option}' ({pointer.origin}): {pointer.path} {problem}; expected a {pointer.kind} that can be "
            f"read, or {'the broker will not start' if pointer.is_needed else NO_AUTHORITIES}."
            for pointer in pointers(config) if (problem := pointer.problem()) is not None]
