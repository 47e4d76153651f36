"""Every preset of the papers trains for two rounds at its small scale."""

import math

import pytest

from driftline.study.examples import paper_texts
from driftline.study.papers import preset
from driftline.study.trial_document import trial_document
from trainers.run import run


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", list(paper_texts()))
def test_a_preset_trains(name: str) -> None:
    """The panel with most statements, and of entries that differ in hyperparameters alone one, in its first point."""
    one = preset(name)
    panel = max(one.panels, key=lambda panel: len(one.statements(panel)))
    study = one.study_of(name, "small", panel)
    study = study.model_copy(update={"budget": study.budget.of_rounds(2), "eval_every": 1})
    metrics = {study.objective.quality, *(statement.metric for statement in one.statements(panel))} - {None}
    for entry in {(entry.name, str(entry.parts().keys())): entry for entry in study.methods}.values():
        values = {name: form.grid()[0] for name, form in entry.parameters().items()}
        lines = list(run(trial_document(study, entry.label, [values], 0)))
        assert lines[-1]["round"] == 2
        for metric in metrics:
            assert any(line.get(metric) is not None and math.isfinite(line[metric]) for line in lines), metric
