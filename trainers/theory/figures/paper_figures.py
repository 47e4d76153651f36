"""The papers' mathematical figures as data: A1 to A5, A7 to A10 of [A], B1 of [B].

[A] Charles & Konecny, "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning"; [B] its longer
version. Strong convexity is always 1; values that the papers do not give are chosen as stated in the captions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainers.theory.cusp import cusp
from trainers.theory.families import random_spectrum
from trainers.theory.figures.continuum_runs import figure_b1
from trainers.theory.figures.curves import (
    SERVER_TITLES,
    Curve,
    FigureData,
    FigureMaker,
    Panel,
    ReferenceLine,
    simulated_maml,
    step_counts,
    trade_off,
)
from trainers.theory.interval import Curvature
from trainers.theory.rates import SERVERS
from trainers.theory.tradeoff import one_shot_suboptimality
from trainers.theory.weights import all_steps, last_step

Array = NDArray[np.float64]
SLOW_RATE = 0.001  # client rate of Figures 5, 7, 8, 10
DIMENSIONS = (5, 100)
BAND_WIDTHS = (9.0, 6.0, 3.5, 1.5)  # for curves that coincide


def figure_a1() -> FigureData:
    """[A] Figure 1: many local steps or a large client rate, L = 5 and 50."""
    steps = [(0.01, all_steps(count)) for count in step_counts(10**4)]
    curves = [trade_off(f"L = {L}", Curvature(1, L), steps, style=style, end=True) for style, L in enumerate((5, 50))]
    rates = [
        trade_off(
            f"L = {L}",
            Curvature(1, L),
            [(float(share) / L, all_steps(100)) for share in (0, *np.geomspace(1e-5, 0.999999, 200))],
            style=style,
            end=True,
        )
        for style, L in enumerate((5, 50))
    ]
    panels = [
        Panel("client rate 0.01, 1 to 10,000 local steps", curves),
        Panel("100 local steps, client rate 0 to 1/L", rates),
    ]
    return FigureData("A1", "FedAvg: what more local steps and what a larger client rate can reach.", panels)


def figure_a2() -> FigureData:
    """[A] Figure 2: server optimizers at client_lr = 1 / (2 L), for L of 2 to 1000 (chosen)."""
    panels = []
    for L in (2, 5, 10, 50, 100, 1000):
        settings = [(0.5 / L, all_steps(count)) for count in step_counts()]
        curves = [
            trade_off(SERVER_TITLES[server], Curvature(1, L), settings, server, style=style)
            for style, server in enumerate(SERVERS)
        ]
        panels.append(Panel(f"L = {L}", curves))
    return FigureData("A2", "FedAvg with three server optimizers, client rate 1 / (2 L).", panels, columns=3)


def figure_a3() -> FigureData:
    """[A] Figure 3: proximal strengths on one curve, L = 10, client_lr = 0.5 / (L + prox)."""
    curves = [
        trade_off(
            f"prox = {prox:g}",
            Curvature(1, 10),
            [(0.5 / (10 + prox), all_steps(count)) for count in step_counts()],
            prox=prox,
            style=style,
            width=BAND_WIDTHS[style],
            end=True,
        )
        for style, prox in enumerate((0.0, 0.5, 1.0, 5.0))
    ]
    caption = "FedProx visits a part of FedAvg's curve: the markers are the ends after a million local steps, L = 10."
    return FigureData("A3", caption, [Panel("client rate 0.5 / (L + prox)", curves)], columns=1)


def figure_a4() -> FigureData:
    """[A] Figure 4: MAML within the theory's range is a short part of FedAvg's curve, L = 10."""
    ten, panels = Curvature(1, 10), []
    for server in SERVERS:
        maml = [(0.5 / (10 * count), last_step(count)) for count in step_counts()]
        fedavg = [(SLOW_RATE, all_steps(count)) for count in step_counts()]
        curves = [
            trade_off("MAML, client rate 1 / (2 L K)", ten, maml, server, style=1, width=6.0),
            trade_off("FedAvg, client rate 0.001", ten, fedavg, server, style=0),
        ]
        panels.append(Panel(SERVER_TITLES[server], curves))
    return FigureData("A4", "MAML within the range of the theory, beside FedAvg, L = 10.", panels, columns=3)


def figure_a5() -> FigureData:
    """[A] Figure 5: simulated MAML in 5 and 100 dimensions, L = 10."""
    panels = [
        Panel(f"random Hessian, d = {dimension}", *_simulated(10, "sgd", 0.0, (dimension,), True))
        for dimension in DIMENSIONS
    ]
    return FigureData("A5", "MAML beyond the range of the theory, client rate 0.001, L = 10.", panels)


def figure_a7() -> FigureData:
    """[A] Figure 7: like Figure 5, for L of 2, 5, 10, 100."""
    panels = [Panel(f"L = {L}", *_simulated(L, "sgd", 0.0, DIMENSIONS)) for L in (2, 5, 10, 100)]
    return FigureData("A7", "MAML and FedAvg for several L, client rate 0.001.", panels)


def figure_a8() -> FigureData:
    """[A] Figure 8: like Figure 5, for three server optimizers, L = 10."""
    panels = [Panel(SERVER_TITLES[server], *_simulated(10, server, 0.0, DIMENSIONS)) for server in SERVERS]
    return FigureData("A8", "MAML and FedAvg with three server optimizers, L = 10.", panels, columns=3)


def figure_a9() -> FigureData:
    """[A] Figure 9: MAML at client_lr = 1e-7: prox changes nothing, L = 10."""
    strengths = (0.0, 0.5, 1.0, 5.0)
    curves = [
        trade_off(
            f"prox = {prox:g}",
            Curvature(1, 10),
            [(1e-7, last_step(count)) for count in step_counts()],
            prox=prox,
            style=style,
            width=BAND_WIDTHS[style],
            end=prox == strengths[-1],
        )
        for style, prox in enumerate(strengths)
    ]
    caption = "MAML with proximal terms, client rate 1e-7, 1 to 1,000,000 steps, L = 10: the four curves coincide."
    return FigureData("A9", caption, [Panel("", curves)], x_range=(0.55, 0.85), y_range=(0.0, 0.25), columns=1)


def figure_a10() -> FigureData:
    """[A] Figure 10: like Figure 5, for the proximal strengths of its panels and of its caption, L = 10."""
    strengths = (0.0, 0.5, 1.0, 5.0, 10.0)
    panels = [Panel(f"prox = {prox:g}", *_simulated(10, "sgd", prox, DIMENSIONS)) for prox in strengths]
    return FigureData("A10", "A proximal term shortens FedAvg's curve and leaves MAML's, L = 10.", panels)


def _simulated(
    smoothness: float, server: str, prox: float, dimensions: Sequence[int], limit: bool = False
) -> tuple[list[Curve], list[ReferenceLine]]:
    """FedAvg and simulated MAML at the slow client rate, with the height of one-shot averaging."""
    curvature = Curvature(1, smoothness)
    counts = step_counts(around=[cusp(curvature, SLOW_RATE, prox).cusp_at])
    curves = [trade_off("FedAvg", curvature, [(SLOW_RATE, all_steps(k)) for k in counts], server, prox)]
    if limit:
        settings = [(SLOW_RATE, last_step(count)) for count in counts]
        curves.append(trade_off("MAML, dense spectrum", curvature, settings, server, prox, style=3))
    generator = np.random.default_rng(0)
    for style, dimension in enumerate(DIMENSIONS, start=1):
        spectrum = random_spectrum(curvature, dimension, generator)
        if dimension in dimensions:
            label = f"MAML, d = {dimension}"
            curves.append(simulated_maml(label, spectrum, SLOW_RATE, counts, server, prox, style))
    return curves, [ReferenceLine(one_shot_suboptimality(curvature), "one-shot averaging")]


FIGURES: dict[str, FigureMaker] = {
    "A1": figure_a1,
    "A2": figure_a2,
    "A3": figure_a3,
    "A4": figure_a4,
    "A5": figure_a5,
    "A7": figure_a7,
    "A8": figure_a8,
    "A9": figure_a9,
    "A10": figure_a10,
    "B1": figure_b1,
}
