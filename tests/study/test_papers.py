"""Presets of the papers: all are valid at both scales, and mistakes in one are named."""

import re
from typing import Any

import pytest

from driftline.errors import InvalidSpec, NotFound
from driftline.study.examples import paper_texts
from driftline.study.papers import SCALES, Preset, preset, presets
from driftline.study.yaml_files import parse

NAMES = list(paper_texts())
REMARKS = ("eval_every", "methods", "budget.tokens", "task: there is one client")
"""What a figure may mean: few evaluations, alike entries, and data-parallel training."""


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_valid_at_both_scales(name: str) -> None:
    """The small scale in full; of the large one, whose data may be elsewhere, all but the data."""
    one = preset(name)
    for panel in one.panels:
        small, full = (one.study_of(name, scale, panel) for scale in SCALES)
        assert small.labels == full.labels
        assert len(small.name) > len(name)
        assert [line for line in small.check() if not line.startswith(REMARKS)] == []
        assert one.labels(panel), panel
    assert len({statement.text for statement in one.shows}) == len(one.shows)
    assert re.match(rf"# driftline papers run {name}\n", paper_texts()[name])


def test_every_figure_has_one_preset() -> None:
    figures = [one.figure for _, one in presets()]
    assert len(set(figures)) == len(figures) >= 20


def changed(**changes: Any) -> Preset:
    study = "{task: digits, methods: [fedavg, fedprox], budget: {trials_per_method: 2}}"
    text = f"""
figure: figure 1
statement: fedavg is better.
study: {study}
small: {{budget: {{rounds: 3}}, panels: {{iid: {{task: {{name: digits}}}}}}}}
full: {{budget: {{rounds: 9}}, panels: {{iid: {{task: {{name: digits, clients: 9}}}}}}}}
shows: [{{ahead: [fedavg, fedprox]}}]
"""
    return Preset.from_json(parse(text) | changes)


def test_scales_and_panels_are_laid_over_the_study() -> None:
    small, full = (changed().study_of("one", scale, "iid") for scale in SCALES)
    assert (small.name, full.name) == ("one-iid-small", "one-iid-full")
    assert (small.budget.rounds, full.budget.rounds) == (3, 9)
    assert (small.budget.trials_per_method, full.task["clients"]) == (2, 9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shows": [{}]}, r"shows\[0\]: must have one of ahead, level, smaller, grows, gains_more, got none"),
        ({"shows": [{"ahead": ["a", "b"], "level": ["a", "b"]}]}, "must have one of .*, got ahead and level"),
        ({"shows": [{"level": ["a", "b"]}]}, r"shows\[0\]\.within: must be given with level"),
        ({"shows": [{"gains_more": ["a", "b"]}]}, r"shows\[0\]\.than: must be given with gains_more"),
        ({"shows": [{"ahead": ["a", "b"], "than": ["a", "b"]}]}, r"shows\[0\]\.than: does not go with ahead"),
        ({"shows": [{"ahead": ["a", "b"], "metric": "drift"}]}, r"shows\[0\]\.metric: does not go with ahead"),
        ({"shows": [{"level": ["a", "b"], "limit": True}]}, r"shows\[0\]\.limit: does not go with level"),
        ({"shows": [{"ahead": ["a", "b"], "at": 2}]}, r"shows\[0\]\.at: must be at most 1"),
        ({"shows": [{"ahead": ["a", "b"], "panels": ["idd"]}]}, r'\]\.panels: no panel "idd": did you mean iid'),
        ({"shows": [{"smaller": ["a", "b"], "metric": "m", "beside": "idd"}]}, r'\]\.beside: no panel "idd"'),
        ({"shows": [{"ahead": ["a", "b"], "beside": "iid"}]}, r"shows\[0\]\.beside: does not go with ahead"),
        ({"full": {}}, r"full\.panels: must be those of small, "),
        ({"small": {"panels": 3}}, r"small\.panels: must map names to parts of a study, got 3"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        changed(**changes)


def test_a_statement_names_labels_of_its_study() -> None:
    with pytest.raises(InvalidSpec, match=r'shows\[0\]: no label "fedavgm" in one-iid-small: did you mean fedavg'):
        changed(shows=[{"ahead": ["fedavgm", "untrained"]}]).study_of("one", "small", "iid")


def test_the_second_label_of_another_panel_is_one_of_its_study() -> None:
    own = {"b": {"methods": ["fedavg"]}, "a": {"methods": ["fedprox"]}}
    statement = {"smaller": ["fedprox", "fedavg"], "metric": "update_norm", "beside": "b", "panels": ["a"]}
    studies = {"small": {"budget": {"rounds": 3}, "panels": own}, "full": {"budget": {"rounds": 9}, "panels": own}}
    one = changed(**studies, shows=[statement])
    assert [one.study_of("one", "small", panel).labels for panel in "ba"] == [("fedavg",), ("fedprox",)]
    turned = changed(**studies, shows=[{**statement, "smaller": ["fedprox", "fedprox"]}])
    with pytest.raises(InvalidSpec, match=r'shows\[0\]: no label "fedprox" in one-b-small'):
        turned.study_of("one", "small", "b")


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(NotFound, match=r'no preset "a-fig66": did you mean a-fig6'):
        preset("a-fig66")
