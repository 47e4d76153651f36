"""Presets: a figure or table of a paper as studies at two scales, and statements that decide whether it holds.

    figure: "[B] table 1"
    statement: FedGA ends above SCAFFOLD, and SCAFFOLD above FedAvg, where every client holds one class.
    study: {batch_size: 20, methods: [{name: fedavg, ...}, ...], ...}      # what both scales share
    small: {task: {name: mnist_by_writer, ...}, budget: {...}}             # for two cores and the data at hand
    full: {task: {name: data, path: fed_emnist, ...}, budget: {...}}       # the paper's own
    shows:
      - {ahead: [fedga, scaffold], at: 1}
      - {level: [fedga, fedavg], within: 0.05, panels: [iid]}

`small` and `full` are laid over `study`: mappings key by key, everything else replaces. Each may have `panels`, names
with what is laid over it in turn; each panel is then a study of its own. `driftline.results.statements` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field as Key
from pydantic import JsonValue, model_validator

from driftline.errors import InvalidSpec, NotFound
from driftline.study.examples import paper_texts
from driftline.study.spec import Study
from driftline.study.validation import Real, Section
from driftline.study.yaml_files import parse
from trainers import hint, shown

Scale = Literal["small", "full"]
SCALES: tuple[Scale, ...] = ("small", "full")

UNTRAINED = "untrained"
"""In a statement, the untrained model in place of a label."""

Pair = Annotated[list[str], Key(min_length=2, max_length=2)]

_FORMS: Mapping[str, tuple[str, ...]] = {
    "ahead": ("within", "at", "quality", "cost"),
    "level": ("within", "at", "quality", "cost"),
    "smaller": ("metric", "spread", "beside"),
    "grows": ("over", "limit", "quality"),
    "gains_more": ("than", "at", "quality", "cost"),
}
_NEEDS = {"level": "within", "smaller": "metric", "grows": "over", "gains_more": "than"}


class Statement(Section):
    """One thing that a figure or table shows. It has one of `ahead`, `level`, `smaller`, `grows` and `gains_more`.

    Attributes:
        ahead: Two labels; the first does better, or with `within`, worse by at most that.
        level: Two labels that do equally well.
        within: A difference that does not count, on the study's scale: 0 is the untrained model, 1 the best end.
        smaller: Two labels; the first has the smaller `metric`, on average over its rounds.
        metric: Any metric that trials report, such as ``update_norm``; compared by its logarithm if it is positive.
        spread: Compare the standard deviation over the rounds instead of the mean.
        beside: The second label is of this panel, whose task may be another one.
        grows: A hyperparameter; the best value grows from label to label of `over`.
        over: These labels, in order, at least two.
        limit: Compare the largest value that trains instead of the best: its trial does not diverge, and ends better
            than the untrained model.
        gains_more: Two labels; the first is further ahead of the second than the first of `than` is of its second.
        than: Two labels.
        at: The cost to compare at, as a share of the largest one; None compares over all costs.
        quality, cost: Instead of the study's own.
        panels: Where it holds; all panels by default.
    """

    ahead: Pair | None = None
    level: Pair | None = None
    within: Real | None = Key(default=None, gt=0)
    smaller: Pair | None = None
    metric: str | None = None
    spread: bool = False
    beside: str | None = None
    grows: str | None = None
    over: Annotated[list[str], Key(min_length=2)] | None = None
    limit: bool = False
    gains_more: Pair | None = None
    than: Pair | None = None
    at: Real | None = Key(default=None, gt=0, le=1)
    quality: str | None = None
    cost: str | None = None
    panels: Annotated[list[str], Key(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        names = [name for name in type(self).model_fields if getattr(self, name) not in (None, False)]
        forms = [name for name in names if name in _FORMS]
        if len(forms) != 1:
            raise InvalidSpec("", f"must have one of {', '.join(_FORMS)}, got {' and '.join(forms) or 'none'}")
        for name in names:
            if name not in (*forms, *_FORMS[forms[0]], "panels"):
                raise InvalidSpec(name, f"does not go with {forms[0]}, whose keys are {', '.join(_FORMS[forms[0]])}")
        if (needed := _NEEDS.get(forms[0])) and needed not in names:
            raise InvalidSpec(needed, f"must be given with {forms[0]}")
        return self

    @property
    def pair(self) -> tuple[str, str] | None:
        """The labels of `ahead` or `level`."""
        pair = self.ahead or self.level
        return (pair[0], pair[1]) if pair else None

    @property
    def gains(self) -> list[tuple[str, str]]:
        """The two pairs of labels of `gains_more`."""
        return [(pair[0], pair[1]) for pair in (self.gains_more, self.than) if pair]

    @property
    def labels(self) -> list[str]:
        """All labels that it names in its panels, without `UNTRAINED`."""
        if self.smaller and self.beside is not None:
            return self.smaller[:1]
        gains = [label for pair in self.gains for label in pair]
        return [label for label in self.pair or self.smaller or self.over or gains if label != UNTRAINED]

    @property
    def text(self) -> str:
        """The statement in words."""
        if self.grows is not None:
            which = f"largest {self.grows} that trains" if self.limit else f"best {self.grows}"
            return f"{which} grows over {', '.join(self.over or ())}"
        if self.smaller is not None:
            what = f"spread of {self.metric}" if self.spread else f"{self.metric}"
            where = "" if self.beside is None else f" in {self.beside}"
            return f"{what} of {self.smaller[0]} below that of {self.smaller[1]}{where}"
        of = "" if self.quality is None else f" in {self.quality}"
        where = "over all costs" if self.at is None else "at the largest cost"
        if self.at is not None and self.at < 1:
            where = f"at {100 * self.at:g} % of the largest cost"
        where = where if self.cost is None else f"{where} in {self.cost}"
        if self.gains:
            (a, b), (c, d) = self.gains
            return f"{a} further ahead of {b} than {c} of {d}{of} {where}"
        if self.ahead is not None:
            ahead = "ahead of" if self.within is None else f"at most {self.within:g} behind"
            return f"{self.ahead[0]} {ahead} {self.ahead[1]}{of} {where}"
        return f"{' and '.join(self.level or ())} level{of} (within {self.within:g}) {where}"


class Preset(Section):
    """A figure or table of a paper.

    Attributes:
        figure: Which one, as "[A] figures 6 and 11".
        statement: What it shows, in a sentence.
        remarks: What differs from the paper, and which data the full scale needs.
        study: What the studies of both scales share.
        small, full: What each scale adds; see the module.
        shows: The statements; the figure agrees if all of them do.
    """

    figure: str
    statement: str
    remarks: str = ""
    study: dict[str, JsonValue]
    small: dict[str, JsonValue]
    full: dict[str, JsonValue]
    shows: list[Statement] = Key(min_length=1)

    @model_validator(mode="after")
    def _same_panels(self) -> Self:
        panels = [list(self._panels(scale)) for scale in SCALES]
        if panels[0] != panels[1]:
            raise InvalidSpec("full.panels", f"must be those of small, {shown(panels[0])}, got {shown(panels[1])}")
        for index, statement in enumerate(self.shows):
            named = [*(("panels", panel) for panel in statement.panels or ()), ("beside", statement.beside)]
            for key, panel in named:
                if panel is not None and panel not in panels[0]:
                    problem = f"no panel {shown(panel)}: {hint(panel, panels[0]) if panels[0] else 'there are none'}"
                    raise InvalidSpec(f"shows[{index}].{key}", problem)
        return self

    @property
    def panels(self) -> list[str]:
        """The names of its panels; [""] without any."""
        return list(self._panels("small")) or [""]

    def study_of(self, name: str, scale: Scale, panel: str = "") -> Study:
        """The study of a panel.

        Args:
            name: Name of the preset, with which the study's begins.
            scale: "small" or "full".
            panel: One of `panels`.

        Raises:
            InvalidSpec: The study is invalid, or has no label that a statement names.
        """
        overrides = {key: value for key, value in getattr(self, scale).items() if key != "panels"}
        document = _laid_over(_laid_over(self.study, overrides), self._panels(scale).get(panel, {}))
        study = Study.from_json({"name": "-".join(filter(None, (name, panel, scale))), **document})
        for label, index in self.labels(panel).items():
            if label not in study.labels:
                problem = f"no label {shown(label)} in {study.name}: {hint(label, study.labels)}"
                raise InvalidSpec(f"shows[{index}]", problem)
        return study

    def labels(self, panel: str = "") -> dict[str, int]:
        """The labels that statements name in a panel, each with the index of the last one that does."""
        last = {}
        for index, statement in enumerate(self.shows):
            labels = statement.labels if panel in (statement.panels or self.panels) else []
            others = statement.smaller[1:] if statement.smaller and statement.beside == panel else []
            last.update(dict.fromkeys([*labels, *others], index))
        return last

    def statements(self, panel: str = "") -> list[Statement]:
        """The statements about a panel."""
        return [statement for statement in self.shows if panel in (statement.panels or self.panels)]

    def _panels(self, scale: Scale) -> dict[str, Any]:
        panels = getattr(self, scale).get("panels", {})
        if not isinstance(panels, dict) or not all(isinstance(panel, dict) for panel in panels.values()):
            raise InvalidSpec(f"{scale}.panels", f"must map names to parts of a study, got {shown(panels)}")
        return panels


def preset(name: str) -> Preset:
    """A preset that comes with Driftline.

    Raises:
        NotFound: No such preset.
    """
    texts = paper_texts()
    if name not in texts:
        raise NotFound(f"no preset {shown(name)}: {hint(name, texts)}")
    return Preset.from_json(parse(texts[name], f"{name}.yaml"))


def presets() -> Iterator[tuple[str, Preset]]:
    """All presets with their names."""
    for name in paper_texts():
        yield name, preset(name)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A document with another laid over it: mappings key by key, everything else replaces."""
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        merged[key] = _laid_over(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged
