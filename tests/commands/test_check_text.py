"""What `driftline validate` says about the size of a study."""

from pathlib import Path
from typing import Any

import pytest

from driftline.study.spec import Study
from service.cli.check import _print_plan


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (
            {"trials_per_method": 8, "confirm": 8, "seeds": 1},
            "each 8 search trials and 8 confirmation trials on 1 fresh seed,",
        ),
        (
            {"trials_per_method": 1, "confirm": 1, "seeds": 1},
            "each 1 search trial and 1 confirmation trial on 1 fresh seed,",
        ),
        (
            {"trials_per_method": 2, "confirm": 1, "seeds": 6},
            "each 2 search trials and 6 confirmation trials on 6 fresh seeds,",
        ),
        ({"trials_per_method": 2, "seeds": 0}, "each 2 search trials, 4 rounds a trial."),
    ],
    ids=["one seed", "one of each", "six seeds", "no confirmation"],
)
def test_one_is_no_plural(budget: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = {"name": "x", "task": "digits", "methods": ["fedavg"], "budget": {"rounds": 4, **budget}}
    _print_plan(Path("x.yaml"), Study.from_json(document), [], [])
    assert f"1 method (fedavg), {said}" in " ".join(capsys.readouterr().out.split())
