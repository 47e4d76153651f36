"""What notebooks show of a study."""

from driftline.study.notebook import study_html

from .test_spec import study


def test_a_notebook_shows_a_study() -> None:
    shown = study()._repr_html_()
    assert "client_lr" in shown
    assert "64 trials a method, 200 rounds, 6 seeds" in shown
    assert shown == study_html(study())
