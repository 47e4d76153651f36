"""A picture of a user's data: sizes and labels by client."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from driftline.results.show.palette import styles

if TYPE_CHECKING:
    from trainers.data_description import Description

_CLIENTS = 60  # most bars; of more clients, these are spread evenly from the largest to the smallest
_LABELS = 8  # most colours; beyond, the rarest labels share one
_GREY = "#BBBBBB"


def picture(summary: Description, kind: str) -> bytes:
    """Sizes of the clients, largest first, and the mixture of labels of each.

    Args:
        summary: The data.
        kind: "png", "svg" or "pdf".
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    order = np.argsort(-summary.sizes, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(_CLIENTS, len(order))).round().astype(int))]
    mixed = summary.counts.shape[1] > 0
    figure = Figure(figsize=(7.2, 4.8 if mixed else 2.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2 if mixed else 1, sharex=True, squeeze=False)[:, 0]
    places = np.arange(len(shown))
    axes[0].bar(places, summary.sizes[shown], color="#4D4D4D", width=0.85)
    axes[0].set_ylabel("training examples")
    part = "" if len(shown) == len(order) else f", {len(shown)} of them shown"
    axes[0].set_title(f"{len(order)} clients, largest first{part}", fontsize=10)
    if mixed:
        shares = summary.counts[shown] / summary.counts[shown].sum(1, keepdims=True)
        common = np.argsort(-summary.counts.sum(0), kind="stable")
        named = np.sort(common[: _LABELS if len(common) <= _LABELS else _LABELS - 1])
        bottom = np.zeros(len(shown))
        look = styles(summary.labels[label] for label in named.tolist())
        for label in named.tolist():
            name = summary.labels[label]
            axes[1].bar(places, shares[:, label], 0.85, bottom, color=look[name].colour, label=name)
            bottom += shares[:, label]
        if len(common) > len(named):
            axes[1].bar(places, 1 - bottom, 0.85, bottom, color=_GREY, label=f"{len(common) - len(named)} others")
        axes[1].set_ylabel("share of labels")
        axes[1].set_ylim(0, 1)
        axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, frameon=False)
    axes[-1].set_xlabel("client")
    axes[-1].set_xticks([])
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=150)
    return content.getvalue()
