"""Make the page: sections and charts in page.html with its style sheet, as one file that loads nothing.

The report of the pipeline is such a page as well (mosq/pipeline/report).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from mosq.tools.bench.html import charts
from mosq.tools.bench.html.figures import MARKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.tools.bench.html.parts import Section

ROWS_MAX = 1000                 # most rows of a table
CHARTS_MAX = 60                 # most charts of a section; the tables have the others
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """Describe a kind of report."""

    name: str
    how: str                    # template that explains how to read the page
    rest: str                   # sentence about the rows that a long table leaves out


BENCH = Kind("mosq bench report", "how_bench.html", "--csv has them")


def page(title: str, lead: list[str], sections: list[Section], progress: Callable[[str], None],
         kind: Kind = BENCH) -> str:
    """Return the HTML of the page; `lead` has the sentences at its top, `progress` gets a line for each section."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    drawn = {}
    for section in sections:
        progress(f"drawing {section.heading.lower()}")
        drawn[section.id] = [(chart.title, Markup(charts.svg(chart, f"{section.id}-{i}")),
                              [(Markup(charts.key(slot, variant)), label) for label, slot,
                               variant in charts.legend(chart)])
                             for i, chart in enumerate(section.charts[:CHARTS_MAX])]
    html: str = environment.get_template("page.html").render(
        title=title, lead=lead, sections=sections, drawn=drawn, marks=MARKS, slots=charts.SLOTS,
        rows_max=ROWS_MAX, kind=kind.name, how=kind.how, rest=kind.rest,
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        beyond={section.id: max(0, len(section.charts) - CHARTS_MAX) for section in sections})
    return html
