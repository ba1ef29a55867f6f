"""Query tables with DuckDB: the newest version of each table, as `deltalake` reads it, and all views over them."""

from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError, frames, views

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from mosq.pipeline.settings import Settings


class Duck:
    """Hold a connection of DuckDB in memory in which all tables and views have their names."""

    def __init__(self, settings: "Settings") -> None:
        import duckdb

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
            self.base.register(views.flat(name), table.dataset())
        self.tables = [views.flat(name) for name in found]
        self.views = views.possible(found)
        for view in self.views:
            self.base.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS {views.sql(view, views.DUCKDB)}")

    def query(self, sql: str) -> Any:
        """Return the result of the last statement as an Arrow table, or None if it has none."""
        import duckdb

        try:
            relation = self.base.sql(sql)
            return None if relation is None else relation.to_arrow_table()
        except duckdb.Error as error:
            raise MosqPipelineError(str(error).strip()) from None

    def close(self) -> None:
        self.base.close()
