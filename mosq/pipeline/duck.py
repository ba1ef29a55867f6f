"""Query tables with DuckDB: the newest version of each table, as `deltalake` reads it, and all views over them."""

from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError, frames, views
from mosq.pipeline.lake.parts import DATE
from mosq.tools.extras import packages_advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from mosq.pipeline.lake.table import Table
    from mosq.pipeline.settings import Settings


class Duck:
    """Hold a connection of DuckDB in memory in which all tables and views have their names."""

    def __init__(self, settings: "Settings") -> None:
        try:
            import duckdb
        except ImportError:
            advice = packages_advice(["duckdb>=1.2"])
            raise MosqPipelineError(f"duckdb is not installed, and queries without Spark need it: {advice}") from None
        self.settings = settings
        self.base: DuckDBPyConnection = duckdb.connect()
        self.base.execute("SET TimeZone = 'UTC'")
        self.tables: list[str] = []
        self.views: list[str] = []
        self.refresh()

    def refresh(self) -> None:
        """Take the newest version of each table."""
        found = frames.snapshots(self.settings)
        if "bronze" not in found:
            raise frames.missing(self.settings)
        for name, table in found.items():
            self._register(views.flat(name), table)
        self.tables = [views.flat(name) for name in found]
        self.views = views.possible(found)
        for view in self.views:
            self.base.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS {views.sql(view, views.DUCKDB)}")
        for view, sql in frames.of_rules(self.settings, found).items():
            text = sql.replace(views.QUOTE, '"')
            self.base.execute(f'CREATE OR REPLACE TEMP VIEW "{view}" AS {text}')
            self.views.append(view)

    def _register(self, name: str, table: "Table") -> None:
        """Give a table its name; DuckDB reads the files itself if it finds the same columns, as that costs less."""
        import duckdb

        self.base.execute(f'DROP VIEW IF EXISTS "{name}"')
        self.base.register(name, table.dataset())
        files = table.files()
        if not table.place.is_local or not files or "=" in table.place.uri:  # DuckDB would take it for a column
            return
        # a device chooses the names of inferred columns
        columns = ", ".join('"' + column.replace('"', '""') + '"' for column in table.schema.names)
        listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        dates = f"true, hive_types = {{'{DATE}': DATE}}" if DATE in table.partition_by else "false"
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = {dates})"
        try:
            theirs = self.base.execute(f"DESCRIBE SELECT {columns} FROM {source}").fetchall()
        except duckdb.Error:  # no file has one of the columns yet
            return
        if theirs == self.base.execute(f'DESCRIBE SELECT {columns} FROM "{name}"').fetchall():
            self.base.unregister(name)
            self.base.execute(f'CREATE TEMP VIEW "{name}" AS SELECT {columns} FROM {source}')

    def query(self, sql: str) -> Any:
        """Return the result of a statement as an Arrow table, or None if it has none."""
        return next(self.queries(sql), None)

    def queries(self, sql: str) -> "Iterator[Any]":
        """Yield the result of each statement that has one, as an Arrow table."""
        import duckdb

        try:
            for statement in self.base.extract_statements(sql):
                relation = self.base.sql(statement.query)
                if relation is not None:
                    yield relation.to_arrow_table()
        except duckdb.Error as error:
            raise MosqPipelineError(str(error).strip()) from None

    def close(self) -> None:
        self.base.close()
