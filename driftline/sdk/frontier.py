"""`Frontier`, the result of a study: what to run for which cost, as objects, a table, a picture, a page, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from driftline.errors import InvalidSpec, NotFound
from driftline.extras import optional_packages
from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve, unit
from driftline.results.show.advice import advice
from driftline.results.show.importance_rows import importance_rows
from driftline.results.show.number_text import banded, number
from driftline.results.show.recommendation_rows import RecommendationRow, recommendation_rows, recommendation_within
from driftline.results.show.text_table import table
from driftline.results.study_result import drawn
from driftline.sdk.compared_labels import ComparedLabels
from driftline.sdk.frames import frame
from driftline.study.directions import Metric, sign
from driftline.study.notebook import html_table, html_title
from driftline.study.trial_document import trial_document
from trainers import hint, shown
from trainers.own_files import put

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.axes import Axes
    from pandas import DataFrame

    from driftline.study.spec import Study


@dataclass(frozen=True)
class Recommendation:
    """What to run for a cost, and what quality to expect.

    Attributes:
        label: Label of the entry.
        configuration: Number of the configuration within its label.
        hyperparameters: Its values, by dotted name: ``client_lr``, ``server.momentum``.
        rounds: Rounds to train: stop after this one.
        cost: The most that training may cost, in the unit of the frontier's cost.
        quality: What to expect of this run, in the unit of the metric: its mean over its seeds (in the log for losses),
            corrected for the optimism of the choice.
        low: The smallest quality of this run over its seeds; equal to `quality` without a band.
        high: The largest quality of this run over its seeds; equal to `quality` without a band.
        phase: "confirmation"; or "search" if only the search has results, whose quality flatters.
        inactive: Names of hyperparameters that change nothing here: any other value gives the same curve.
        test: The test metric of this run, by which nothing was chosen, where `quality` is a validation metric.
    """

    label: str
    configuration: int
    hyperparameters: dict[str, Any]
    rounds: int
    cost: float
    quality: float
    low: float
    high: float
    phase: str
    inactive: tuple[str, ...] = ()
    test: float | None = None

    def _repr_html_(self) -> str:
        """HTML for notebooks: what to run, and what to expect."""
        facts = [("stop at round", str(self.rounds)), ("quality", banded(self.quality, self.low, self.high))]
        facts += [] if self.test is None else [("test", number(self.test))]
        rows = [
            (name, "any" if name in self.inactive else shown(value)) for name, value in self.hyperparameters.items()
        ]
        return html_title(self.label, f"configuration {self.configuration}, {self.phase}") + html_table(
            (), facts + rows
        )

    def trial(self, study: Study, *, seed: int = 0) -> dict[str, Any]:
        """The document of a trial that trains this configuration and stops after `rounds`.

        As JSON in a file, ``python -m trainers.run FILE`` runs it.

        Args:
            study: The study that the recommendation is from.
            seed: Seed of cohorts, batches and initial model.

        Raises:
            InvalidSpec: The study has no such label.
        """
        return trial_document(study, self.label, [self.hyperparameters], seed, phase="confirmation") | {
            "rounds": self.rounds
        }


class Frontier:
    """The frontiers of all labels of a study.

    Args:
        data: The document of frontier.json.
        curves: Returns the study's trials, for the learning curves of a page; None leaves these out.

    Attributes:
        data: The document of frontier.json: recommendations, frontiers with bands, areas, ledgers, definitions.
    """

    def __init__(self, data: dict[str, Any], curves: Callable[[], Sequence[TrialCurve]] | None = None) -> None:
        self.data = data
        self._curves = curves

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads the result from a frontier.json, or from an output folder that holds one.

        Raises:
            NotFound: There is no frontier.json, or it is of an older version, which defined results in another way.
            InvalidSpec: The file is not a frontier.json.
        """
        location = Path(path)
        file = location / "frontier.json" if location.is_dir() else location
        if not file.is_file():
            raise NotFound(f"no frontier.json at {location}: run a study into it first")
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            older = any("importance" not in method for method in data["methods"].values())
        except (ValueError, AttributeError, TypeError, KeyError):  # no JSON, or no object where there must be one
            raise InvalidSpec("path", f"must be a frontier.json or a folder that holds one, got {path}") from None
        if older:
            raise NotFound(f"{file} is of an older version: driftline.frontier(folder) computes it from the curves")
        return cls(data)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the study's order."""
        return tuple(self.data["methods"])

    @property
    def recommendations(self) -> list[Recommendation]:
        """The rows of the table: for each label what to run up to which cost, by increasing cost.

        A configuration that diverged later on every seed is left out.
        """
        return [
            self._recommendation(label, row, row.end)
            for label in self.labels
            for row in recommendation_rows(self.data, label)
            if row.configuration is not None
        ]

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """The reported configurations of all labels: ``label``, ``hyperparameters``, where each settles and ends.

        The other keys are those of ``configurations`` in frontier.json.
        """
        return [
            {"label": label, **row}
            for label, method in self.data["methods"].items()
            for row in method["configurations"]
        ]

    def warm_started(self, study: Study) -> Study:
        """A copy of the study that first tries what this result recommends.

        Each entry gets the recommendations for the same method and optimizers as starting points (`start`), after its
        own: at most 8, those for the largest costs first. The confirmed configurations become its `prior`. A value
        outside the entry's space moves to the nearest one inside. If the tasks differ and both can be built here, rates
        are multiplied by the ratio of their curvatures; measuring it takes some seconds.

        Args:
            study: The study to start.

        Raises:
            InvalidSpec: This result recommends nothing for any entry of the study.
        """
        from driftline.study.spec import Study
        from driftline.study.theory_spaces import curvature_ratio
        from driftline.study.warm_start import warm_started

        recommended: dict[str, dict[int, dict[str, Any]]] = {label: {} for label in self.labels}
        for row in reversed(self.recommendations):
            recommended[row.label].setdefault(row.configuration, row.hyperparameters)
        earlier = Study.from_json(self.data["specification"])
        good = {label: _good(method) for label, method in self.data["methods"].items()}
        rows = {label: list(by_number.values()) for label, by_number in recommended.items()}
        return warm_started(study, earlier, rows, good, curvature_ratio(earlier, study))

    def best(self, label: str | None = None, *, cost: float | None = None) -> Recommendation:
        """What to run for a cost: the last recommendation that costs no more.

        Args:
            label: A label; None takes the one whose frontier is best at this cost. That is no verdict: see `compare`.
            cost: The most that training may cost, in the unit of the frontier's cost (rounds, bytes, ...); the largest
                cost of the study by default.

        Raises:
            NotFound: No such label, nothing to recommend yet, or all of it diverged later.
            InvalidSpec: Nothing that is recommended is that cheap, or the cost is not a number.
        """
        if label is not None and label not in self.labels:
            raise NotFound(f"no label {shown(label)} in this study: {hint(label, self.labels)}")
        methods = {
            name: method
            for name, method in self.data["methods"].items()
            if label in (None, name) and method["recommendations"]
        }
        if not methods:
            raise NotFound(f"nothing to recommend for {label or 'any label'} yet: no trial with this metric has ended")
        parameters, last = self.data["definitions"]["parameters"], self.data["scale"]["last"]
        limit = last if cost is None else cost
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise InvalidSpec("cost", f"must be a number of {unit(parameters['cost'])}, got {shown(cost)}")
        rows = {name: recommendation_within(self.data, name, limit) for name in methods}
        cheap = {name: row for name, row in rows.items() if row is not None}
        if not cheap:
            least = number(min(method["recommendations"][0]["cost"] for method in methods.values()))
            raise InvalidSpec("cost", f"must be at least {least} {unit(parameters['cost'])}, got {shown(cost)}")
        runnable = {name: row for name, row in cheap.items() if row.configuration is not None} or cheap
        direction = sign(Metric(parameters["metric"], parameters["direction"]))
        best = max(runnable, key=lambda name: direction * cheap[name].quality[0])
        return self._recommendation(best, cheap[best], limit)

    def _recommendation(self, label: str, row: RecommendationRow, cost: float) -> Recommendation:
        if row.configuration is None:
            raise NotFound(f"what {label} recommends up to a cost of {number(cost)} diverged later on every seed")
        quality, low, high = row.quality
        return Recommendation(
            label=label,
            configuration=row.configuration["configuration"],
            hyperparameters=dict(row.configuration["hyperparameters"]),
            rounds=row.stop,
            cost=cost,
            quality=quality,
            low=low,
            high=high,
            phase=self.data["methods"][label]["reported"]["phase"],
            inactive=tuple(sorted(row.inactive)),
            test=row.test,
        )

    def advice(self, cost: float | None = None, labels: Sequence[str] = ()) -> str:
        """One sentence: what to run within a cost, what to expect, and in how many seeds and searches it is better.

        Args:
            cost: The most that training may cost; the largest cost of the study by default.
            labels: Only these; all by default.
        """
        return advice(self.data, self.data["scale"]["last"] if cost is None else cost, labels)

    def importance(self) -> list[dict[str, Any]]:
        """How much each hyperparameter matters, the largest shares of each label first.

        Returns:
            ``{"label", "trials", "hyperparameter", "speed", "along": [{"cost", "share"}], "quality"}`` for each. Shares
            are of what sets the best quarter of the label's search trials apart: in the quality within the largest
            cost, within some costs along the frontier, and in speed (the mean over log10 cost). None where there are
            too few trials to tell. Values that change nothing (see `Recommendation.inactive`) do not count.
        """
        return importance_rows(self.data)

    def to_frame(self) -> DataFrame:
        """The frontiers as a pandas DataFrame: a row for each cost at which a label's quality changes.

        Columns: ``label``, ``cost``, and ``quality`` with its band ``low`` and ``high``, in the unit of the metric.

        Raises:
            DriftlineError: pandas is not installed.
        """
        columns = ("cost", "quality", "low", "high")
        rows = [(label, row) for label, method in self.data["methods"].items() for row in method["frontier"]]
        return frame({"label": [label for label, _ in rows]} | {key: [row[key] for _, row in rows] for key in columns})

    def table(self) -> str:
        """What to run for which cost, for every label, as text of 80 columns."""
        return table(self.data)

    def compare(self, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets: ``verdict`` is the better method or None, ``why`` says both claims.

        See `driftline.results.comparison` for the two claims that it may make.

        Raises:
            NotFound: No such label.
            InvalidSpec: The same label twice.
        """
        return ComparedLabels(compare(self.data, first, second))

    @overload
    def plot(self, path: str | Path, *, cross_fitted: bool = False) -> Path: ...

    @overload
    def plot(self, *, ax: Axes, cross_fitted: bool = False) -> None: ...

    def plot(
        self, path: str | Path | None = None, *, ax: Axes | None = None, cross_fitted: bool = False
    ) -> Path | None:
        """Draws the frontiers into a file, or into axes of matplotlib.

        Args:
            path: ``.png``, ``.svg`` and ``.pdf`` are pictures for print, ``.html`` is a page that works offline.
            ax: The axes to draw into, if no path is given.
            cross_fitted: In a picture, also draw the cross-fitted qualities, which areas and comparisons use, dotted.

        Returns:
            The path.

        Raises:
            InvalidSpec: The path has another ending or its folder does not exist; or both or neither are given.
            DriftlineError: A picture is asked for, and matplotlib is not installed.
        """
        if (path is None) == (ax is None):
            raise InvalidSpec("path", "must be given, or ax, and not both")
        if path is None:
            from driftline.results.show.picture import draw

            draw(ax, self.data, cross_fitted=cross_fitted)
            return None
        page = Path(path).suffix.lower() in (".html", ".htm")
        curves = self._curves() if page and self._curves else ()
        with optional_packages("name a file .html"):
            return _put(Path(path), drawn(str(path), self.data, curves, cross_fitted=cross_fitted))

    def save(self, path: str | Path) -> Path:
        """Writes the document as JSON; returns the path."""
        return _put(Path(path), (json.dumps(self.data, indent=2) + "\n").encode())

    def __repr__(self) -> str:
        return f"Frontier({self.data['study']!r}, labels={list(self.labels)})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the picture and the table."""
        import base64
        import html

        from driftline.results.show.picture import frontier_picture

        picture = base64.b64encode(frontier_picture(self.data, dpi=110)).decode("ascii")
        return f'<img src="data:image/png;base64,{picture}" alt="frontier"><pre>{html.escape(self.table())}</pre>'


def _good(method: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Configurations of a label that were good: all that were confirmed, or the Pareto set of a search, best first."""
    rows = [row for row in method["configurations"] if not row["diverged"]]
    if method["reported"]["phase"] == "search":
        rows = [row for row in rows if row["pareto"]]
    return [row["hyperparameters"] for row in sorted(rows, key=lambda row: not row["pareto"])]


def _put(file: Path, data: bytes) -> Path:
    if not file.parent.is_dir():
        raise InvalidSpec(
            "path", f"must be in a folder that exists, got {str(file)!r}: make {str(file.parent)!r} first"
        )
    put(file, data)
    return file
