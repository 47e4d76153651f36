"""frontier.html: a single, self-contained file that works offline."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driftline.results.comparison import Family, compare, family_of
from driftline.results.curves import TrialCurve
from driftline.results.show.axes import band_text
from driftline.results.show.charts import frontier_chart, learning_chart, speed_chart
from driftline.results.show.number_text import banded, hyperparameters_text, number
from driftline.results.show.palette import styles
from driftline.results.show.recommendation_rows import final, recommendation_rows
from driftline.results.show.text_table import area_text
from driftline.results.show.theory_text import agreement

Json = Mapping[str, Any]
_NUMBERS = ' class="n"'

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
td.n, td:first-child {{ white-space: nowrap; }}
.dot {{ display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .5em; }}
dt {{ font-weight: 600; margin-top: .5em; }} dd {{ margin: 0 0 0 1.2em; }} details {{ margin: 1.2em 0; }}
</style></head><body>
<h1>{title}</h1>
<p class="quiet">{subtitle}</p>
{chart}
<p class="quiet">{caption}</p>
{table}
{verdicts}
<h2>What to run</h2>
{recommendations}
<h2>Speed against final quality</h2>
<p class="quiet">Where each configuration settles and where it ends: medians over seeds. Lines join the Pareto sets.</p>
{speed}
{theory}
<h2>Learning curves of the recommended configurations</h2>
<p class="quiet">Smoothed quality of every trial; the marker is where it settles.</p>
{learning}
<details><summary>Definitions</summary><dl>{definitions}</dl></details>
</body></html>
"""


def frontier_html(result: Json, curves: Iterable[TrialCurve] = ()) -> str:
    """The trade-off of all labels of a study as a page.

    Args:
        result: Document from `frontier_document`. A label's ``"theory"``, ``[{"cost", "quality"}]``, is drawn dashed.
        curves: The study's trials, for the learning curves of recommended configurations.

    Returns:
        HTML with its scripts inside (about 5 MB), which loads nothing else. Pointing at a marker shows the
        configuration's hyperparameters.
    """
    parameters = result["definitions"]["parameters"]
    learning = learning_chart(result, [curve for curve in curves if _recommended(curve, result)])
    return _PAGE.format(
        title=html.escape(result["study"]),
        subtitle=html.escape(
            f"{parameters['metric']} ({parameters['direction']}) against {result['definitions']['cost']}; "
            f"{parameters['rounds']} rounds a trial."
        ),
        chart=_div(frontier_chart(result), scripts=True),
        caption=html.escape(band_text(result)),
        table=_table(result),
        recommendations=_recommendations(result),
        speed=_div(speed_chart(result), scripts=False),
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


def _recommended(curve: TrialCurve, result: Json) -> bool:
    """Whether a trial is among those from which a recommended configuration is reported."""
    method = result["methods"][curve.label]
    numbers = {row["configuration"] for row in method["recommendations"]}
    return curve.phase == method["reported"]["phase"] and curve.configuration in numbers


def _table(result: Json) -> str:
    metric = result["definitions"]["parameters"]["metric"]
    marks = styles(result["methods"])
    rows = []
    for label, method in result["methods"].items():
        row = final(method)
        cells = [
            area_text(method),
            banded(row["quality"], row["low"], row["high"]) if row else "none",
            str(method["ledger"]["trials"]),
            str(method["diverged"]),
        ]
        rows.append([_named(label, marks[label].colour), *(f'<td class="n">{cell}</td>' for cell in cells)])
    heads = ["method", "area", f"final {metric}", "trials", "diverged"]
    note = "In brackets: smallest and largest over seeds. Area: 0 is untrained, 1 the best end in the study."
    return f'{_rows(heads, rows)}<p class="quiet">{note}</p>'


def _recommendations(result: Json) -> str:
    parameters = result["definitions"]["parameters"]
    marks = styles(result["methods"])
    rows = [
        [
            _named(label, marks[label].colour),
            f'<td class="n">{number(row.end)}</td><td class="n">{row.stop}</td>',
            f'<td class="n">{banded(*row.quality)}</td>',
            f"<td>{html.escape(_settings(row.configuration))}</td>",
        ]
        for label, method in result["methods"].items()
        for row in recommendation_rows(method, result["scale"]["last"])
    ]
    return _rows(["method", f"{parameters['cost']} up to", "stop at round", parameters["metric"], "run"], rows)


def _settings(configuration: Json | None) -> str:
    return hyperparameters_text(configuration["hyperparameters"]) if configuration else ""


def _named(label: str, colour: str) -> str:
    return f'<td><span class="dot" style="background:{colour}"></span>{html.escape(label)}</td>'


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; all columns but the first and those named "run" hold numbers."""
    head = "".join(f"<th{_NUMBERS * (name not in ('method', 'run'))}>{html.escape(name)}</th>" for name in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{chr(10).join(row)}</tr>' for row in rows)}</table>"


def _theory(result: Json) -> str:
    said = "".join(f"<li>{html.escape(line)}</li>" for line in agreement(result))
    heading = '<h2>Theory and measurement</h2><p class="quiet">Relative differences, medians over configurations.</p>'
    return f"{heading}<ul>{said}</ul>" if said else ""


def _verdicts(result: Json) -> str:
    pairs = list(itertools.combinations(result["methods"], 2))
    if not pairs:
        return ""
    family = family_of(result)
    said = "".join(f"<li>{_verdict(result, a, b, family)}</li>" for a, b in pairs)
    return f"<h2>Comparisons</h2><ul>{said}</ul>"


def _verdict(result: Json, a: str, b: str, family: Family) -> str:
    return f"{html.escape(a)} and {html.escape(b)}: {html.escape(compare(result, a, b, family)['why'])}"
