"""Checks the file of dynamic security without starting a broker, for `--test-config` and `mosq doctor`."""

from mosq.auth.dynsec.store import load
from mosq.config.files import FILE, Pointer
from mosq.config.plugin import DYNAMIC_SECURITY, all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config


def readable_directory(config: "Config") -> None:
    """Read the file of dynamic security if there is one that can be opened. Raises ConfigError."""
    for plugin in all_plugins(config):
        if plugin.kind == DYNAMIC_SECURITY:
            path, _ = plugin.directory_files()
            if Pointer("config_file", path, FILE, plugin.origin).readable:
                load(path, plugin.origin)
