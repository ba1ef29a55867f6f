"""Read messages of Sparkplug B: a row for each metric."""

from collections import Counter
from typing import Any

import pyarrow as pa

from mosq.pipeline import sparkplug
from mosq.pipeline.rows import types
from mosq.pipeline.rows.found import Found

SCHEMA = types.schema(", ".join(f"{name} {type}" for name, type in sparkplug.COLUMNS.items()))


class SparkplugReader:
    """Read payloads of Sparkplug."""

    def read(self, topics: Any, payloads: Any) -> Found:
        """Return the metrics of a batch of payloads."""
        metrics: list[dict[str, Any]] = []
        rows: list[int] = []
        bad: dict[int, str] = {}
        notes: Counter[str] = Counter()
        for row, (topic, raw) in enumerate(zip(topics.to_pylist(), payloads.to_pylist(), strict=True)):
            try:
                found = sparkplug.metrics(topic, raw)
            except sparkplug.UnreadableError as error:
                bad[row] = str(error)
                continue
            metrics += found
            notes.update(sparkplug.notes(found))
            rows += [row] * len(found)
        columns = [pa.array([metric[field.name] for metric in metrics], field.type) for field in SCHEMA]
        rests = [metric.get(sparkplug.REST) for metric in metrics]
        rescued = pa.array(rests, pa.string()) if any(rests) else None
        return Found(columns, pa.array(rows, pa.int64()), rescued, bad, notes)
