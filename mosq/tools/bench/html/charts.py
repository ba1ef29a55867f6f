"""Draw charts as SVG for the page.

matplotlib draws them, in colours that the page's style sheet sets (light, dark, on paper); text stays text. Each chart
is as wide as a phone; a wider page puts them side by side.

The same figures give the same bytes. Names come from users: text is not parsed for mathematics, lengths are bounded,
and matplotlib escapes the text.
"""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime
from io import StringIO
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from mosq.tools.bench.html import numbers
from mosq.tools.bench.html.parts import TIME, Bars, Curves, Dots, Lines

if TYPE_CHECKING:
    from mosq.tools.bench.html.figures import Spread
    from mosq.tools.bench.html.parts import Bar, Chart

WIDTH = 340                     # units of the picture; pixels on a phone
SLOTS = 8                       # colours; further brokers share them and have other marks
INK, QUIET, GRID = "#010203", "#010204", "#010205"
MARKERS = "osD^vPXp"
BARS_MOST = 60                  # ratio of bars from which the axis is logarithmic
LABEL_CHARS = 26
WIDE_CHARS = 50
STYLE = {"svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 11, "text.parse_math": False,
         "text.color": INK, "axes.edgecolor": GRID, "axes.labelcolor": QUIET, "axes.labelsize": 10.5,
         "xtick.color": QUIET, "ytick.color": QUIET, "xtick.labelsize": 10, "ytick.labelsize": 10.5, "grid.color": GRID,
         "grid.linewidth": 0.7, "axes.grid": False, "axes.spines.top": False, "axes.spines.right": False,
         "axes.facecolor": "none", "figure.facecolor": "none", "axes.unicode_minus": True, "xtick.major.size": 0,
         "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0, "path.simplify": False}
POINTS_MARKED = 16              # most points of a line that are marked; more would hide it
# possible distances of ticks on a time axis
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86_400,
           2 * 86_400, 7 * 86_400)
CHAR = 0.62                     # width of a letter of DejaVu Sans in font sizes, as an upper estimate


def colour(slot: int) -> str:
    """Return the placeholder for a colour; the page's style sheet replaces it."""
    return f"#0102{0x20 + slot % SLOTS:02x}" if slot >= 0 else f"#0102{0x40 + min(-slot - 1, 3):02x}"


VARIABLES = {INK: "var(--ink)", QUIET: "var(--quiet)", GRID: "var(--grid)",
             **{colour(slot): f"var(--s{slot})" for slot in range(SLOTS)},
             **{colour(-1 - i): f"var(--q{i})" for i in range(4)}}


def marker(slot: int) -> str:
    return MARKERS[(slot if slot >= 0 else -slot - 1) % len(MARKERS)]


def svg(chart: Chart, name: str) -> str:
    """Return the picture; `name` is its unique name within the page."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")            # letters that only the reader's font has
        match chart:
            case Bars():
                figure = _bars(chart)
            case Lines():
                figure = _lines(chart)
            case Curves():
                figure = _curves(chart)
            case Dots():
                figure = _dots(chart)
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(out.getvalue(), name)


def legend(chart: Chart) -> list[tuple[str, int, bool]]:
    """Return the entries that the picture itself does not label: name, slot, is a variant."""
    match chart:
        case Lines():
            return [(line.label, line.slot, line.variant) for line in chart.lines]
        case Curves():
            return [(curve.label, curve.slot, False) for curve in chart.curves]
        case Dots():
            met = dict.fromkeys((bar.label, bar.slot, bar.variant) for _, bars in chart.rows for bar in bars)
            alone = all(len(bars) == 1 for _, bars in chart.rows) and len({slot for _, slot, _ in met}) == 1
            return [] if alone else list(met)
    return []


def _inline(text: str, name: str) -> str:
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true" focusable="false">',
                  text, count=1)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--face)", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
    return re.sub(r"#0102[0-9a-f]{2}", lambda found: VARIABLES.get(found[0], found[0]), text)


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most - 1] + "…"


def _new(height: float, left: float, right: float = 14, top: float = 8, bottom: float = 38) -> tuple[Figure, Any]:
    """Return a figure and its axes; all measures are in units of the picture."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
    axes = figure.add_axes((left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH,
                            (height - top - bottom) / height))
    return figure, axes


def _scale(axis: Any, kind: str, least: float, most: float, log: bool, ticks: int = 4) -> None:
    """Set ticks in the unit that fits all of them; on a logarithmic axis each tick has its own unit."""
    if log:
        room = 3.3 if axis.axis_name == "y" else 1.0
        subs = (1, 2, 5) if most / least < 30 * room else (1, 3) if most / least < 300 * room else (1,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=8))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(kind, value, value)))
    else:
        axis.set_major_locator(MaxNLocator(ticks, min_n_ticks=ticks - 1, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(kind, value, most)))


def _tick(kind: str, value: float, of: float) -> str:
    factor, name = numbers.unit(kind, of)
    return f"{value / factor:,.6g}" + (numbers.NARROW + name if name and value else "")


def _bars(chart: Bars) -> Figure:
    labels = [_short(bar.label, LABEL_CHARS) for _, bars in chart.groups for bar in bars]
    left = max(max(map(len, labels)) * 10.5 * CHAR + 6, 40)
    lines = len(labels) + 0.9 * sum(bool(heading) for heading, _ in chart.groups) + 0.35 * (len(chart.groups) - 1)
    values = [bar.value for _, bars in chart.groups for bar in bars]
    most = max(max(value.most for value in values), chart.limit or 0) or 1.0
    least = min(value.least for value in values)
    # a linear axis would make the shortest bars invisible
    log = least > 0 and most / least > BARS_MOST
    figure, axes = _new(19 * lines + (50 if log else 36), left, right=8, bottom=40 if log else 26)
    left_end = least / 1.6
    y = 0.0
    ticks = []
    for heading, bars in chart.groups:
        if heading:
            axes.text(left_end if log else 0, y + 0.4, _short(heading, WIDE_CHARS), ha="left", va="center",
                      fontsize=10.5, fontweight="bold")
            y += 0.9
        for bar in bars:
            ticks.append(y + 0.5)
            _bar(axes, bar, y + 0.5, left_end if log else None)
            end = max(bar.value.median, bar.value.most)
            axes.annotate(numbers.shown(chart.kind, bar.value.median), (end, y + 0.5), (6, 0),
                          textcoords="offset points", ha="left", va="center", fontsize=10)
            y += 1
        y += 0.35
    axes.set_ylim(y - 0.3, -0.1)
    axes.set_yticks(ticks, labels)
    for text in axes.get_yticklabels():
        text.set_color(INK)
    axes.spines["bottom"].set_visible(False)
    if log:
        axes.set_xscale("log")
        axes.set_xlabel("logarithmic")
        axes.set_xlim(left_end, most * (most / left_end) ** 0.42)
        _scale(axes.xaxis, chart.kind, left_end, most, log=True)
    else:
        axes.set_xlim(0, most * 1.42)
        _scale(axes.xaxis, chart.kind, 0, most, log=False, ticks=3)
    # no tick where the value's text stands
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in axes.get_xticks() if tick <= 1.15 * most]))
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    if chart.limit is not None:
        axes.axvline(chart.limit, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    return figure


def _bar(axes: Any, bar: Bar, y: float, left_end: float | None) -> None:
    """Draw a bar, or a dot on a thin line if the axis is logarithmic, because length means nothing there.

    left_end: start of a logarithmic axis; None: linear.
    """
    alpha = 0.55 if bar.variant else 1
    if left_end is None:
        axes.barh(y, bar.value.median, 0.66, color=colour(bar.slot), alpha=alpha)
    else:
        axes.plot((left_end, bar.value.median), (y, y), color=colour(bar.slot), linewidth=1.2, alpha=0.5 * alpha)
        axes.plot([bar.value.median], [y], color=colour(bar.slot), marker=marker(bar.slot), markersize=7, alpha=alpha,
                  linestyle="none")
    _whisker(axes, bar.value, y)


def _whisker(axes: Any, value: Spread, y: float) -> None:
    if value.n > 1 and value.most > value.least:
        axes.plot((value.least, value.most), (y, y), color=INK, linewidth=1.1, solid_capstyle="butt")
        axes.plot((value.least, value.most), (y, y), color=INK, marker="|", markersize=5, linestyle="none",
                  markeredgewidth=1.1)


def _lines(chart: Lines) -> Figure:
    # the last name of a time axis may stand under the end of the line
    figure, axes = _new(230, 62, right=32 if chart.x_name == TIME else 14)
    values = [value for line in chart.lines for _, value in line.points]
    xs = sorted({x for line in chart.lines for x, _ in line.points})
    least, most = min(value.least for value in values), max(value.most for value in values)
    timed = chart.x_name == TIME
    # on a time axis 0 is a normal value
    log_y, log_x = not timed and least > 0 and most / least > 30, not timed and xs[0] > 0 and xs[-1] / xs[0] > 20
    for line in chart.lines:
        at = [x for x, _ in line.points]
        marks = marker(line.slot) if len(at) <= POINTS_MARKED else None
        axes.plot(at, [value.median for _, value in line.points], color=colour(line.slot), marker=marks,
                  markersize=5, linewidth=1.6, linestyle="--" if line.variant else "-",
                  markerfacecolor="none" if line.variant else colour(line.slot))
        if any(value.most > value.least for _, value in line.points):
            axes.fill_between(at, [value.least for _, value in line.points], [value.most for _, value in line.points],
                              color=colour(line.slot), alpha=0.16, linewidth=0)
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    if chart.kind == "value":
        room = 0.08 * (most - least) or 1.0
        axes.set_ylim(least - room, most + room)
    elif not log_y:
        axes.set_ylim(0, most * 1.08 or 1)
    _scale(axes.yaxis, chart.kind, least, most, log_y)
    if timed:
        _time_axis(axes, xs[0], xs[-1])
    else:
        _scale(axes.xaxis, "bytes" if chart.x_name == "bytes" else "count", xs[0], xs[-1], log_x)
        name = "payload" if chart.x_name == "bytes" else _short(chart.x_name, WIDE_CHARS)
        axes.set_xlabel(_scaled(name, log_x, log_y))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return figure


def _scaled(name: str, log_x: bool, log_y: bool) -> str:
    """Return the name of the horizontal axis, and which axes are logarithmic."""
    which = "both axes" if log_x and log_y else "this axis" if log_x else "vertical axis"
    return f"{name} ({which} logarithmic)" if log_x or log_y else name


def _time_axis(axes: Any, first: float, last: float) -> None:
    """Set ticks at whole steps; their names omit the common part, which is the label of the axis."""
    step = next((step for step in STEPS_S if last - first <= 4 * step), 7 * 86_400.0 * max(1, (last - first) // 2e6))
    least, most = min(first, last - 1), max(last, first + 1)
    axes.set_xlim(least - 0.03 * (most - least), most + 0.03 * (most - least))
    axes.xaxis.set_major_locator(FixedLocator([n * step for n in range(ceil(least / step), floor(most / step) + 1)]))
    name = "%m-%d" if step >= 86_400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: datetime.fromtimestamp(at, UTC).strftime(name)))
    days = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (first, last)]
    axes.set_xlabel(f"UTC, {' to '.join(dict.fromkeys(days))}")


def _curves(chart: Curves) -> Figure:
    figure, axes = _new(240, 62)
    least = min(us for curve in chart.curves for _, us in curve.points)
    most = max(us for curve in chart.curves for _, us in curve.points)
    last = max(-log10(share) for curve in chart.curves for share, _ in curve.points)
    for curve in chart.curves:
        axes.plot([-log10(share) for share, _ in curve.points], [us for _, us in curve.points],
                  color=colour(curve.slot), linewidth=1.7)
        # marks at the labelled shares
        at = [(-log10(share), us) for share, us in curve.points if share in (0.5, 0.1, 0.01, 0.001, 0.0001)]
        axes.plot([x for x, _ in at], [y for _, y in at], color=colour(curve.slot), marker=marker(curve.slot),
                  markersize=5, linestyle="none")
    axes.set_yscale("log")
    axes.set_ylim(max(least, 0.001) * 0.8, most * 1.3)
    _scale(axes.yaxis, "time", max(least, 0.001), most, log=True)
    quantiles = [("50 %", log10(2)), ("90 %", 1.0), ("99 %", 2.0), ("99.9 %", 3.0), ("99.99 %", 4.0)]
    shown = [(text, x) for text, x in quantiles if x <= last + 0.01]
    axes.xaxis.set_major_locator(FixedLocator([x for _, x in shown]))
    axes.set_xticklabels([text for text, _ in shown])
    axes.set_xlim(0, max(last, 1) * 1.04)
    axes.grid()
    axes.set_axisbelow(True)
    axes.set_xlabel("share at least as fast (time is logarithmic)")
    return figure


def _dots(chart: Dots) -> Figure:
    figure, axes = _new(33 * len(chart.rows) + 48, 12, right=20, top=4, bottom=44)
    values = [bar.value for _, bars in chart.rows for bar in bars]
    ends = [1.0] if chart.kind == "ratio" else []
    least = min([value.least for value in values] + ends)
    most = max([value.most for value in values] + ends)
    for y, (label, bars) in enumerate(chart.rows):
        axes.axhline(y + 0.72, color=GRID, linewidth=0.7, zorder=0)
        axes.text(0.0, y + 0.26, _short(label, WIDE_CHARS), transform=axes.get_yaxis_transform(), ha="left",
                  va="center", fontsize=10.5)
        for bar in bars:
            if bar.value.most > bar.value.least:
                axes.plot((bar.value.least, bar.value.most), (y + 0.72, y + 0.72), color=colour(bar.slot),
                          linewidth=1.6, alpha=0.7)
            axes.plot([bar.value.median], [y + 0.72], color=colour(bar.slot), marker=marker(bar.slot), markersize=7,
                      linestyle="none")
    axes.set_ylim(len(chart.rows), 0)
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    log = least > 0 and most / least > 3
    if log:
        axes.set_xscale("log")
        axes.set_xlim(least / 1.25, most * 1.25)
    else:
        room = max(most - least, 0.1 * most) * 0.12
        axes.set_xlim(least - room, most + room)
    _scale(axes.xaxis, chart.kind, least, most, log)
    if chart.kind == "ratio":       # the line at 1, interrupted at the labels
        axes.vlines([1] * len(chart.rows), [y + 0.52 for y in range(len(chart.rows))],
                    [y + 0.92 for y in range(len(chart.rows))], color=INK, linewidth=1.1, zorder=1)
    axes.set_xlabel(_short(chart.axis, WIDE_CHARS + 10))
    return figure


# shapes of a legend, in a box of 24 x 12
SHAPES = {"o": '<circle cx="12" cy="6" r="3.2"/>', "s": '<path d="M9 3h6v6H9z"/>',
          "D": '<path d="M12 2l4 4-4 4-4-4z"/>', "^": '<path d="M12 2l4 7H8z"/>', "v": '<path d="M12 10l4-7H8z"/>',
          "P": '<path d="M11 2h2v3h3v2h-3v3h-2V7H8V5h3z"/>',
          "X": '<path d="M8 3l1-1 3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 3-3z"/>',
          "p": '<path d="M12 2l4 3-1.5 5h-5L8 5z"/>'}


def key(slot: int, variant: bool) -> str:
    """Return the mark of a legend, as the chart draws it."""
    tint, dashes = VARIABLES[colour(slot)], ' stroke-dasharray="4 3"' if variant else ""
    return ('<svg class="key" viewBox="0 0 24 12" aria-hidden="true">'
            f'<path d="M0 6h24" style="stroke:{tint}" stroke-width="1.6"{dashes}/>'
            f'<g style="fill:{tint}">{SHAPES[marker(slot)]}</g></svg>')
