"""Make a page, CSV files and a comparison from folders of results (`mosq bench report`).

Reading, sections and the comparison need only Python; charts.py (matplotlib) and page.py (jinja2) need the extra
`bench`.

    reading -> model -> figures -> sections (+ against) -> charts, page, csv_files; perf/results.py writes Markdown of
    them
"""
