"""The result as plain text: a summary of all labels, then the recommendations of each, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.results.comparison import study_headline
from driftline.results.curves import unit
from driftline.results.own_settings import setting_notes
from driftline.results.show.axes import search_only, time_text
from driftline.results.show.escaped_text import escaped
from driftline.results.show.number_text import banded, number
from driftline.results.show.recommendation_rows import final, recommendation_rows, test_metric, test_text
from driftline.results.show.theory_text import agreement
from driftline.results.space_edges import space_edges

Json = Mapping[str, Any]
ANY = "any: another value gives the same curve, to the bit."
_WIDTH = 80


def table(result: Json) -> str:
    """All labels' recommendations as text.

    Args:
        result: The document from `frontier_document`.

    Returns:
        Lines, the last without a line break: metric and cost; a row for each label (area and final quality of the
        frontier with their bands over seeds, trials, diverged, failed if any has); on quadratic tasks the difference
        between theory and measurement; then for every label what to run for which cost; recommended values at the edge
        of their space; and what the study says about its methods.
    """
    parameters = result["definitions"]["parameters"]
    metric, cost = parameters["metric"], parameters["cost"]
    title = f"{result['study']}: {metric} ({parameters['direction']}) against {cost}{time_text(result)}"
    lines = [*textwrap.wrap(title, _WIDTH, break_on_hyphens=False, break_long_words=False), ""]
    note = f"Area: mean quality over log10 {cost}, 0 is untrained, 1 the best end. Trials: search + confirmation."
    lines += textwrap.wrap(f"{note} {_seeds(result)}", _WIDTH, break_on_hyphens=False)
    lines += ["", *_columns(summary_rows(result["methods"], metric), right=(3, 4, 5))]
    remarks = [*_shared(result["methods"]), *setting_notes(result["methods"])]
    lines += [row for line in remarks for row in textwrap.wrap(line, _WIDTH)]
    if compared := agreement(result):
        lines += ["", "Theory against measurement, relative differences (medians):"]
        lines += [
            row
            for line in compared
            for row in textwrap.wrap(line, _WIDTH - 2, initial_indent="  ", subsequent_indent="    ")
        ]
    for label in result["methods"]:
        lines += ["", *_recommendations(result, label, metric, cost)]
    if any(row.inactive for label in result["methods"] for row in recommendation_rows(result, label)):
        lines += ["", ANY]
    if edges := space_edges(result):
        lines += ["", "At the edge of their space, where a wider one may hold better values:"]
        lines += [row for line in edges for row in textwrap.wrap(line, _WIDTH - 2, initial_indent="  ")]
    if sentence := study_headline(result):
        lines += ["", *textwrap.wrap(sentence, _WIDTH, break_on_hyphens=False)]
    return "\n".join(escaped(line.rstrip()) for line in lines)


def area_text(method: Json) -> str:
    """A label's area with its band, or a dash."""
    band = method["area_band"]
    if band is None:
        return "-"
    low, high = f"{band['low']:.3f}", f"{band['high']:.3f}"
    return f"{method['area']:.3f}" + ("" if low == high else f" ({low}-{high})")


def trials_text(method: Json) -> str:
    """Search trials + confirmation trials of a label, as far as they have begun: ``48 + 48``."""
    spent = method["ledger"]
    return f"{spent['search_trials']} + {spent['confirmation_trials']}"


def _seeds(result: Json) -> str:
    if result["deterministic"]:
        return "Nothing is random: one run stands for all seeds."
    searched = search_only(result)
    if len(searched) == sum(bool(method["frontier"]) for method in result["methods"].values()):
        return "From the search itself, which flatters: no fresh seeds have judged it."
    from_search = f" {', '.join(searched)}: from the search itself, which flatters." if searched else ""
    return f"In brackets: smallest and largest over seeds.{from_search}"


def _shared(methods: Json) -> list[str]:
    """How much of the work of each label was done once for several trials."""
    spent = {label: method["ledger"] for label, method in methods.items() if method["ledger"].get("shared_gradients")}
    return [
        f"{label}: {number(ledger['client_gradients'] - ledger['shared_gradients'])} of "
        f"{number(ledger['client_gradients'])} client gradients were computed; the others are shared."
        for label, ledger in spent.items()
    ]


def summary_rows(methods: Json, metric: str) -> list[list[str]]:
    """The table of all labels, its heads first: area, final quality, trials, and how many diverged and failed."""
    failed = any(method["failed"] for method in methods.values())
    rows = [["label", "area", f"final {metric}", "trials", "diverged", *(["failed"] if failed else [])]]
    for label, method in methods.items():
        row = final(method)
        rows.append(
            [
                label,
                area_text(method),
                banded(row["quality"], row["low"], row["high"]) if row else "none",
                trials_text(method),
                str(method["diverged"]),
                *([str(method["failed"])] if failed else []),
            ]
        )
    return rows


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Rows as aligned columns; cells of the first one are shortened if they would be too wide."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    gap = 2 if 8 + sum(widths[1:]) + 2 * (len(widths) - 1) <= _WIDTH else 1
    widths[0] = max(8, min(widths[0], _WIDTH - sum(widths[1:]) - gap * (len(widths) - 1)))
    return [
        (" " * gap).join(
            cell.rjust(size) if index in right else _cut(cell, size).ljust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _cut(text: str, size: int) -> str:
    """Shortened in its middle, because the ends of labels tell them apart."""
    end = size // 2
    return text if len(text) <= size else f"{text[: size - 1 - end]}~{text[len(text) - end :]}"


def _seeds_of_a_run(method: Json) -> str:
    """On how many seeds each configuration ran: ``6 seeds``, or ``6 searches, 6 seeds each``."""
    searches = method["reported"]["searches"]
    counts = sorted({row["seeds"] for row in method["configurations"]}) or [len(method["reported"]["seeds"])]
    count = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]}-{counts[-1]}"
    seeds = f"{count} seed{'s' if counts[-1] > 1 else ''}"
    return f"{searches} searches, {seeds} each" if searches > 1 else seeds


def _recommendations(result: Json, label: str, metric: str, cost: str) -> list[str]:
    reported = result["methods"][label]["reported"]
    rows = recommendation_rows(result, label)
    if not rows:
        return [f"{label}: nothing to recommend yet"]
    heading = f"{label}: recommendations, {reported['phase']}, {_seeds_of_a_run(result['methods'][label])}"
    lines = textwrap.wrap(heading, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    test = test_metric(result)
    heads = [f"{unit(cost)} up to", "stop at round", metric, *([] if test is None else [test])]
    cells = [
        [row.end_text, str(row.stop), banded(*row.quality), *([] if test is None else [test_text(row)])] for row in rows
    ]
    sizes = [max(len(row[index]) for row in [heads, *cells]) for index in range(len(heads))]
    lead = "".join(f"  {{:{'>' if index < 2 else '<'}{size}}}" for index, size in enumerate(sizes)) + "  "
    lines.append(lead.format(*heads) + "run")
    for row, cell in zip(rows, cells, strict=True):
        first = lead.format(*cell)
        texts = textwrap.wrap(row.run, max(_WIDTH - len(first), 20)) or [""]
        lines += [first + texts[0], *(" " * len(first) + text for text in texts[1:])]
    return lines
