"""frontier.html: a single, self-contained file that works offline."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve
from driftline.results.show.axes import band_text
from driftline.results.show.charts import frontier_chart, learning_chart
from driftline.results.show.number_text import banded, number
from driftline.results.show.palette import styles
from driftline.results.show.text_table import best_configuration
from driftline.results.show.theory_text import agreement

Json = Mapping[str, Any]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: #222;
  max-width: 1180px; margin: 1.2em auto; padding: 0 1em; }}
h1 {{ font-size: 1.35em; margin: 0 0 .1em; }} h2 {{ font-size: 1.05em; margin: 1.6em 0 .3em; }}
p {{ margin: .3em 0; }} .quiet {{ color: #666; font-size: .9em; }}
table {{ border-collapse: collapse; margin: .6em 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25em .9em .25em 0; text-align: left; border-bottom: 1px solid #e3e3e3; }}
th {{ font-weight: 600; color: #555; font-size: .9em; }} td.n, th.n {{ text-align: right; }}
.dot {{ display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .5em; }}
dt {{ font-weight: 600; margin-top: .5em; }} dd {{ margin: 0 0 0 1.2em; }} details {{ margin: 1.2em 0; }}
</style></head><body>
<h1>{title}</h1>
<p class="quiet">{subtitle}</p>
{chart}
<p class="quiet">{caption}</p>
{table}
{theory}
{verdicts}
<h2>Learning curves of the frontier</h2>
<p class="quiet">Smoothed quality of every trial on its label's frontier; the marker is where it settles.</p>
{learning}
<details><summary>Definitions</summary><dl>{definitions}</dl></details>
</body></html>
"""


def frontier_html(result: Json, curves: Iterable[TrialCurve] = ()) -> str:
    """The trade-off of all labels of a study as a page.

    Args:
        result: Document from `frontier_document`. A label's ``"theory"``, ``[{"cost", "quality"}]``, is drawn dashed.
        curves: The study's trials, for the learning curves of those on a frontier.

    Returns:
        HTML with its scripts inside (about 5 MB), which loads nothing else. Pointing at a marker shows the
        configuration's hyperparameters.
    """
    parameters = result["definitions"]["parameters"]
    on = {point["trial"] for method in result["methods"].values() for point in method["points"] if point["pareto"]}
    learning = learning_chart(result, [curve for curve in curves if curve.trial in on])
    return _PAGE.format(
        title=html.escape(result["study"]),
        subtitle=html.escape(
            f"{parameters['metric']} ({parameters['direction']}) against {result['definitions']['cost']}; "
            f"{parameters['rounds']} rounds a trial."
        ),
        chart=_div(frontier_chart(result), scripts=True),
        caption=html.escape(band_text(result)),
        table=_table(result),
        theory=_theory(result),
        verdicts=_verdicts(result),
        learning=_div(learning, scripts=False),
        definitions="".join(
            f"<dt>{html.escape(word)}</dt><dd>{html.escape(text)}</dd>"
            for word, text in result["definitions"].items()
            if isinstance(text, str)
        ),
    )


def _div(figure: Any, *, scripts: bool) -> str:
    from plotly.io import to_html

    text: str = to_html(
        figure,
        full_html=False,
        include_plotlyjs=scripts,
        include_mathjax=False,
        default_width="100%",
        config={"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]},
    )
    return text


def _table(result: Json) -> str:
    metric = result["definitions"]["parameters"]["metric"]
    cost = result["definitions"]["parameters"]["cost"]
    heads = ["hypervolume", f"best {metric}", f"settles ({cost})", "frontier", "trials", "diverged", "not counted"]
    marks = styles(result["methods"])
    rows = []
    for label, method in result["methods"].items():
        best = best_configuration(method, metric)
        volume = method["hypervolume_band"]
        cells = [
            f"{method['hypervolume']:.3f}"
            + (f" ({volume['low']:.3f}-{volume['high']:.3f})" if volume["low"] < volume["high"] else ""),
            banded(best["quality"], best["low"], best["high"]) if best else "none",
            number(best["cost"]) if best else "-",
            str(sum(row["pareto"] for row in method["configurations"])),
            str(method["ledger"]["trials"]),
            str(method["diverged"]),
            str(method["not_counted"]),
        ]
        dot = f'<span class="dot" style="background:{marks[label].colour}"></span>'
        rows.append(f"<tr><td>{dot}{html.escape(label)}</td>" + "".join(f'<td class="n">{cell}</td>' for cell in cells))
    head = "<th>method</th>" + "".join(f'<th class="n">{html.escape(name)}</th>' for name in heads)
    note = "In brackets: smallest and largest over seeds. Not counted: frozen or hardly improved."
    return f'<table><tr>{head}</tr>{"</tr>".join(rows)}</tr></table><p class="quiet">{note}</p>'


def _theory(result: Json) -> str:
    said = "".join(f"<li>{html.escape(line)}</li>" for line in agreement(result))
    heading = '<h2>Theory and measurement</h2><p class="quiet">Relative differences, medians over configurations.</p>'
    return f"{heading}<ul>{said}</ul>" if said else ""


def _verdicts(result: Json) -> str:
    pairs = list(itertools.combinations(result["methods"], 2))
    if not pairs:
        return ""
    said = "".join(f"<li>{_verdict(result, a, b)}</li>" for a, b in pairs)
    return f"<h2>Comparisons</h2><ul>{said}</ul>"


def _verdict(result: Json, a: str, b: str) -> str:
    found = compare(result, a, b)
    why = html.escape(found["why"])
    return why if found["verdict"] else f"{html.escape(a)} and {html.escape(b)}: {why}"
