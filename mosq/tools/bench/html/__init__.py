"""What `mosq bench report` makes of a folder of results: a page, CSV files, a comparison of two. Reading, sections
and the comparison need nothing but Python; only charts.py (matplotlib) and page.py (jinja2) need `mosq[bench]`.

    reading -> model -> figures -> sections (+ against) -> charts, page, csv_files; perf/results.py writes Markdown of
    them
"""
