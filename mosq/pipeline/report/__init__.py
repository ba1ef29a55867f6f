"""The report of the pipeline: gold tables and audits as one page and CSV files. Sections are made here of small results
of Spark; how they are drawn is mosq/tools/bench/html.
how they are drawn is mosq/tools/bench/html.

    tables (what is there) -> gather (Spark: to a few rows) -> sections -> mosq.tools.bench.html (charts, page, CSV)
"""
