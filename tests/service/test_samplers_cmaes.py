"""CMA-ES: what it finds, and what it refuses (`service.samplers.cmaes`)."""

from typing import Any

import pytest

from driftline import Study
from driftline.errors import InvalidSpec
from search_spaces.parameters import Choice, Float, Int, Space
from service.samplers.build import build
from tests.service.api_setup import POINTS

SPACE: Space = {
    "client_lr": Float(1e-3, 10.0, log=True),
    "server_lr": Float(1e-3, 10.0, log=True),
    "local_steps": Choice((1, 2, 4, 8, 16, 32)),
}


def loss(configuration: dict[str, Any]) -> float:
    """A valley: client_lr and server_lr belong together."""
    one, other = (SPACE[name].place(configuration[name]) - 0.3 for name in ("client_lr", "server_lr"))  # type: ignore[union-attr]
    return float((one - other) ** 2 + 0.1 * (one + other) ** 2 + 0.001 * configuration["local_steps"])


def test_a_population_of_another_size_proposes_other_trials() -> None:
    sizes = ({"name": "cmaes", "population_size": 4}, {"name": "cmaes", "population_size": 8})
    proposals = []
    for settings in sizes:
        sampler = build(settings, SPACE, ("quality",), 0)
        for number in range(24):
            sampler.tell(number, configuration := sampler.ask(number), {"quality": -loss(configuration)})
        proposals.append(sampler.ask(24))
    assert proposals[0] != proposals[1]


@pytest.mark.parametrize(
    ("space", "objectives", "line"),
    [
        (SPACE, ("quality", "speed"), "objective.optimize: must be quality or speed for sampler cmaes"),
        ({**SPACE, "b": Choice(("x", "y"))}, ("speed",), "space.b: must be numbers for sampler cmaes"),
        ({**SPACE, "b": Int(1, 5, also=(9,))}, ("speed",), "space.b.also: must be left out for sampler cmaes"),
        ({"b": Int(1, 5)}, ("speed",), "space: must have at least 2 hyperparameters to tune for sampler cmaes"),
    ],
    ids=["two-objectives", "categories", "extra-points", "one-hyperparameter"],
)
def test_what_it_cannot_search_is_refused(space: Space, objectives: tuple[str, ...], line: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{line}"):
        build("cmaes", space, objectives, 0)


def test_a_study_that_it_cannot_search_is_refused_before_it_runs() -> None:
    document = {**POINTS, "methods": ["fedavg"], "objective": {"optimize": "quality"}, "sampler": "cmaes"}
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.space\.client_lr\.also: must be left out"):
        Study.from_json(document).check()
