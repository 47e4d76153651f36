"""Writes a figure: its data as CSV, its drawing as PNG and SVG."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from trainers.own_files import put
from trainers.theory.figures.curves import Curve, FigureData


def write(figure: FigureData, folder: Path) -> list[Path]:
    """Writes NAME.csv, NAME.png and NAME.svg into a folder, which is created if needed.

    Args:
        figure: the figure.
        folder: the folder.

    Returns:
        The three paths.
    """
    from trainers.theory.figures.draw import save

    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{figure.name}.csv"
    write_table(figure, table)
    pictures = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
    save(figure, pictures)
    return [table, *pictures]


def write_table(figure: FigureData, path: Path) -> None:
    """Writes one row per point: panel, curve, settings and coordinates, with seven digits."""
    names = list(dict.fromkeys(name for panel in figure.panels for curve in panel.curves for name in curve.columns))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["panel", "curve", *names, figure.x_name, figure.y_name])
    for panel in figure.panels:
        for curve in panel.curves:
            writer.writerows([panel.title, curve.label, *row] for row in _rows(curve, names))
    put(path, text.getvalue().encode())


def _rows(curve: Curve, names: list[str]) -> list[list[str]]:
    columns = [np.broadcast_to(np.asarray(curve.columns.get(name, "")), curve.x.shape) for name in names]
    return [[_text(value) for value in row] for row in zip(*columns, curve.x, curve.y, strict=True)]


def _text(value: float | str) -> str:
    return str(value) if isinstance(value, str) else f"{float(value):.7g}"
