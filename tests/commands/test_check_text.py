"""What `driftline validate` says about the size of a study."""

from pathlib import Path

import pytest

from driftline.study.spec import Study
from service.cli.check import _print_plan


@pytest.mark.parametrize(
    ("trials", "confirm", "seeds", "said"),
    [
        (8, 8, 1, "each 8 search trials and 8 confirmation trials on 1 fresh seed,"),
        (1, 1, 1, "each 1 search trial and 1 confirmation trial on 1 fresh seed,"),
        (2, 1, 6, "each 2 search trials and 6 confirmation trials on 6 fresh seeds,"),
        (2, 1, 0, "each 2 search trials, 4 rounds a trial."),
    ],
)
def test_one_is_no_plural(trials: int, confirm: int, seeds: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    budget = {"rounds": 4, "trials_per_method": trials, "confirm": confirm, "seeds": seeds}
    document = {"name": "x", "task": "digits", "methods": ["fedavg"], "budget": budget}
    _print_plan(Path("x.yaml"), Study.from_json(document), [], [])
    assert f"1 method (fedavg), {said}" in " ".join(capsys.readouterr().out.split())
