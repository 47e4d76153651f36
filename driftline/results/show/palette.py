"""Colours, markers and dashes that colour-blind readers, and all in grey print, can tell apart (Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#8C6D1F")
_ON_DARK = ("#3D9BE0", "#F07A33", "#22B98D", "#DE93C0", "#A3DBFA", "#F5B73D", "#B8B8B8", "#C4A04A")
_MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
)
_DASHES = (("-", ""), ((0, (5, 2)), "9 4"), ((0, (6, 2, 1, 2)), "10 4 2 4"))


@dataclass(frozen=True)
class Style:
    """How a label is drawn, by matplotlib and in a page.

    Attributes:
        colour: ``#RRGGBB``.
        name: Its name in `stylesheet`.
        marker: matplotlib's name.
        symbol: Name of the same marker in a page.
        line: matplotlib's line style.
        dash: The same dashes in SVG.
    """

    colour: str
    name: str
    marker: str
    symbol: str
    line: object
    dash: str


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """A style for each label, by its position, so that a label looks the same in every figure of a study.

    With more labels than colours, the colours repeat with other dashes.
    """
    return {
        label: Style(
            _COLOURS[index % len(_COLOURS)],
            f"c{index % len(_COLOURS)}",
            *_MARKERS[index % len(_MARKERS)],
            *_DASHES[index // len(_COLOURS) % len(_DASHES)],
        )
        for index, label in enumerate(labels)
    }


def stylesheet() -> str:
    """CSS that sets ``--c`` to the colour of a style's class, lighter on a dark screen."""
    light, dark = (
        "".join(f".c{index}{{--c:{colour}}}" for index, colour in enumerate(colours))
        for colours in (_COLOURS, _ON_DARK)
    )
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
