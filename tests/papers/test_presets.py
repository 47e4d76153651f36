"""Every preset of the papers trains for two rounds at its small scale."""

import math

import pytest

from driftline.study.examples import paper_texts
from driftline.study.papers import preset

from .trained import trained


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", list(paper_texts()))
def test_a_preset_trains(name: str) -> None:
    """The panel with most statements, and of entries that differ in hyperparameters alone one."""
    one = preset(name)
    panel = max(one.panels, key=lambda panel: len(one.statements(panel)))
    study = one.study_of(name, "small", panel)
    study = study.model_copy(update={"budget": study.budget.of_rounds(2), "eval_every": 1})
    labels = {(entry.name, str(entry.parts().keys())): entry.label for entry in study.methods}
    for curve in trained(study, list(labels.values()), [0]):
        assert curve.rounds_done == 2
        assert curve.reports(study.objective.quality)
        for statement in one.statements(panel):
            assert statement.metric is None or math.isfinite(curve.metric(statement.metric)[1][-1]), statement.metric
