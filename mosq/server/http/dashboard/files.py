"""The files of the page, from the package. They are read once, at the start, because they are few and small.

Security headers: the page may load scripts, styles and data from its own origin only; no script or style may stand in
the HTML; no other page may show this one in a frame. So text from clients cannot become code, even if a view had an
error.
"""

import hashlib
from pathlib import Path

from starlette.responses import Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
          "trusted-types 'none'")
SECURITY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",          # for browsers that do not know frame-ancestors
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Files:
    """The files of the page by their names."""

    def __init__(self) -> None:
        self._files = {one.name: one.read_bytes() for one in sorted(FOLDER.iterdir()) if one.suffix in KINDS}
        self._tags = {name: f'"{hashlib.sha256(data).hexdigest()[:24]}"' for name, data in self._files.items()}

    def response(self, name: str, request: "Request") -> Response | None:
        """Return the response with a file; None if there is no such file. A browser keeps the file, and sends its tag
        each time, so a new version of the broker is seen at once."""
        if name not in self._files:
            return None
        headers = {**SECURITY, "etag": self._tags[name], "cache-control": "no-cache"}
        sent = request.headers.get("if-none-match", "")
        if self._tags[name] in [tag.strip().removeprefix("W/") for tag in sent.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(self._files[name], 200, {**headers, "content-type": KINDS[Path(name).suffix]})
