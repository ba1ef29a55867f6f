"""Name the place of tables: a folder of this machine, or a URI of shared storage."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

SCHEMES = ("s3", "s3a", "hdfs", "abfs", "abfss", "file")
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
        from deltalake.fs import DeltaStorageHandler

        # the same options as for commits; paths are relative to the place
        return fs.PyFileSystem(DeltaStorageHandler(self.delta, self.options or None)), ""


def place_of(settings: "Settings") -> Place:
    """Return the place of all tables of the settings."""
    return Place(settings.tables, dict(settings.storage))
