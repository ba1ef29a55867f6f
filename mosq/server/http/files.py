"""Serves the files of http_dir. Starlette sends them, in pieces, with ranges, ETag and Last-Modified; this module
decides which file a path names, and opens it.

A file is served only if it is a regular file below the folder, whatever `..` and symbolic links lead to. The opened
file is the checked one: nothing is looked up by its name a second time.
"""

import errno
import mimetypes
import os
import stat

import anyio
import anyio.to_thread
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

OPEN_WITHIN_S = 5.0
FILE_THREADS = 4                # wait for the disk
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_conditions = StaticFiles()     # knows If-None-Match and If-Modified-Since; the folder depends on the listener


class Opened:
    """An open file. It is closed with its last reference at the latest: a request may end before the thread that opens
    its file."""

    __slots__ = ("fd", "kind")

    def __init__(self, fd: int, kind: str) -> None:
        self.fd, self.kind = fd, kind

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class OpenFileResponse(FileResponse):
    """A response that closes its file when it is sent."""

    def __init__(self, file: Opened) -> None:
        headers = {"content-type": file.kind, "x-content-type-options": "nosniff"}
        super().__init__(f"/proc/self/fd/{file.fd}", headers=headers, stat_result=os.fstat(file.fd))
        self.file = file

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.file.close()


async def file_response(folder: str | None, path: str, request: "Request") -> Response | None:
    """Return the response with the file; None if there is no such file. Raises TimeoutError if the disk hangs, and
    OSError if the process is out of descriptors or memory."""
    with anyio.fail_after(OPEN_WITHIN_S):
        found = await anyio.to_thread.run_sync(open_file, folder, path, abandon_on_cancel=True)
    if found is None:
        return None
    response = OpenFileResponse(found)
    if _conditions.is_not_modified(response.headers, request.headers):
        found.close()
        return NotModifiedResponse(response.headers)
    return response


def open_file(folder: str | None, path: str) -> Opened | None:
    """Return the file; None if there is no such file below the folder. May wait for the disk."""
    if not folder or "\0" in path or not path.startswith("/"):
        return None
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(root, path.lstrip("/")))
    if os.path.commonpath((root, real)) != root or real == root:
        return None
    try:
        # the checked file must be the opened file: no symbolic link made in between, no pipe that blocks
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
    file = Opened(fd, mimetypes.guess_type(real)[0] or "application/octet-stream")
    inside = os.path.realpath(f"/proc/self/fd/{fd}").startswith(root.rstrip("/") + "/")
    return file if stat.S_ISREG(os.fstat(fd).st_mode) and inside else None
