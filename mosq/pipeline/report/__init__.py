"""Make the report of the pipeline: gold tables and audits as one page and CSV files.

This package makes sections of small results of Spark; mosq/tools/bench/html draws them.

    tables -> gather (Spark: reduce to a few rows) -> sections -> mosq.tools.bench.html (charts, page, CSV)
"""
