"""The file with the secret of a cluster. Shows no secret."""

import os
import stat

SECRET_BYTES = 32               # the least content
SECRET_BYTES_MAX = 4096


def read_secret(path: str) -> bytes:
    """Return the content of the file without white space at its end. Raises OSError, and ValueError with what to do."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise ValueError(f"{path} has the secret of the cluster, and all users may read or write it; run: chmod "
                             f"o= {path}")
        content = file.read(SECRET_BYTES_MAX).rstrip()
    if len(content) < SECRET_BYTES:
        raise ValueError(f"{path} has {len(content)} bytes, and the secret of a cluster has at least {SECRET_BYTES}; "
                         f"make one, and copy it to all nodes: openssl rand -hex 32 > {path}")
    return content
