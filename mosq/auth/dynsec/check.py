"""Checks the file of dynamic security without starting a broker, for `--test-config` and `mosq doctor`."""

import os

from mosq.auth.dynsec.store import load
from mosq.config.errors import ConfigError
from mosq.config.files import FILE, Pointer
from mosq.config.plugin import DYNAMIC_SECURITY, all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config


def readable_directory(config: "Config") -> None:
    """Read the file of dynamic security if there is one that can be opened; if there is none, check that it can be
    made, unless this is a node of a cluster, whose document is in Redis. Raises ConfigError."""
    for plugin in all_plugins(config):
        if plugin.kind == DYNAMIC_SECURITY:
            path, _ = plugin.directory_files()
            if Pointer("config_file", path, FILE, plugin.origin).readable:
                load(path, plugin.origin)
            elif config.cluster is None and not os.path.lexists(path):
                why = why_not_made(path)
                if why is not None:
                    raise ConfigError(f"Unable to write the dynamic security file '{path}': {why}.", plugin.origin)


def why_not_made(path: str) -> str | None:
    """Return why this user cannot make the file; None if it can."""
    folder = os.path.dirname(os.path.realpath(path))
    try:
        os.stat(folder)
    except OSError as error:
        return error.strerror
    if not os.path.isdir(folder):
        return "Not a directory"
    return None if os.access(folder, os.W_OK | os.X_OK, effective_ids=True) else "Permission denied"
