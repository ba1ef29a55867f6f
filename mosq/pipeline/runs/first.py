"""`mosq pipeline init`: settings to begin with, with every key and what it means."""

import os
from pathlib import Path

from mosq.journal.folders import streams_below
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.settings import FILE, load

STREAMS = "streams"  # the folder of streams in that of the store
JOURNAL = "/var/lib/mosquitto/mosquitto.db.store/streams"

TEMPLATE = """\
# Settings of `mosq pipeline` (docs/pipeline.md). Paths are relative to this file. What is commented out is the default.

[pipeline]
journal = {journal}            # the folder of the broker's streams
# streams = []                 # which of them; empty: all that are there
# tables = "tables"            # Parquet, for Spark, DuckDB, pandas
# checkpoints = "checkpoints"  # how far they are; belongs to the tables
# trigger = "5 seconds"        # how often `run` looks for what is new
# window = "1 minute"          # of gold
# watermark = "10 minutes"     # later rows are counted in gold/late
# prefix_levels = 1            # of topics, in the view prefixes
# batch_rows = 500_000         # at most, of one batch
# consumer = "pipeline"        # retention waits for what this one has not read; "": it does not wait
# stop_on_loss = true          # false: go on behind what is damaged or gone, and count it
# master = "local[*]"

# Messages as typed rows: the first rule whose filter matches. What cannot be read goes to the table `quarantine`.
# [[silver]]
# name = "telemetry"
# topic = "site/+/telemetry"
# format = "json"                                   # json, csv, number or sparkplug
# schema = "temperature DOUBLE, unit STRING"        # json may go without: then the first messages say it

# [spark]                                           # Spark's own settings
# "spark.driver.memory" = "2g"
"""


def init(where: str, config: str | None, journal: str | None) -> list[str]:
    """Writes the file and makes its folders; -> what to tell."""
    path = Path(where).absolute()
    if path.suffix != ".toml":
        path /= FILE
    if path.exists():
        raise MosqPipelineError(f"{path} is there already: edit it, or name another place")
    streams = Path(journal).expanduser().absolute() if journal is not None else _of_broker(config or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEMPLATE.format(journal=_toml(str(streams))))
    settings = load(path)
    for folder in (settings.tables, settings.checkpoints):
        folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{path}: written; tables: {settings.tables}"]
    if not streams.is_dir():
        lines.append(
            f"{streams} is not there yet: start the broker with `persistence true` and a line `stream NAME FILTER`, or"
            " correct [pipeline] journal"
        )
    else:
        lines.append(f"streams: {', '.join(streams_below(streams)) or 'none yet'}")
    lines.append("next: mosq pipeline doctor, mosq pipeline run --once")
    return lines


def _toml(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _of_broker(file: str) -> Path:
    """Where the broker with this configuration keeps its streams."""
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config
    from mosq.server.storage import store_directory

    try:
        config = load_config(file)
    except ConfigError as error:
        raise MosqPipelineError(str(error)) from None
    store = store_directory(config)
    if store is None:
        raise MosqPipelineError(f"{file}: no `persistence true`, so that broker writes no streams; streams need it")
    # a relative persistence_location counts from where the broker is started
    return Path(os.path.abspath(store)) / STREAMS
