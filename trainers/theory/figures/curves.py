"""The data of a figure, and the sweeps that the papers' figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainers.theory.interval import Curvature
from trainers.theory.rates import rate_from_log
from trainers.theory.spectrum import log_distortion
from trainers.theory.tradeoff import tradeoff_point
from trainers.theory.weights import Weights, last_step

Array = NDArray[np.float64]
MOST_STEPS = 10**6
POINTS = 160
SERVER_TITLES = {"sgd": "no momentum", "nesterov": "Nesterov", "heavy_ball": "heavy ball"}


@dataclass(frozen=True)
class Curve:
    """One line of a panel.

    Args:
        label: its legend.
        x: (points,) horizontal values.
        y: (points,) vertical values.
        columns: further numbers of each point for the CSV file: name -> (points,) values or one number.
        style: index of colour and dash; curves with the same style look the same in all panels.
        width: in points; above 2 it is drawn as a solid pale band, under other curves.
        end: whether to mark its last point.
        marked: whether to draw markers along it, for noisy curves; the curve is then solid.
    """

    label: str
    x: Array
    y: Array
    columns: dict[str, Array | float | str] = field(default_factory=dict)
    style: int = 0
    width: float = 1.5
    end: bool = False
    marked: bool = False


@dataclass(frozen=True)
class ReferenceLine:
    """A horizontal reference line; the lines of a panel have different dashes."""

    y: float
    label: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: title of the panel.
        curves: in drawing order.
        lines: horizontal references.
    """

    title: str
    curves: Sequence[Curve]
    lines: Sequence[ReferenceLine] = ()


@dataclass(frozen=True)
class FigureData:
    """A whole figure, before any drawing.

    Args:
        name: such as "A2".
        caption: what it shows.
        panels: in reading order.
        x_label: for all panels.
        y_label: for all panels.
        x_range: for all panels; None follows from the data.
        y_range: for all panels; None follows from the data.
        columns: panels per row.
        x_name: name of the CSV column.
        y_name: name of the CSV column.
    """

    name: str
    caption: str
    panels: Sequence[Panel]
    x_label: str = "convergence rate"
    y_label: str = "suboptimality"
    x_range: tuple[float, float] | None = (0.0, 1.01)
    y_range: tuple[float, float] | None = (0.0, 1.01)
    columns: int = 2
    x_name: str = "rate"
    y_name: str = "suboptimality"


def step_counts(most: int = MOST_STEPS, around: Iterable[float] = ()) -> list[int]:
    """Numbers of local steps from 1 to `most` on a log scale, denser around the given ones."""
    counts = set(np.unique(np.round(np.geomspace(1, most, POINTS)).astype(int)).tolist())
    for center in around:
        counts.update(range(max(1, int(center) - 6), int(center) + 8))
    return sorted(counts)


def trade_off(
    label: str,
    curvature: Curvature,
    settings: Iterable[tuple[float, Weights]],
    server: str = "sgd",
    prox: float = 0.0,
    style: int = 0,
    width: float = 1.5,
    end: bool = False,
) -> Curve:
    """The curve through the trade-off points of (client_lr, gradient weights) pairs, from the closed forms.

    Args:
        label: of the curve.
        curvature: bounds of the Hessians.
        settings: pairs in drawing order.
        server: server optimizer.
        prox: proximal strength.
        style: of the curve.
        width: of the curve.
        end: of the curve.
    """
    pairs = list(settings)
    points = [tradeoff_point(curvature, client_lr, weights, server, prox) for client_lr, weights in pairs]
    return Curve(
        label,
        np.array([point.rate for point in points]),
        np.array([point.suboptimality for point in points]),
        {
            "L": curvature.smoothness,
            "server": server,
            "prox": prox,
            "client_lr": np.array([client_lr for client_lr, _ in pairs]),
            "local_steps": np.array([weights.local_steps for _, weights in pairs], float),
            "log_kappa": np.array([point.log_condition_number for point in points]),
        },
        style,
        width,
        end,
    )


def simulated_maml(
    label: str,
    spectrum: Array,
    client_lr: float,
    steps: Sequence[int],
    server: str = "sgd",
    prox: float = 0.0,
    style: int = 0,
) -> Curve:
    """The curve of MAML on one random Hessian ([A] D.1): only the last step counts, for several numbers of steps.

    Args:
        label: of the curve.
        spectrum: (d,) eigenvalues, ascending, from strong convexity to smoothness.
        client_lr: client rate below 1 / (smoothness + prox).
        steps: local steps.
        server: server optimizer.
        prox: proximal strength.
        style: of the curve.
    """
    log_kappas, heights = [], []
    for count in steps:
        distortions = log_distortion(spectrum, client_lr, last_step(count), prox)[1]
        logs = distortions + np.log(spectrum)
        log_kappas.append(float(logs.max() - logs.min()))
        heights.append(float(np.tanh((distortions[0] - distortions[-1]) / 4)))
    logs_of_kappa = np.array(log_kappas)
    columns: dict[str, Array | float | str] = {
        "L": float(spectrum[-1]),
        "server": server,
        "prox": prox,
        "client_lr": client_lr,
        "local_steps": np.array(steps, float),
        "log_kappa": logs_of_kappa,
    }
    return Curve(label, rate_from_log(server, logs_of_kappa), np.array(heights), columns, style)


FigureMaker = Callable[[], FigureData]
