"""Write first settings with all keys and their meanings (`mosq pipeline init`)."""

import os
from pathlib import Path

from mosq.journal.folders import streams_below
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.settings import FILE, default_node, load

STREAMS = "streams"  # folder of the streams in the store's folder
JOURNAL = "/var/lib/mosquitto/mosquitto.db.store/streams"

TEMPLATE = """\
# Settings of `mosq pipeline` (docs/pipeline.md). Paths are relative to this file. A commented line shows the default.

[pipeline]
journal = {journal}            # the folder of the broker's streams
# streams = []                 # which of them; empty: all
node = "{node}"                # the broker's name, which each row has: never change it
# tables = "tables"            # Delta tables: a folder, or a URI: s3a://, hdfs://, abfss://
# checkpoints = "checkpoints"  # a local folder: progress of the jobs; belongs to the tables
# trigger = "5 seconds"        # how often `run` looks for new records
# window = "1 minute"          # length of gold's windows
# watermark = "10 minutes"     # later rows are counted in gold/late
# prefix_levels = 1            # levels of a topic in the view prefixes
# batch_rows = 500_000         # most rows of one batch
# consumer = "pipeline"        # retention keeps records until this consumer has read them; "": it does not wait
# stop_on_loss = true          # false: skip damaged or missing records, and count them
# master = "local[*]"

# Several brokers: these entries instead of journal, streams and node above. A source can be added later.
#  [[source]]
#  node = "broker-1"
#  journal = "/var/lib/mosquitto/mosquitto.db.store/streams"

# Messages as typed rows: the first rule whose filter matches. Unreadable payloads go to the table `quarantine`.
# [[silver]]
# name = "telemetry"
# topic = "site/+/telemetry"
# format = "json"                                   # json, csv, number or sparkplug
# schema = "temperature DOUBLE, unit STRING"        # optional for json: then inferred from the first messages

# key = ["device", "ts"]                            # repetitions of a key go to the quarantine
# time_column = "ts"                                # the event's time: gold/telemetry adds the values up by it
# time_unit = "ms"                                  # of a number: s, ms, us or ns

# [retention]                                       # rows that are older are deleted; without a line they stay
# bronze = "90 days"

# [storage]                                         # access to a URI of tables
# AWS_REGION = "eu-west-1"

# [spark]                                           # Spark's own settings
# "spark.driver.memory" = "2g"
"""


def init(where: str, config: str | None, journal: str | None) -> list[str]:
    """Write the settings file and create its folders; return lines for the user."""
    path = Path(where).absolute()
    if path.suffix != ".toml":
        path /= FILE
    if path.exists():
        raise MosqPipelineError(f"{path} is there already: edit it, or name another place")
    node = default_node()
    if journal is not None:
        streams = Path(journal).expanduser().absolute()
    else:
        streams, node = _of_broker(config or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEMPLATE.format(journal=_toml(str(streams)), node=node))
    settings = load(path)
    for folder in (Path(settings.tables), settings.checkpoints):
        folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{path}: written; tables: {settings.tables}"]
    if not streams.is_dir():
        lines.append(
            f"{streams} is not there yet: start the broker with `persistence true` and a line `stream NAME FILTER`, or"
            " correct [pipeline] journal"
        )
    else:
        lines.append(f"streams: {', '.join(streams_below(streams)) or 'none yet'}")
    lines.append(f"typed rows: remove the # of the rule [[silver]] in {path.name}, and change it to your topics")
    lines.append("next: mosq pipeline doctor, mosq pipeline run --once")
    return lines


def _toml(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _of_broker(file: str) -> tuple[Path, str]:
    """Return the folder where the broker with this configuration keeps its streams, and the broker's name."""
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
    # a relative persistence_location is relative to the folder in which the broker is started
    return Path(os.path.abspath(store)) / STREAMS, config.node_name or config.cluster_node or default_node()
