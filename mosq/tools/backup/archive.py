"""The format of a backup: a tar archive with a manifest as its last member.

  config/PATH       a file of the configuration, by its absolute path without the first `/`
  store/NAME        a file of the store, by its path below the store's folder. With workers: worker.1/NAME, and their
                    layout (mosq/server/layout.py)
  manifest.json     version of the format, version of mosq, time, folder of the store, and for each member its
                    size and its SHA-256; a field of its own head in the archive has the manifest's SHA-256

A reader refuses an archive without manifest, of a newer format, with members that the manifest does not name, with a
checksum that is wrong, and with names that leave the folder to which they are written. It takes memory for the
manifest and for the heads of the members, each with a bound. An archive of a version that wrote no checksum of the
manifest is read, and the reader reports that.
"""

import grp
import gzip
import hashlib
import json
import os
import pwd
import tarfile
import zlib

from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO, Self

FORMAT = 1
FORMAT_WORKERS = 2              # with the stores of several workers, which older versions would not find
MANIFEST, CONFIG, STORE = "manifest.json", "config/", "store/"
MANIFEST_SUM = "MOSQ.sha256"    # a field of the manifest's head, as POSIX allows to vendors
MANIFEST_BYTES_MAX = 64 << 20
MEMBERS_MAX = 500_000           # more than a manifest of MANIFEST_BYTES_MAX can name
BLOCK_BYTES = 1 << 20
GZIP = b"\x1f\x8b"              # the first bytes of a compressed archive
SHOWN_MAX = 200


class BackupError(Exception):
    """A backup or a restore is not done; the text says why, and what to do."""


def shown(text: object) -> str:
    """Return a text of an archive for a terminal: a part of it, without control characters."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(text)[:SHOWN_MAX])


class Bounded:
    """Reads an uncompressed archive. A head that names a size without bound is an error (tarfile would read it as a
    whole), and so is a place that no file has."""

    def __init__(self, file: "BinaryIO | gzip.GzipFile") -> None:
        self._file = file
        self.tell = file.tell

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes. Raises ValueError if they are too many."""
        if not 0 <= count <= MANIFEST_BYTES_MAX:
            raise ValueError(f"a head names {count:,} bytes")
        return self._file.read(count)

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place. Raises ValueError at a place that no file has."""
        if not 0 <= place < 1 << 63:
            raise ValueError(f"a head names the place {place:,}")
        return self._file.seek(place, whence)


class Limited:
    """Reads at most SIZE bytes of a file, hashes them, and reports its progress. A running broker makes the file
    longer; a file that becomes shorter is an error."""

    def __init__(self, file: "BinaryIO", size: int, step: "Callable[[int], None]") -> None:
        self._file, self._left, self._step, self.hash = file, size, step, hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes. Raises BackupError if the file ends early."""
        count = self._left if count < 0 else min(count, self._left)
        block = self._file.read(count)
        if len(block) < count:
            raise BackupError(f"{getattr(self._file, 'name', 'a file')} became shorter while it was read. Try again.")
        self._left -= len(block)
        self.hash.update(block)
        self._step(len(block))
        return block


class Writer:
    """Writes an archive. The caller puts the file in place after `end`."""

    def __init__(self, file: "BinaryIO", is_compressed: bool) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w:gz" if is_compressed else "w", format=tarfile.PAX_FORMAT,  # noqa: SIM115
                                 **({"compresslevel": 1} if is_compressed else {}))     # type: ignore[call-overload]
        self.members: dict[str, dict[str, Any]] = {}
        self._names: dict[tuple[int, int], list[str]] = {}

    def add(self, name: str, file: "BinaryIO", step: "Callable[[int], None]",
            found: "os.stat_result | None" = None) -> None:
        """Add the present bytes of an open file. `found`: owner, mode and time of the member, if the file has none."""
        if found is None:
            found = os.fstat(file.fileno())
        member = tarfile.TarInfo(name)
        member.size = file.seek(0, os.SEEK_END)
        file.seek(0)
        member.mtime, member.mode = int(found.st_mtime), found.st_mode & 0o777
        source = Limited(file, member.size, step)
        self._tar.addfile(member, source)  # it only reads
        self.members[name] = {"size": member.size, "sha256": source.hash.hexdigest(), "mode": member.mode,
                              "owner": [found.st_uid, found.st_gid], "names": self._names_of(found)}

    def _names_of(self, found: "os.stat_result") -> list[str]:
        """Return the names of a file's user and group: another machine may have other numbers for them."""
        owner = found.st_uid, found.st_gid
        if owner not in self._names:
            try:
                self._names[owner] = [pwd.getpwuid(owner[0]).pw_name, grp.getgrgid(owner[1]).gr_name]
            except KeyError:
                self._names[owner] = []
        return self._names[owner]

    def end(self, about: "dict[str, Any]") -> None:
        """Add the manifest and the end of the archive."""
        import io

        content = json.dumps({"broker": f"mosq {VERSION}", "sum": MANIFEST_SUM, **about,
                              "members": self.members},
                             ensure_ascii=False, indent=1).encode(errors="surrogateescape")
        member = tarfile.TarInfo(MANIFEST)
        member.size = len(content)
        member.pax_headers = {MANIFEST_SUM: hashlib.sha256(content).hexdigest()}
        self._tar.addfile(member, io.BytesIO(content))
        self._tar.close()


class Reader:
    """Reads an archive, and checks it against its manifest."""

    def __init__(self, path: str) -> None:
        """Open it and read the manifest. Raises BackupError."""
        self.path = path
        self.has_manifest_sum = False           # an older version wrote none
        try:
            self._file = open(path, "rb")       # noqa: SIM115  # close() closes it
        except OSError as error:
            raise BackupError(f"{path}: {error.strerror}. Expected an archive of `mosq backup`.") from None
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        try:
            is_compressed = self._file.read(len(GZIP)) == GZIP
            self._file.seek(0)
            source = Bounded(gzip.GzipFile(fileobj=self._file) if is_compressed else self._file)
            self._tar = tarfile.open(fileobj=source, mode="r:")     # type: ignore[call-overload]  # noqa: SIM115
            members = list(_forward(self._tar))
        except (OSError, EOFError, ValueError, OverflowError, RecursionError, tarfile.TarError, zlib.error) as error:
            why = shown(str(error).rstrip(":."))
            raise BackupError(f"{self.path} is no archive of `mosq backup`, or it is damaged: {why}.") from None
        self._members = {member.name: member for member in members}
        self.manifest = self._manifest()
        self.names: dict[str, dict[str, Any]] = self.manifest["members"]
        self._check_names(len(members))

    def close(self) -> None:
        """Close the archive."""
        self._file.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _manifest(self) -> "dict[str, Any]":
        member = self._members.get(MANIFEST)
        if member is None or not member.isreg() or member.size > MANIFEST_BYTES_MAX:
            raise BackupError(f"{self.path} has no manifest: the backup was not finished, or another program wrote it.")
        content = self._tar.extractfile(member)
        assert content is not None
        try:
            text = content.read()
            wanted = member.pax_headers.get(MANIFEST_SUM)
            self._check_manifest(text, wanted)
            manifest = json.loads(text)
            if "sum" in manifest and wanted is None:
                raise BackupError(f"{self.path} is damaged: the checksum of {MANIFEST} is missing. Take another "
                                  "backup.")
            number = int(manifest["format"])
            by = manifest["broker"] = shown(manifest["broker"])
        except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError, KeyError, TypeError, OverflowError,
                RecursionError):
            raise BackupError(f"{self.path} has a damaged manifest. Take another backup.") from None
        if number > FORMAT_WORKERS:
            raise BackupError(f"{self.path} was written by {by} in format {number}; this mosq {VERSION} reads formats "
                              f"up to {FORMAT_WORKERS}. Install that version or a newer one.")
        members = manifest.get("members")
        is_right = isinstance(members, dict) and all(
            isinstance(one, dict) and isinstance(one.get("size"), int) and isinstance(one.get("sha256"), str)
            and isinstance(one.get("mode"), int) for one in members.values())
        if not is_right or not all(isinstance(manifest.get(name), (str, type(None))) for name in ("store", "config")):
            raise BackupError(f"{self.path} has a damaged manifest. Take another backup.")
        store = manifest.get("store")
        if store and (os.path.basename(store) in ("", ".", "..") or "\0" in store):
            raise BackupError(f"{self.path}: the name {store!r} is not allowed for a store.")
        return manifest                         # type: ignore[no-any-return]

    def _check_manifest(self, text: bytes, wanted: str | None) -> None:
        if wanted is not None and wanted != hashlib.sha256(text).hexdigest():
            raise BackupError(f"{self.path} is damaged: {MANIFEST} has another checksum. Take another backup.")
        self.has_manifest_sum = wanted is not None

    def _check_names(self, count: int) -> None:
        for name, one in self.names.items():
            member = self._members.get(name)
            parts = name.split("/")
            is_allowed = name.startswith((CONFIG, STORE)) and "\0" not in name and {"", ".", ".."}.isdisjoint(parts)
            if not is_allowed or len(parts) < 2:
                raise BackupError(f"{self.path}: the name {name!r} is not allowed in a backup.")
            if member is None or not member.isreg() or member.issparse() or member.size != one["size"]:
                raise BackupError(f"{self.path} is damaged: {shown(name)} is missing or has another size.")
        if count != len(self.names) + 1:
            raise BackupError(f"{self.path} contains files that its manifest does not name. It was changed.")

    def below(self, prefix: str) -> list[str]:
        """Return the names with a prefix."""
        return [name for name in self.names if name.startswith(prefix)]

    def total_bytes(self, names: list[str]) -> int:
        """Return the sum of sizes."""
        return sum(self.names[name]["size"] for name in names)

    def copy(self, names: list[str], sink: "Callable[[str], BinaryIO | None]", step: "Callable[[int], None]") -> None:
        """Check each member, and write it to the file that `sink` opens, if any. Raises BackupError."""
        for name in names:
            source = self._tar.extractfile(self._members[name])
            assert source is not None
            out = sink(name)
            try:
                found = hashlib.sha256()
                for block in _blocks(source, self.path):
                    found.update(block)
                    if out is not None:
                        out.write(block)
                    step(len(block))
                if found.hexdigest() != self.names[name]["sha256"]:
                    raise BackupError(f"{self.path} is damaged: {shown(name)} has another checksum. Take another "
                                      "backup.")
                if out is not None:
                    out.flush()
                    os.fsync(out.fileno())
            finally:
                if out is not None:
                    out.close()


def _forward(tar: tarfile.TarFile) -> "Iterator[tarfile.TarInfo]":
    """Yield the members. Raises ValueError at a negative size, which would lead tarfile back to an earlier member, and
    at more members than a manifest can name."""
    last = -1
    for count, member in enumerate(tar):
        if count > MEMBERS_MAX:
            raise ValueError(f"it has more than {MEMBERS_MAX:,} files")
        if member.size < 0 or member.offset <= last:
            raise ValueError(f"the size of {member.name[:80]!r} is wrong")
        last = member.offset
        yield member


def _blocks(source: "Any", path: str) -> "Iterator[bytes]":
    while True:
        try:
            block = source.read(BLOCK_BYTES)
        except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
            raise BackupError(f"{path} is damaged: {error}. Take another backup.") from None
        if not block:
            return
        yield block
