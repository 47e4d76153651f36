"""`Frontier`, the result of a study: as a table, a picture, a page, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.errors import InvalidSpec, NotFound
from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve
from driftline.results.show.text_table import table
from driftline.study import version_0_1

if TYPE_CHECKING:
    from typing import Self


class Frontier:
    """The frontiers of all labels of a study.

    Args:
        data: The document of frontier.json.
        curves: Returns the study's trials, for the learning curves of a page; None leaves these out.

    Attributes:
        data: The document of frontier.json: points, frontiers with bands, hypervolumes, ledgers, definitions.
    """

    def __init__(self, data: dict[str, Any], curves: Callable[[], Sequence[TrialCurve]] | None = None) -> None:
        self.data = data
        self._curves = curves

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads the result from a frontier.json, or from an output folder that holds one.

        Raises:
            NotFound: There is no frontier.json.
        """
        place = Path(path)
        file = place / "frontier.json" if place.is_dir() else place
        if not file.is_file():
            raise NotFound(f"no frontier.json at {place}: run a study into it first")
        return cls(version_0_1.frontier(json.loads(file.read_text(encoding="utf-8"))))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the study's order."""
        return tuple(self.data["methods"])

    def table(self) -> str:
        """All frontiers as text, 80 columns wide."""
        return table(self.data)

    def compare(self, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets, paired over seeds: ``verdict`` is a label or None, ``why`` explains it.

        Raises:
            NotFound: No such label.
        """
        return compare(self.data, first, second)

    def plot(self, path: str | Path) -> Path:
        """Draws the frontiers into a file.

        Args:
            path: ``.png`` is a picture for print, ``.html`` a page that works offline.

        Returns:
            The path.

        Raises:
            InvalidSpec: The path has another ending.
        """
        file = Path(path)
        if file.suffix.lower() == ".png":
            from driftline.results.show.picture import frontier_png

            file.write_bytes(frontier_png(self.data))
        elif file.suffix.lower() in (".html", ".htm"):
            from driftline.results.show.page import frontier_html

            file.write_text(frontier_html(self.data, self._curves() if self._curves else ()), encoding="utf-8")
        else:
            raise InvalidSpec("path", f"must end in .png or .html, got {str(path)!r}")
        return file

    def save(self, path: str | Path) -> Path:
        """Writes the document as JSON; returns the path."""
        file = Path(path)
        file.write_text(json.dumps(self.data, indent=2) + "\n", encoding="utf-8")
        return file

    def __repr__(self) -> str:
        return f"Frontier({self.data['study']!r}, labels={list(self.labels)})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the picture and the table."""
        import base64
        import html

        from driftline.results.show.picture import frontier_png

        picture = base64.b64encode(frontier_png(self.data, dpi=110)).decode("ascii")
        return f'<img src="data:image/png;base64,{picture}" alt="frontier"><pre>{html.escape(self.table())}</pre>'
