"""The file that belongs to the stores of all workers: how many there are, and the key that names the worker of a client
id. A session is in the store of its worker, so neither may change while the stores are there.

    NAME.store/workers      {"workers": 2, "key": "..."}, readable for the broker's user only
    NAME.store/worker.1/    the store of the first worker
"""

import json
import os

from mosq.config.plugin import has_store
from mosq.server.handover import has_bytes, has_segments, mosquitto_file
from mosq.server.storage import WORKERS_FILE, store_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config

KEY_BYTES = 16


def key_of(config: "Config") -> bytes:
    """Return the key of the stores; make it at the first start. Without persistence it is a new one. Raises OSError
    with a text for users."""
    if not has_store(config):
        return os.urandom(KEY_BYTES)
    root = store_root(config)
    path = os.path.join(root, WORKERS_FILE)
    try:
        with open(path) as file:
            found = json.load(file)
        count, key = int(found["workers"]), bytes.fromhex(found["key"])
    except FileNotFoundError:
        return _first(config, root, path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OSError(f"{path} cannot be read: {error}") from None
    if count != config.cluster_local or len(key) != KEY_BYTES:
        raise OSError(f"The stores in {root} are those of {count} workers, and this version cannot divide them again. "
                      f"Expected `cluster_local {count}`.")
    return key


def _first(config: "Config", root: str, path: str) -> bytes:
    if has_segments(root):
        raise OSError(f"The store in {root} is that of a broker with `cluster_local 1`, and this version cannot divide "
                      "it among workers. Expected `cluster_local 1`, or another persistence_location.")
    former = mosquitto_file(config)
    if has_bytes(former):
        raise OSError(f"{former} cannot be taken over by workers in this version. Expected `cluster_local 1`, or "
                      "another persistence_location.")
    key = os.urandom(KEY_BYTES)
    temporary = f"{path}.new"
    try:
        os.makedirs(root, 0o700, exist_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            json.dump({"workers": config.cluster_local, "key": key.hex()}, file)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, path)
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}. Workers need a folder for their stores.") from None
    return key
