"""Name the place of tables: a folder of this machine, or a URI of shared storage."""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

SCHEMES = ("s3", "s3a", "hdfs", "abfs", "abfss", "file")
IDENTITY = "identity.json"  # of checkpoints: that of their tables, and whether these were made
S3 = re.compile(r"^s3a?://")
# options of deltalake (lower case), and the arguments of pyarrow's file system
S3_OPTIONS = {
    "aws_access_key_id": "access_key",
    "aws_secret_access_key": "secret_key",
    "aws_session_token": "session_token",
    "aws_region": "region",
}
S3_OTHERS = (
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_allow_http",
    "aws_virtual_hosted_style_request",
    "aws_conditional_put",
    "aws_default_region",
)
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def absolute(text: str, folder: Path) -> str:
    """Return the absolute path of a local folder, or the URI unchanged; relative paths begin at `folder`.

    Raises MosqPipelineError for a scheme that no reader of the tables knows.
    """
    found = SCHEME.match(text)
    if found is None:
        return str((folder / Path(text).expanduser()).absolute())
    scheme = found[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise MosqPipelineError(f"{text}: expected a folder, or a URI with one of {known}")
    if scheme == "file":
        return str(Path("/" + text[found.end() :].lstrip("/")))
    if not re.match(r"//[^/]+", text[found.end() - 1 :]):
        raise MosqPipelineError(f"{text}: expected a bucket or host after {scheme}://")
    return text.rstrip("/")


@dataclass(frozen=True)
class Place:
    """Hold a local path or a URI, and the options of its storage. Tasks get it as a pickle."""

    uri: str
    options: dict[str, str] = field(default_factory=dict, hash=False)

    def child(self, name: str) -> "Place":
        return Place(f"{self.uri}/{name}", self.options)

    @property
    def is_local(self) -> bool:
        return SCHEME.match(self.uri) is None

    @property
    def path(self) -> Path:
        """Return the local path. Raises MosqPipelineError for a URI."""
        if not self.is_local:
            raise MosqPipelineError(f"{self.uri} is not a folder of this machine")
        return Path(self.uri)

    @property
    def delta(self) -> str:
        """Return the text that `deltalake` expects: it knows s3:// only, Spark knows s3a:// only."""
        return re.sub(r"^s3a://", "s3://", self.uri)

    @property
    def spark(self) -> str:
        """Return the text that Spark expects."""
        return self.path.as_uri() if self.is_local else re.sub(r"^s3://", "s3a://", self.uri)

    def filesystem(self) -> tuple[Any, str]:
        """Return a file system of pyarrow and the path of this place in it."""
        from pyarrow import fs

        if self.is_local:
            return fs.LocalFileSystem(), self.uri
        if (native := self._s3()) is not None:
            return native, S3.sub("", self.uri)
        from deltalake.fs import DeltaStorageHandler

        # the same options as for commits; paths are relative to the place
        return fs.PyFileSystem(DeltaStorageHandler(self.delta, self.options or None)), ""

    def _s3(self) -> Any:
        """Return pyarrow's own file system for S3, or None if it is another storage or an option has no counterpart.

        It has no Python code. That of deltalake has: if a thread of pyarrow calls it while the process ends, the
        process aborts.
        """
        if S3.match(self.uri) is None:
            return None
        from pyarrow import fs

        # as for deltalake, the variables of the environment are the options that are not given
        environment = {key.lower(): value for key, value in os.environ.items() if key.startswith("AWS_")}
        given = {f"aws_{key.lower().removeprefix('aws_')}": value for key, value in self.options.items()}
        options = environment | given
        known = {ours: options[theirs] for theirs, ours in S3_OPTIONS.items() if theirs in options}
        if any(key not in (*S3_OPTIONS, *S3_OTHERS) for key in given):
            return None
        endpoint = options.get("aws_endpoint_url") or options.get("aws_endpoint", "")
        if endpoint:
            scheme, _, host = endpoint.rpartition("://")
            known |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
        virtual = options.get("aws_virtual_hosted_style_request", "").lower() == "true"
        return fs.S3FileSystem(**known, force_virtual_addressing=virtual and bool(endpoint))


def are_made(settings: "Settings") -> bool:
    """Return whether the checkpoints say that there are tables. Programs on other machines have no checkpoints."""
    try:
        return bool(json.loads((settings.checkpoints / IDENTITY).read_text())["made"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def lost(settings: "Settings", name: str) -> MosqPipelineError:
    """Return the error for a table that is not there, though the checkpoints say that it is."""
    return MosqPipelineError(
        f"{place_of(settings).child(name).uri}: there is no table, but {settings.checkpoints} says that there is one:"
        " is the storage of the tables mounted? Mount or restore it; to begin again, remove the checkpoints too"
    )


def place_of(settings: "Settings") -> Place:
    """Return the place of all tables of the settings."""
    return Place(settings.tables, dict(settings.storage))
