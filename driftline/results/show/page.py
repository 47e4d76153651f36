"""frontier.html: a single, self-contained file that works offline."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any

from driftline.results.comparison import compare, family_of
from driftline.results.curves import TrialCurve, unit
from driftline.results.definitions import budget_of
from driftline.results.headline import headline, order_text
from driftline.results.own_settings import setting_notes
from driftline.results.runs import ENDED, runs_of_all
from driftline.results.show.axes import band_text, time_text
from driftline.results.show.escaped_text import escaped
from driftline.results.show.importance_rows import NOTE, importance_cells
from driftline.results.show.number_text import banded, number
from driftline.results.show.page_data import (
    Key,
    configuration_rows,
    learning_curve,
    other_readings,
    reading_data,
    script_json,
    study_data,
)
from driftline.results.show.palette import styles, stylesheet
from driftline.results.show.recommendation_rows import recommendation_rows, test_metric, test_text
from driftline.results.show.text_table import ANY, summary_rows
from driftline.results.show.theory_text import agreement
from driftline.study.budget import spend_text

Json = Mapping[str, Any]
SCRIPTS = ("charts.js", "study.js", "configurations.js", "hyperparameters.js", "budget.js", "efforts.js", "page.js")
LARGEST = 1_400_000  # bytes of a page's contents: further readings and learning curves are left out beyond
FOR_CURVES = 300_000  # of these bytes that other readings leave to the learning curves
_CURVES_AT_ONCE = 64
MOST_PAIRS = 100  # comparisons; of more pairs, only those with a verdict
_NUMBERS = ' class="n"'
_WORDS = ("method", "hyperparameter", "run")


def frontier_html(result: Json, curves: Iterable[TrialCurve] = (), *, others: bool = True) -> str:
    """The trade-off of all labels of a study as a page.

    Args:
        result: Document from `frontier_document`. A label's ``"theory"``, ``[{"cost", "quality"}]``, is drawn dashed;
            with ``"specification"``, the study as JSON, configurations can be copied to be run again.
        curves: The study's trials, for the configurations of the search, learning curves and other readings.
        others: Whether the page can also be read with other costs and qualities, whose results are computed here.

    Returns:
        HTML with its scripts inside, which loads nothing else.
    """
    trials = list(curves)
    rows = configuration_rows(result, trials)
    keys = list(rows)
    data = study_data(result, rows, trials) | {"readings": [reading_data(result, rows, keys)], "curves": {}}
    shown = [_fragments(result)]
    used = len(script_json(data)) + _size(shown[0])
    for document, read in other_readings(result, trials) if others else ():
        reading = reading_data(document, configuration_rows(document, read), keys)
        fragments = _fragments(document)
        size = len(script_json(reading)) + _size(fragments)
        if used + size > LARGEST - FOR_CURVES:
            break
        used += size
        data["readings"].append(reading)
        shown.append(fragments)
    for index, curve in _learning(result, keys, trials, data["readings"]):
        size = len(script_json(curve))
        if used + size > LARGEST:
            break
        used += size
        data["curves"][index] = curve
    return _page(result, data, shown)


def _size(fragments: Mapping[str, str]) -> int:
    return sum(len(text) for text in fragments.values())


def _learning(
    result: Json, keys: Sequence[Key], trials: Sequence[TrialCurve], readings: Sequence[Json]
) -> Iterator[tuple[int, Json]]:
    """Row and learning curve of the reported configurations: recommended ones, those of the Pareto set, the others."""
    runs = defaultdict(list)
    for curve in trials:
        if curve.state in ENDED:
            runs[curve.label, curve.phase, curve.configuration].append(curve)
    ranks = {}
    for label, method in result["methods"].items():
        recommended = {row["configuration"] for row in method["recommendations"]}
        for row in method["configurations"]:
            key = (label, method["reported"]["phase"], row["configuration"])
            ranks[key] = 0 if row["configuration"] in recommended else 1 if row["pareto"] else 2
    ordered = sorted(range(len(keys)), key=lambda index: ranks.get(keys[index], 3))
    drawn = [index for index in ordered if keys[index] in ranks and runs[keys[index]]]
    for first in range(0, len(drawn), _CURVES_AT_ONCE):
        batch = drawn[first : first + _CURVES_AT_ONCE]
        groups = [(keys[index][2], runs[keys[index]]) for index in batch]
        for reading in readings:
            runs_of_all(groups, reading["metric"], reading["cost"])  # `learning_curve` finds them in the curves' caches
        for index in batch:
            yield index, learning_curve(keys[index], runs[keys[index]], readings)


def _page(result: Json, data: Json, fragments: Sequence[Mapping[str, str]]) -> str:
    script = "\n".join(_file(name) for name in SCRIPTS)
    style = f"{_file('page.css')}\n{stylesheet()}"
    slots = {
        name: "".join(
            f'<div data-reading="{index}"{" hidden" if index else ""}>{parts[name]}</div>'
            for index, parts in enumerate(fragments)
        )
        for name in fragments[0]
    }
    return _file("page.html").format(
        title=_text(result["study"]),
        times=_times(result),
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}",
        style=style,
        script=script,
        data=script_json(data),
        **slots,
    )


def _times(result: Json) -> str:
    """When the study was submitted and has finished; "" for a result that is not of one stored study."""
    if "submitted_at" not in result:
        return ""
    moments = (result["submitted_at"], result["finished_at"])
    submitted, finished = (moment and f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC" for moment in moments)
    return f"Submitted {submitted}, {f'finished {finished}' if finished else 'not finished'}."


def _file(name: str) -> str:
    return files("driftline.results.show").joinpath("browser", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _fragments(result: Json) -> dict[str, str]:
    """The parts of a page that need no script, by their place in page.html."""
    parameters = result["definitions"]["parameters"]
    family = family_of(result)
    comparisons = [compare(result, a, b, family) for a, b in itertools.combinations(result["methods"], 2)]
    return {
        "subtitle": _text(
            f"{parameters['metric']} ({parameters['direction']}) against {parameters['cost']}{time_text(result)}; "
            f"{spend_text(*budget_of(result))} a trial."
        ),
        "caption": _text(band_text(result)),
        "summary": _summary(result),
        "headline": f'<p id="headline">{_text(text)}</p>' if (text := headline(result, comparisons)) else "",
        "recommendations": _recommendations(result),
        "importance": _importance(result),
        "efforts": _efforts(comparisons),
        "comparisons": _comparisons(comparisons),
        "ledger": _ledger(result),
        "theory": _theory(result),
        "definitions": _definitions(result["definitions"]),
    }


def _definitions(words: Json) -> str:
    terms = (f"<dt>{_text(word)}</dt><dd>{_text(text)}</dd>" for word, text in words.items() if isinstance(text, str))
    return f"<dl>{''.join(terms)}</dl>"


def _text(text: str) -> str:
    """Text for HTML; its control characters and direction marks are shown, not obeyed."""
    return html.escape(escaped(text))


def _summary(result: Json) -> str:
    parameters = result["definitions"]["parameters"]
    heads, *cells = summary_rows(result["methods"], parameters["metric"])
    rows = [[_named(result, label), *(f"<td{_NUMBERS}>{_dashed(cell)}</td>" for cell in row)] for label, *row in cells]
    note = (
        f"Area: mean quality over log10 {parameters['cost']}, 0 is untrained, 1 the best end in the study. Trials: "
        "search + confirmation. In brackets: smallest and largest over seeds."
    )
    notes = "".join(f'<p class="quiet">{_text(text)}</p>' for text in (note, *setting_notes(result["methods"])))
    return f"{notes}{_table(['method', *heads[1:]], rows)}"


def _recommendations(result: Json) -> str:
    parameters, test = result["definitions"]["parameters"], test_metric(result)
    rows = [
        [
            _named(result, label),
            f'<td class="n">{row.end_text}</td><td class="n">{row.stop}</td>',
            f'<td class="n">{_dashed(banded(*row.quality))}</td>',
            *([] if test is None else [f'<td class="n">{test_text(row)}</td>']),
            f'<td class="run">{_text(row.run)}</td>',
        ]
        for label in result["methods"]
        for row in recommendation_rows(result, label)
    ]
    if not rows:
        return '<p class="quiet">Nothing to recommend yet.</p>'
    heads = [
        "method",
        f"{unit(parameters['cost'])} up to",
        "stop at round",
        parameters["metric"],
        *([test] if test else []),
        "run",
    ]
    free = any(row.inactive for label in result["methods"] for row in recommendation_rows(result, label))
    return _table(heads, rows) + (f'<p class="quiet">{ANY}</p>' if free else "")


def _dashed(text: str) -> str:
    """A band with an en dash, as the scripts of the page write it."""
    return re.sub(r"(?<=[\dkMGT])-(?=\d)", "\u2013", text)


def _ledger(result: Json) -> str:
    """What each label has spent."""
    spent = list(dict.fromkeys(name for method in result["methods"].values() for name in method["ledger"]))
    rows = [
        [
            _named(result, label),
            *(
                f"<td{_NUMBERS}>{number(count)}</td>"
                for count in (
                    *(method["ledger"].get(name, 0) for name in spent),
                    method["granted"]["trials"],
                    method["failed"],
                )
            ),
        ]
        for label, method in result["methods"].items()
    ]
    heads = ["method", *(name.replace("_", " ") for name in spent), "trials granted", "failed"]
    return _table(heads, rows)


def _named(result: Json, label: str) -> str:
    return f'<th scope="row"><span class="dot {styles(result["methods"])[label].name}"></span>{_text(label)}</th>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; all columns but those of `_WORDS` hold numbers."""
    head = "".join(f'<th scope="col"{_NUMBERS * (name not in _WORDS)}>{_text(name)}</th>' for name in heads)
    body = "".join(f"<tr>{chr(10).join(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _theory(result: Json) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in agreement(result))
    heading = '<h2>Theory and measurement</h2><p class="quiet">Relative differences, medians over configurations.</p>'
    return f"{heading}<ul>{items}</ul>" if items else ""


def _importance(result: Json) -> str:
    """How much each hyperparameter matters."""
    heads, cells = importance_cells(result)
    if not cells:
        return ""
    rows = [
        [
            _named(result, label),
            f"<td>{_text(name)}</td>",
            *(f"<td{_NUMBERS}>{text}</td>" for text in shares),
        ]
        for label, name, shares in cells
    ]
    table = _table(["method", "hyperparameter", *heads], rows)
    return f'<h2>Which hyperparameters matter</h2><p class="quiet">{_text(NOTE)}</p>{table}'


def _efforts(comparisons: Sequence[Json]) -> str:
    """Which label is ahead after how many trials, and where that changes."""
    lines = [
        order_text(comparison["a"], comparison["b"], comparison["efforts"])
        for comparison in comparisons
        if comparison["efforts"]
    ]
    shown = lines[:MOST_PAIRS]
    left_out = f"<p>{len(shown)} of {len(lines)} pairs: driftline compare has all.</p>" if shown != lines else ""
    return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in shown)}</ul>{left_out}" if lines else ""


def _comparisons(comparisons: Sequence[Json]) -> str:
    shown = (
        comparisons
        if len(comparisons) <= MOST_PAIRS
        else [comparison for comparison in comparisons if comparison["verdict"]][:MOST_PAIRS]
    )
    items = "".join(f"<li>{_text(comparison['why'])}</li>" for comparison in shown)
    left_out = (
        f"<p>{len(shown)} of {len(comparisons)} pairs: driftline compare has all.</p>" if shown != comparisons else ""
    )
    return f"<ul>{items}</ul>{left_out}" if comparisons else '<p class="quiet">One method: nothing to compare.</p>'
