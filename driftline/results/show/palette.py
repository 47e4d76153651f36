"""Colours, markers and dashes that colour-blind readers, and all in grey print, can tell apart (Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#8C6D1F")
_MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
)
_DASHES = (("-", "solid"), ((0, (5, 2)), "dash"), ((0, (6, 2, 1, 2)), "dashdot"))


@dataclass(frozen=True)
class Style:
    """How a label is drawn, in matplotlib and in plotly.

    Attributes:
        colour: ``#RRGGBB``.
        marker: matplotlib's name.
        symbol: plotly's name of the same marker.
        line: matplotlib's line style.
        dash: plotly's name of the same dashes.
    """

    colour: str
    marker: str
    symbol: str
    line: object
    dash: str

    def translucent(self, alpha: float) -> str:
        """The colour as ``rgba(...)`` for plotly."""
        red, green, blue = (int(self.colour[at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha:g})"


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """A style for each label, by its position, so that a label looks the same in every figure of a study.

    With more labels than colours, the colours repeat with other dashes.
    """
    return {
        label: Style(
            _COLOURS[index % len(_COLOURS)],
            *_MARKERS[index % len(_MARKERS)],
            *_DASHES[index // len(_COLOURS) % len(_DASHES)],
        )
        for index, label in enumerate(labels)
    }
