"""The page: sections and charts put into page.html with its style sheet. One file, nothing loaded from anywhere. The
report of the pipeline is one, too (mosq/pipeline/report)."""

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

ROWS_MAX = 1000                 # of a table
CHARTS_MAX = 60                 # of a section; what is beyond stands in the tables
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """What differs between reports."""

    name: str
    how: str                    # the template that says how to read it
    rest: str                   # where the rows are that a long table leaves out


BENCH = Kind("mosq bench report", "how_bench.html", "--csv has them")


def page(title: str, lead: list[str], sections: list[Section], tell: Callable[[str], None], kind: Kind = BENCH) -> str:
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    drawn = {}
    for section in sections:
        tell(f"drawing {section.heading.lower()}")
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
