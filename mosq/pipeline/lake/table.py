"""Read and change one Delta table through `deltalake`.

Every commit of a job carries the name of its checkpoint and its number, so that a commit that is done already is
skipped: a batch that is done again changes nothing. Only one writer changes a table (lake/lock.py). The transaction of
Delta is the second line: two writers that commit the same number cannot both succeed.
"""

import contextlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.pipeline import MosqPipelineError, user
from mosq.pipeline.lake.parts import DATE, WINDOW, Part, PartWriter, is_windowed, sync, with_statistics
from mosq.pipeline.lake.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable

IDENTITY = "mosq.identity"
TRIES = 10  # another process may compact or erase at the same moment
KEPT_S = 600  # a replaced file stays that long for readers of older versions: a query over rows may take minutes
SUMS_KEPT_S = 120  # of a small table that each batch writes again: gold, progress
PROPERTIES = {
    # upkeep does both on its schedule, so that no batch waits for them
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": f"interval {KEPT_S} seconds",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_S} seconds",
}
TEXT_MAX = 600  # of an error of the storage
FULL = re.compile(r"No space left|Disk quota|os error 28|StorageFull|QuotaExceeded", re.IGNORECASE)
DENIED = re.compile(r"Permission denied|os error 13|AccessDenied|Forbidden|PermissionDenied|403", re.IGNORECASE)
READ_ONLY = re.compile(r"Read-only file system|os error 30", re.IGNORECASE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BUCKET = re.compile(r"NoSuchBucket|NO_SUCH_BUCKET")
KEYS = re.compile(
    r"(?:no|loading|missing) credentials|credential provider|InvalidAccessKeyId|SignatureDoesNotMatch", re.IGNORECASE
)
PROTOCOL = re.compile(
    r"(reader|writer|protocol).{0,80}(version|feature)|Unsupported table features|Feature '.{1,80}' is not supported",
    re.IGNORECASE,
)


def explained(error: BaseException, uri: str) -> str:
    """Return what is wrong with a table, and what to do."""
    # the cause stands in a later line; deltalake colours its arrows
    whole = " ".join(COLOUR.sub("", str(error)).split()) or type(error).__name__
    text = whole if len(whole) <= TEXT_MAX else whole[: TEXT_MAX - 3] + "..."
    if BUCKET.search(whole):
        return f"{uri}: there is no such bucket: create it, or correct [pipeline] tables"
    if KEYS.search(whole):
        return (
            f"{uri}: the storage does not accept this access, or there are no keys: set AWS_ACCESS_KEY_ID,"
            " AWS_SECRET_ACCESS_KEY and AWS_REGION in [storage] or in the environment, and for a server of your own"
            ' AWS_ENDPOINT_URL (with AWS_ALLOW_HTTP = "true" for http://)'
        )
    if FULL.search(whole):
        return f"{uri}: no space left: free some, and run again; the unfinished batch is done again as a whole"
    if DENIED.search(whole):
        return f"{uri}: no permission ({text}): let {user()} write there"
    if READ_ONLY.search(whole):
        return f"{uri}: the file system is read-only: mount it again for writing, and run again"
    if type(error).__name__ == "DeltaProtocolError" or PROTOCOL.search(text):
        return f"{uri}: the table needs a newer program ({text}): update mosq and deltalake"
    if type(error).__name__ == "CommitFailedError":
        return f"{uri}: another program changes this table at the same time ({text}): stop it, and run again"
    if type(error).__name__ == "TableNotFoundError" or isinstance(error, FileNotFoundError):
        return f"{uri}: the table or one of its files is gone ({text}): is its storage mounted? Restore it"
    return f"{uri}: {text}"


@contextlib.contextmanager
def plain(uri: str) -> "Iterator[None]":
    """Raise MosqPipelineError with advice for an error of the storage or of `deltalake`."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise MosqPipelineError(explained(error, uri)) from error


def _delta_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


class Table:
    """Hold one table of a place. The handle follows the newest version when it commits or is refreshed."""

    def __init__(self, place: Place, name: str, handle: "DeltaTable") -> None:
        self.place, self.name, self.handle = place.child(name), name, handle
        self.parent = place
        self._schema: tuple[int, pa.Schema] | None = None

    # ---- open

    @classmethod
    def open(cls, place: Place, name: str, version: int | None = None) -> "Table | None":
        """Return the table, at its newest version or an older one, or None if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        here = place.child(name)
        if here.is_local and not (here.path / "_delta_log").is_dir():
            return None  # deltalake would create the folder
        with plain(here.uri):
            try:
                return cls(place, name, DeltaTable(here.delta, version=version, storage_options=here.options or None))
            except TableNotFoundError:
                return None

    @classmethod
    def create(
        cls,
        place: Place,
        name: str,
        schema: pa.Schema,
        identity: str,
        partition_by: "Sequence[str]" = (DATE,),
        properties: "Mapping[str, str] | None" = None,
    ) -> "Table":
        """Create the table and return it; one that is there already must have the same identity."""
        from deltalake import DeltaTable

        found = cls.open(place, name)
        if found is None:
            here = place.child(name)
            if here.is_local:
                here.path.mkdir(parents=True, exist_ok=True)
            with plain(here.uri):
                handle = DeltaTable.create(
                    here.delta,
                    _delta_schema(schema),
                    mode="ignore",
                    partition_by=list(partition_by),
                    configuration={**PROPERTIES, **_skipping(schema), IDENTITY: identity, **(properties or {})},
                    storage_options=here.options or None,
                    raise_if_key_not_exists=False,
                )
            found = cls(place, name, handle)
            found._durable()
        if found.identity != identity:
            raise MosqPipelineError(
                f"{found.place.uri} belongs to another set of tables (its identity is {found.identity}, expected"
                f" {identity}): name another place for tables, or the checkpoints of these tables"
            )
        return found

    def refresh(self) -> "Table":
        with plain(self.place.uri):
            if self.place.is_local and not (self.place.path / "_delta_log").is_dir():
                raise FileNotFoundError("its folder _delta_log")
            self.handle.update_incremental()
        return self

    def reopen(self) -> "Table":
        """Read the log from its begin: a handle remembers files of the log, which may be deleted."""
        from deltalake import DeltaTable

        with plain(self.place.uri):
            self.handle = DeltaTable(self.place.delta, storage_options=self.place.options or None)
        return self

    # ---- facts

    @property
    def schema(self) -> pa.Schema:
        """Return the columns with their Arrow types."""
        if self._schema is None or self._schema[0] != self.version:
            self._schema = self.version, pa.schema(self.handle.schema().to_arrow())
        return self._schema[1]

    @property
    def identity(self) -> str | None:
        found: str | None = self.handle.metadata().configuration.get(IDENTITY)
        return found

    @property
    def partition_by(self) -> list[str]:
        return list(self.handle.metadata().partition_columns)

    @property
    def kept_s(self) -> int:
        """Return how long a replaced file stays."""
        return SUMS_KEPT_S if is_windowed(self.schema) or not self.partition_by else KEPT_S

    @property
    def version(self) -> int:
        return int(self.handle.version())

    def done(self, app: str) -> int:
        """Return the last number that `app` has committed, or -1."""
        found = self.handle.transaction_version(app)
        return -1 if found is None else found

    def adds(self) -> pa.Table:
        """Return the files of this version: path, size_bytes, num_records, partition.*, min.*, max.*."""
        return pa.table(self.handle.get_add_actions(flatten=True))

    def files(self) -> list[str]:
        """Return the absolute paths or URIs of the files of this version."""
        return [f"{self.place.uri}/{path}" for path in self.adds()["path"].to_pylist()]

    def is_whole(self) -> bool:
        """Return whether all files of this version are there: those of an older version may be deleted."""
        from pyarrow import fs

        files, base = self.place.filesystem()
        paths = [f"{base}/{path}" if base else path for path in self.adds()["path"].to_pylist()]
        with plain(self.place.uri):
            return all(info.type == fs.FileType.File for info in files.get_file_info(paths))

    def rows(self) -> int:
        """Return the number of rows, from the log."""
        return pc.sum(self.adds()["num_records"]).as_py() or 0

    def metadata(self, n: int) -> list[dict[str, Any]]:
        """Return what the newest `n` commits say about themselves, the newest first."""
        with plain(self.place.uri):
            return list(self.handle.history(n))

    # ---- read

    def _native_files(self) -> Any:
        """Return a file system without Python code for the table, or None (that of deltalake) if there is none.

        Threads of pyarrow read ahead. If one of them calls Python while the interpreter ends, the process aborts.
        """
        from pyarrow import fs

        files, base = self.place.filesystem()
        return fs.SubTreeFileSystem(base, files) if base else None

    def dataset(self) -> Any:
        """Return this version as a dataset of pyarrow.

        The dataset that `deltalake` makes finds no row for a filter on a column without statistics, or for nulls. So
        this one has its own conditions for skipping files.
        """
        from pyarrow import dataset

        with plain(self.place.uri):
            theirs = self.handle.to_pyarrow_dataset(filesystem=self._native_files())
            adds = {add["path"]: add for add in self.adds().to_pylist()}
            fragments = [
                theirs.format.make_fragment(
                    one.path, filesystem=theirs.filesystem, partition_expression=_condition(adds[one.path], self.schema)
                )
                for one in theirs.get_fragments()
            ]
            return dataset.FileSystemDataset(fragments, self.schema, theirs.format, theirs.filesystem)

    def read(self, filter: Any = None, columns: "Sequence[str] | None" = None) -> pa.Table:
        """Return the rows of this version; `filter` is an expression of pyarrow.compute."""
        with plain(self.place.uri):
            return self.dataset().to_table(columns=None if columns is None else list(columns), filter=filter)

    # ---- change

    def add_columns(self, fields: "Sequence[pa.Field]") -> bool:
        """Add the columns that the table does not have yet; return whether there were any."""
        from deltalake import Schema

        names = {name.lower() for name in self.refresh().schema.names}
        new = [field.with_nullable(True) for field in fields if field.name.lower() not in names]
        if not new:
            return False
        with plain(self.place.uri):
            self.handle.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
            self._committed()
        return True

    def append(self, parts: "Sequence[Part]", app: str, batch: int, about: "Mapping[str, object]") -> bool:
        """Commit new files; return False if this number is committed already."""
        return self._commit(lambda: self._adding(parts), "append", app, batch, about)

    def replace(
        self,
        content: "Sequence[Part] | pa.Table",
        app: str,
        batch: int,
        schema: pa.Schema | None = None,
        about: "Mapping[str, object] | None" = None,
    ) -> bool:
        """Replace the whole content, and the columns if `schema` is given, in one commit."""
        parts = content
        if isinstance(content, pa.Table):
            if self.refresh().done(app) >= batch:
                return False
            parts = self._written(content, schema or content.schema)
        actions = self._adding(parts)
        return self._commit(lambda: actions, "overwrite", app, batch, about or {}, schema)

    def merge(
        self,
        rows: pa.Table,
        keys: "Sequence[str]",
        how: "Mapping[str, str]",
        app: str,
        batch: int,
        about: "Mapping[str, object] | None" = None,
    ) -> bool:
        """Join rows with those of the same keys; `how` has the function of each other column: sum, max or min.

        Only files whose windows overlap the new rows are written again. The newest window of a date gets a file of its
        own, so that the next batch writes few rows again.
        """

        def actions() -> list[Any]:
            return self._merging(rows, keys, how)

        return self._commit(actions, "append", app, batch, about or {})

    def fold(
        self,
        rows: pa.Table,
        folded: "Callable[[pa.Table], pa.Table]",
        app: str,
        batch: int,
        about: "Mapping[str, object] | None" = None,
    ) -> bool:
        """Replace the content of a table without partitions by `folded` of it and more rows.

        The whole table is written again, so it must be small.
        """

        def actions() -> list[Any]:
            from deltalake.transaction import RemoveAction

            old, now = self.adds().to_pylist(), int(time.time() * 1000)
            schema = self.schema
            both = pa.concat_tables([one.select(schema.names).cast(schema) for one in (*map(self._of_file, old), rows)])
            gone = [RemoveAction(add["path"], True, now, add["size_bytes"], {}) for add in old]
            return [*gone, *self._adding(self._written(folded(both), schema))]

        return self._commit(actions, "append", app, batch, about or {})

    def merge_by(
        self,
        rows: pa.Table,
        folded: "Callable[[pa.Table], pa.Table]",
        app: str,
        batch: int,
        about: "Mapping[str, object] | None" = None,
    ) -> bool:
        """As `merge`, with a function that joins the old rows of some windows with new ones: one row for each key."""
        return self._commit(lambda: self._rewriting(rows, folded), "append", app, batch, about or {})

    def delete(
        self,
        which: Any,
        about: "Mapping[str, object] | None" = None,
        first: "Callable[[], object] | None" = None,
    ) -> int:
        """Delete the rows for which an expression of pyarrow is true; return how many. Files without such rows stay.

        `first` is called before, for the version of which the rows are deleted. deltalake's own delete is not used: it
        writes texts with a type (string_view) for which pyarrow and DuckDB cannot compare.
        """
        n = 0

        def actions() -> list[Any]:
            nonlocal n
            n, found = self._without(which)
            if n and first is not None:
                first()
            return found

        with plain(self.place.uri):
            self.refresh()
            hit = self.dataset().scanner(filter=which, columns=[]).count_rows()
        if hit:
            self._commit(actions, "append", "", 0, about or {})
        return n

    def _without(self, which: Any) -> tuple[int, list[Any]]:
        """Return how many rows an expression names, and the actions that replace the files which have some."""
        from deltalake.transaction import RemoveAction

        n, now, actions = 0, int(time.time() * 1000), []
        adds = {add["path"]: add for add in self.adds().to_pylist()}
        keep = ~which | which.is_null()
        writer = PartWriter(self.parent, self.name, self.schema)
        for one in self.dataset().get_fragments():
            hit = one.scanner(schema=self.schema, filter=which, columns=[]).count_rows()
            if not hit:
                continue
            n += hit
            add = adds[one.path]
            dates = {DATE: _date(add)} if f"partition.{DATE}" in add else {}
            actions.append(RemoveAction(add["path"], True, now, add["size_bytes"], dates))
            for batch in one.scanner(schema=self.schema, filter=keep).to_batches():
                writer.write(batch)
        return n, [*actions, *self._adding(writer.close())]

    # ---- commits

    def _adding(self, parts: "Sequence[Part]") -> list[Any]:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        dated = self.partition_by == [DATE]
        return [
            AddAction(part.path, part.size, {DATE: part.date or None} if dated else {}, now, True, part.stats)
            for part in parts
        ]

    def _written(self, rows: pa.Table, schema: pa.Schema) -> list[Part]:
        writer = PartWriter(self.parent, self.name, schema)
        writer.write(rows)
        return writer.close()

    def _commit(
        self,
        actions: Any,
        mode: str,
        app: str,
        batch: int,
        about: "Mapping[str, object]",
        schema: pa.Schema | None = None,
    ) -> bool:
        """Commit what `actions()` returns, unless the number is committed already.

        The actions are computed again after a conflict with a program that compacts or erases.
        """
        from deltalake.exceptions import CommitFailedError

        with plain(self.place.uri):
            for attempt in range(TRIES):
                if self.refresh().done(app) >= batch:
                    return False
                try:
                    found = actions()
                    removes = mode == "overwrite" or any(not hasattr(action, "stats") for action in found)
                    self.handle.create_write_transaction(
                        found,
                        mode,
                        _delta_schema(self.schema if schema is None else schema),
                        self.partition_by,
                        commit_properties=_properties(about, app, batch, removes=removes),
                        **_hooks(),
                    )
                except CommitFailedError:
                    if attempt == TRIES - 1:
                        raise
                    continue
                self._committed()
                return True
        raise AssertionError("unreachable")

    def restore(self, version: int) -> None:
        """Bring the table back to the content of an older version, with a commit of its own."""
        with plain(self.place.uri):
            self.handle.restore(version)
            self._committed()

    def _committed(self) -> None:
        self.handle.update_incremental()
        self._durable()

    def _durable(self) -> None:
        """Sync the newest commit to the disk; object storage has it when the commit returns."""
        if self.place.is_local:
            log = self.place.path / "_delta_log"
            sync(log / f"{self.version:020}.json")
            sync(log)

    # ---- merge

    def _merging(self, rows: pa.Table, keys: "Sequence[str]", how: "Mapping[str, str]") -> list[Any]:
        def folded(both: pa.Table) -> pa.Table:
            merged = both.group_by(list(keys), use_threads=False).aggregate(list(how.items()))
            merged = merged.select([*keys, *(f"{name}_{one}" for name, one in how.items())])
            return merged.rename_columns([*keys, *how])

        return self._rewriting(rows, folded)

    def _rewriting(self, rows: pa.Table, folded: "Callable[[pa.Table], pa.Table]") -> list[Any]:
        from deltalake.transaction import RemoveAction

        gone = self._overlapping(rows)
        old = [self._of_file(add) for add in gone.to_pylist()]
        schema = self.schema
        both = pa.concat_tables([one.select(schema.names).cast(schema) for one in (*old, rows)])
        merged = folded(both).select(schema.names).cast(schema)
        now = int(time.time() * 1000)
        removed = [
            RemoveAction(add["path"], True, now, add["size_bytes"], {DATE: _date(add)}) for add in gone.to_pylist()
        ]
        parts = [part for piece in _pieces(merged) for part in self._written(piece, schema)]
        return [*removed, *self._adding(parts)]

    def _overlapping(self, rows: pa.Table) -> pa.Table:
        """Return the files that may hold rows of the windows of `rows`."""
        adds = self.adds()
        if not adds.num_rows or not rows.num_rows:
            return adds.slice(0, 0)
        dates = adds[f"partition.{DATE}"]
        mask = pc.is_in(dates, pc.unique(rows[DATE]).cast(dates.type))
        if f"min.{WINDOW}" in adds.column_names:
            windows = np.sort(pc.unique(rows[WINDOW]).cast(pa.int64()).to_numpy(zero_copy_only=False))
            least, greatest = (
                pc.fill_null(adds[f"{one}.{WINDOW}"].cast(rows[WINDOW].type).cast(pa.int64()), limit).to_numpy()
                for one, limit in (("min", windows[0]), ("max", windows[-1]))  # without statistics: any window
            )
            some = np.searchsorted(windows, least, "left") < np.searchsorted(windows, greatest, "right")
            mask = pc.and_(mask, pa.array(some))
        return adds.filter(mask)

    def _of_file(self, add: dict[str, Any]) -> pa.Table:
        """Return the rows of one file with their date."""
        import pyarrow.parquet as pq

        files, base = self.place.filesystem()
        path = f"{base}/{add['path']}" if base else add["path"]
        rows = pq.read_table(path, filesystem=files, partitioning=None)
        schema = self.schema
        columns = [
            pa.repeat(pa.scalar(add[f"partition.{DATE}"], field.type), rows.num_rows)
            if field.name == DATE
            else rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)


def _skipping(schema: pa.Schema) -> dict[str, str]:
    """Return the property that names the columns with statistics; readers may rely on those of all named ones."""
    names = with_statistics(schema)
    if not names:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(names)}


def _condition(add: dict[str, Any], schema: pa.Schema) -> Any:
    """Return what is true for all rows of a file: its date, and the least and greatest values."""
    found = pc.scalar(True)
    if f"partition.{DATE}" in add:
        date = add[f"partition.{DATE}"]
        found = pc.field(DATE).is_null() if date is None else pc.field(DATE) == pa.scalar(date, schema.field(DATE).type)
    for name in with_statistics(schema):
        least, greatest = add.get(f"min.{name}"), add.get(f"max.{name}")
        if least is None or greatest is None:
            continue
        kind = schema.field(name).type
        inside = (pc.field(name) >= pa.scalar(least, kind)) & (pc.field(name) <= pa.scalar(greatest, kind))
        found &= inside if add.get(f"null_count.{name}") == 0 else inside | pc.field(name).is_null()
    return found


def _date(add: dict[str, Any]) -> str | None:
    found = add[f"partition.{DATE}"]
    return None if found is None else str(found)


def _pieces(rows: pa.Table) -> "Iterator[pa.Table]":
    """Yield the newest window, and the other windows together."""
    if not rows.num_rows:
        return
    newest = pc.equal(rows[WINDOW], pc.max(rows[WINDOW]))
    for mask in (newest, pc.invert(newest)):
        piece = rows.filter(mask)
        if piece.num_rows:
            yield piece


def _properties(about: "Mapping[str, object]", app: str = "", batch: int = 0, *, removes: bool = False) -> Any:
    """Return the properties of a commit.

    A commit that `removes` files fails if any other one came since its table was read. deltalake 1.6 would let it pass
    after a commit that only merged files, and the rows of those files would be there twice.
    """
    from deltalake.transaction import CommitProperties, Transaction

    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    done = [Transaction(app, batch, int(time.time() * 1000))] if app else None
    return CommitProperties(custom_metadata=texts, max_commit_retries=0 if removes else None, app_transactions=done)


def _hooks() -> dict[str, Any]:
    from deltalake.transaction import PostCommitHookProperties

    return {"post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)}
