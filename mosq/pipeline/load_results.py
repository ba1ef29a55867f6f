"""Read results of the performance lab into Spark.

The results are the files of `make paper`, `make bench`, `make load`, and of `mosq bench --json` and --parquet. The
tables are `runs` (a row for each phase of each run), `medians` (the repetitions together) and `locust`. The figures are
those of `mosq bench report --csv`, and tests compare them. The case of a run by hand comes from the same function as
there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.tools.bench.html import csv_files
from mosq.tools.bench.html.csv_files import FIGURES, KEY, TIMES
from mosq.tools.bench.html.figures import FAULTS, LEAST_S
from mosq.tools.bench.html.reading import IDLE, WrongError, runs_of
from mosq.tools.bench.report import FOREIGN_SHARE
from mosq.tools.bench.result import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DURATION = (
    "STRUCT<count: BIGINT, mean_us: DOUBLE, stdev_us: DOUBLE, p50_us: DOUBLE, p90_us: DOUBLE, p99_us: DOUBLE, "
    "p999_us: DOUBLE, p9999_us: DOUBLE, max_us: DOUBLE, buckets_ns: ARRAY<ARRAY<BIGINT>>>"
)
DURATIONS = ("latency", "ack", "connect")
PHASE = (
    "STRUCT<name: STRING, seconds: DOUBLE, per: BIGINT, unit: STRING, rate: DOUBLE, published: BIGINT, "
    f"delivered: BIGINT, {', '.join(f'{name}: BIGINT' for name in FAULTS)}, "
    f"{', '.join(f'{name}: {DURATION}' for name in DURATIONS)}, "
    "broker: STRUCT<cpu_us_per: DOUBLE, rss_after_bytes: DOUBLE>, generator: STRUCT<cpu_us_per: DOUBLE>, "
    "foreign_cpu_share: DOUBLE, limit: STRING, complete: BOOLEAN>"
)
RUN = (
    "STRUCT<suite: STRING, test: STRING, title: STRING, case: STRING, x: DOUBLE, x_name: STRING, broker: STRING, "
    "variant: STRING, rep: BIGINT>"
)
RESULT = (
    f"format BIGINT, scenario STRING, started STRING, options STRUCT<rate: DOUBLE>, phases ARRAY<{PHASE}>, run {RUN}, "
    "why_not STRING"
)
LOCUST = (
    "format BIGINT, entries ARRAY<STRUCT<type: STRING, name: STRING, requests: BIGINT, failures: BIGINT, rate: DOUBLE, "
    "mean_ms: DOUBLE, p50_ms: DOUBLE, p95_ms: DOUBLE, p99_ms: DOUBLE, max_ms: DOUBLE>>"
)
OF_LOCUST = ("mean", "p50", "p95", "p99", "max")
GROUPS = (*DURATIONS, "broker", "generator", "option")  # prefixes of the flat names in Parquet
PROBLEMS_MAX = 50
# the paper's figures: over all repetitions together
PAPER = """
    WITH finished AS (
      SELECT *, CASE WHEN time_mean_us IS NOT NULL THEN time_count END AS n
      FROM runs WHERE complete = 1 AND suite = 'paper'),
    moments AS (
      SELECT test, `case`, x, broker, variant, phase, count(*) AS repetitions, avg(seconds) * 1e6 AS run_time_us,
        sum(n * time_mean_us) / sum(n) AS delay_us,
        sum(n * (time_stdev_us * time_stdev_us + time_mean_us * time_mean_us)) / sum(n) AS square,
        max(time_max_us) AS largest_us
      FROM finished GROUP BY test, `case`, x, broker, variant, phase)
    SELECT test, `case`, x, broker, variant, phase, repetitions, run_time_us, delay_us,
      sqrt(greatest(square - delay_us * delay_us, 0)) AS deviation_us, largest_us
    FROM moments ORDER BY test, `case`, x, broker, variant, phase"""
SHORT = (
    *("test", "case", "x", "broker", "variant", "phase", "repetitions", "rate", "cpu_us_per", "p50_us", "p99_us"),
    *("rss_after_bytes", "marks"),
)


class LoadResults:
    """Hold the tables of a folder of results.

    `problems` lists what could not be read, as FILE:LINE: reason. The other results are in the tables.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark, self.folder = spark, Path(folder)
        self.problems: list[str] = []
        if not self.folder.is_dir():
            raise MosqPipelineError(
                f"{folder}: expected a folder of results, as `make bench` and `mosq bench --json` write them"
            )
        self.runs = self._runs().cache()
        self.runs.createOrReplaceTempView("runs")
        self.medians = medians(self.runs).cache()
        self.medians.createOrReplaceTempView("medians")
        self.locust = self._locust()
        if self.locust is not None:
            self.locust.createOrReplaceTempView("locust")
        if self.locust is None and self.runs.isEmpty():
            reasons = f" ({'; '.join(self.problems[:3])})" if self.problems else ""
            raise MosqPipelineError(
                f"{folder}: no results in it{reasons}; expected runs.jsonl, locust.json, or files of "
                "`mosq bench --json` or --parquet"
            )

    # ------------------------------------------------------------ reading

    def _runs(self) -> DataFrame:
        from pyspark.sql import functions as f

        texts = self._by_hand()
        lab = self.folder / "runs.jsonl"
        if lab.is_file():
            lines = self.spark.read.text(str(lab)).where(f.length(f.trim("value")) > 0)
            texts = lines.select(f.lit(str(lab)).alias("place"), "value").unionByName(texts)
        results = texts.withColumn("r", f.from_json("value", RESULT, {"columnNameOfCorruptRecord": "why_not"}))
        good = (
            (f.col("r.format") == FORMAT)
            & f.col("r.phases").isNotNull()
            & f.col("r.run").isNotNull()
            & f.col("r.why_not").isNull()
        )
        good = f.coalesce(good, f.lit(False))
        if not results.where(~good).isEmpty():
            self._report_bad_lines(results.select("place", good.alias("good")))
        return rows(results.where(good))

    def _report_bad_lines(self, results: DataFrame) -> None:
        """Add a problem for each line that is not a result. Line numbers are counted only in this case."""
        number: dict[str, int] = {}
        for row in results.toLocalIterator():
            number[row.place] = number.get(row.place, 0) + 1
            if not row.good and len(self.problems) < PROBLEMS_MAX:
                line = f":{number[row.place]}" if row.place.endswith(".jsonl") else ""
                self.problems.append(f"{row.place}{line}: not a result of the lab in format {FORMAT}")

    def _by_hand(self) -> DataFrame:
        """Return place, value: the files of `mosq bench`, with `run` added as other files have it."""
        found: list[tuple[str, dict[str, Any]]] = []
        for file in sorted(self.folder.glob("*.json")):
            if file.name in ("about.json", "locust.json"):
                continue
            try:
                result = json.loads(file.read_bytes())
                if not isinstance(result, dict) or not isinstance(result.get("phases"), list):
                    raise ValueError("not a result of `mosq bench --json`")
                found.append((str(file), result))
            except (OSError, ValueError, RecursionError) as error:
                self.problems.append(f"{file}: {getattr(error, 'strerror', None) or error}")
        for file in sorted(self.folder.glob("*.parquet")):
            found += [(str(file), one) for one in self._of_parquet(file)]
        found.sort(key=lambda one: str(one[1].get("started", "")))
        try:
            runs = runs_of([result for _, result in found])
        except WrongError as error:
            raise MosqPipelineError(f"{self.folder}: {error}") from None
        texts = [(file, json.dumps({**result, "run": run})) for (file, result), run in zip(found, runs, strict=True)]
        return self.spark.createDataFrame(texts, "place STRING, value STRING")

    def _of_parquet(self, file: Path) -> list[dict[str, Any]]:
        """Return the runs of a file of `mosq bench --parquet`: a row for each phase of one run, with joined names."""
        from pyspark.sql import functions as f

        try:
            found = self.spark.read.parquet(str(file))
            lines = [json.loads(row[0]) for row in found.select(f.to_json(f.struct("*"))).collect()]
        except Exception as error:  # Spark raises exceptions of many types
            self.problems.append(f"{file}: not a result of `mosq bench --parquet`: {str(error).splitlines()[0][:200]}")
            return []
        if not lines or "scenario" not in lines[0]:
            self.problems.append(f"{file}: not a result of `mosq bench --parquet`")
            return []
        phases = []
        for line in lines:
            phase: dict[str, Any] = {group: {} for group in GROUPS}
            for name, value in line.items():
                group, _, rest = name.partition("_")
                if group in GROUPS and rest:
                    phase[group][rest] = value
                else:
                    phase[name] = value
            phases.append(phase)
        return [
            {
                "format": FORMAT,
                "scenario": lines[0]["scenario"],
                "started": lines[0].get("started", ""),
                "options": phases[0].pop("option"),
                "phases": phases,
            }
        ]

    def _locust(self) -> DataFrame | None:
        from pyspark.sql import functions as f

        file = self.folder / "locust.json"
        if not file.is_file():
            return None
        read = self.spark.read.text(str(file), wholetext=True).select(f.from_json("value", LOCUST).alias("l"))
        if read.where(f.col("l.format") == FORMAT).isEmpty():
            self.problems.append(f"{file}: not a result of `make load` in format {FORMAT}")
            return None
        entry = read.select(f.explode("l.entries").alias("e"))
        return entry.select(
            "e.type",
            "e.name",
            "e.requests",
            "e.failures",
            "e.rate",
            *((f.col(f"e.{name}_ms") * 1e3).alias(f"{name}_us") for name in OF_LOCUST),
        )

    # ------------------------------------------------------------ tables for callers

    def paper(self) -> DataFrame:
        """Return mean run time, mean and deviation of the delays, and the largest delay, of all repetitions together.
        """
        return self.spark.sql(PAPER)

    def paper_table(self) -> DataFrame:
        """Return the paper's figures, or the medians if the folder has no runs of the paper's tests."""
        found = self.paper()
        return found if not found.isEmpty() else self.medians.select(*SHORT).orderBy(*SHORT[:6])

    def write_csv(self, folder: Path) -> list[Path]:
        """Write the tables as CSV files; return their paths.

        Raises MosqPipelineError if the folder cannot be written.
        """
        tables = {
            "runs.csv": self.runs.drop(*(f"time_{name}" for name in ("count", *TIMES)), "started"),
            "medians.csv": self.medians,
            "paper.csv": self.paper(),
            **({"locust.csv": self.locust} if self.locust is not None else {}),
        }
        try:
            csv_files.put(
                folder, {name: (frame.columns, map(tuple, frame.collect())) for name, frame in tables.items()}
            )
        except OSError as error:
            raise MosqPipelineError(f"cannot write {error.filename or folder}: {error.strerror}") from None
        return [folder / name for name in tables]


def query_result(found: LoadResults, query: str) -> DataFrame:
    """Run a query on the tables runs, medians and locust. Raises MosqPipelineError if it is not valid."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return found.spark.sql(query)
    except (AnalysisException, ParseException) as error:
        raise MosqPipelineError(
            f"--sql: {str(error).splitlines()[0]}; the tables are runs, medians and locust: DESCRIBE runs"
        ) from None


# ---------------------------------------------------------------- rows and medians, in Spark


def rows(results: DataFrame) -> DataFrame:
    """Return a row for each phase that measured work."""
    from pyspark.sql import functions as f

    one = (
        results.select("r.*")
        .select("started", "scenario", "options.rate", "run.*", f.explode("phases").alias("p"))
        .withColumnRenamed("rate", "rate_limit")
    )
    seconds, per = f.coalesce("p.seconds", f.lit(0.0)), f.coalesce("p.per", f.lit(0))
    times = {name: duration(f.col(f"p.{name}")) for name in DURATIONS}
    count = {name: f.coalesce(f"p.{name}.count", f.lit(0)) for name in DURATIONS}

    def of_times(name: str) -> Column:
        """Return the figure of deliveries if there are any, else of connecting, else of acknowledgements."""
        return (
            f.when(count["latency"] > 0, times["latency"][name])
            .when(count["connect"] > 0, times["connect"][name])
            .when(count["ack"] > 0, times["ack"][name])
        )

    text = {
        name: f.coalesce(name, f.lit("")).alias(name)
        for name in ("suite", "test", "case", "broker", "variant", "title")
    }
    return one.where(~f.coalesce("p.name", f.lit("")).isin(list(IDLE))).select(
        text["suite"],
        text["test"],
        text["case"],
        "x",
        text["broker"],
        text["variant"],
        f.coalesce("p.name", f.lit("")).alias("phase"),
        text["title"],
        f.coalesce("rep", f.lit(0)).alias("rep"),
        f.coalesce("p.complete", f.lit(True)).cast("int").alias("complete"),
        f.coalesce(f.nullif("p.unit", f.lit("")), f.lit("message")).alias("unit"),
        seconds.alias("seconds"),
        per.alias("per"),
        f.coalesce("p.rate", f.when(seconds > 0, per / seconds), f.lit(0.0)).alias("rate"),
        f.coalesce(f.col("rate_limit") > 0, f.lit(False)).cast("int").alias("at_fixed_rate"),
        f.coalesce("p.limit", f.lit("")).alias("limit"),
        f.coalesce("p.foreign_cpu_share", f.lit(0.0)).alias("foreign_cpu_share"),
        "p.broker.cpu_us_per",
        "p.broker.rss_after_bytes",
        f.col("p.generator.cpu_us_per").alias("generator_cpu_us_per"),
        *(f.coalesce(f"p.{name}", f.lit(0)).alias(name) for name in FAULTS),
        *(
            (count[group] if name == "count" else times[group][name]).alias(f"{group}_{name}")
            for group in DURATIONS
            for name in ("count", *TIMES)
        ),
        *(of_times(name).alias(f"time_{name}") for name in ("count", *TIMES)),
        "started",
    )


def duration(given: Column) -> dict[str, Column]:
    """Return the figures of a duration; if it has no deviation, compute it from the histogram."""
    from pyspark.sql import functions as f

    def add(sums: Column, bucket: Column) -> Column:
        us, n = (bucket[0] + bucket[1] - 1) / 2e3, bucket[2]
        return f.struct((sums.n + n).alias("n"), (sums.s + us * n).alias("s"), (sums.q + us * us * n).alias("q"))

    def deviation(sums: Column) -> Column:
        return f.when(sums.n > 0, f.sqrt(f.greatest(sums.q / sums.n - f.pow(sums.s / sums.n, 2), f.lit(0.0))))

    nothing = f.struct(*(f.lit(0.0).alias(name) for name in ("n", "s", "q")))
    there = f.coalesce(given["count"], f.lit(0)) > 0
    found = {name: f.when(there, given[name]) for name in ("count", *TIMES)}
    of_histogram = f.aggregate(given["buckets_ns"], nothing, add, deviation)
    found["stdev_us"] = f.when(there, f.coalesce(given["stdev_us"], of_histogram))
    return found


def medians(runs: DataFrame) -> DataFrame:
    """Return median, minimum and maximum of the repetitions that were complete, and letters that mark doubts."""
    from pyspark.sql import functions as f

    value: dict[str, Column] = {
        "rate": f.when(f.col("at_fixed_rate") == 0, f.nullif("rate", f.lit(0.0))),
        "cpu_us_per": f.nullif("cpu_us_per", f.lit(0.0)),
        "run_time_us": f.nullif(f.col("seconds") * 1e6, f.lit(0.0)),
        "rss_after_bytes": f.nullif("rss_after_bytes", f.lit(0.0)),
        "generator_cpu_us_per": f.col("generator_cpu_us_per"),
        **{name: f.col(f"time_{name}") for name in TIMES if name in FIGURES},
    }
    long = f.col("seconds") >= LEAST_S
    marks = {
        "g": 2 * f.sum(((f.col("limit") == "generator") & long).cast("int")) > f.count("*"),
        "f": 2
        * f.sum(
            (
                (f.col("foreign_cpu_share") > FOREIGN_SHARE)
                & long
                & (f.col("foreign_cpu_share") * f.col("seconds") > LEAST_S)
            ).cast("int")
        )
        > f.count("*"),
        "x": f.max(sum((f.col(name) for name in FAULTS), f.lit(0))) > 0,
    }
    first = f.min_by(f.struct("title", "unit"), f.struct("started", "rep"))
    aggregates = [
        first.alias("first"),
        f.count("*").alias("repetitions"),
        f.concat(*(f.when(found, mark).otherwise("") for mark, found in marks.items())).alias("marks"),
    ]
    for name in FIGURES:
        aggregates += [
            f.percentile(value[name], 0.5).alias(name),
            f.min(value[name]).alias(f"{name}_least"),
            f.max(value[name]).alias(f"{name}_most"),
        ]
    done = runs.where("complete = 1").groupBy(*KEY).agg(*aggregates)
    return done.select(
        *KEY,
        "first.title",
        "first.unit",
        "repetitions",
        "marks",
        *(f"{name}{part}" for name in FIGURES for part in ("", "_least", "_most")),
    )
