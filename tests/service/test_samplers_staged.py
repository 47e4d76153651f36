"""Tuning in stages: what each stage tries, and what the sampler refuses (`service.samplers.staged`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.study.stages import sizes, stage_of
from search_spaces.constraints import Constraint
from search_spaces.parameters import Choice, Float, Space
from service.samplers.build import build

SPACE: Space = {
    "displacement": Choice((0.0, 0.1, 0.5, 2.5)),
    "client_lr": Choice((0.1, 0.2, 0.4)),
    "local_steps": Choice((5, 10)),
    "weight_decay": Choice((0.001,)),
}
NAMES = ("client_lr", "local_steps", "displacement")
PAPER = {"name": "staged", "stages": [["client_lr", "local_steps"], ["displacement"]]}


def quality(point: Mapping[str, Any]) -> float | None:
    """With displacement the best rate and number of steps are others than without; the largest rate diverges."""
    best = (0.1, 10) if point["displacement"] == 0.5 else (0.2, 5)
    if point["client_lr"] == 0.4:
        return None
    away = abs(point["client_lr"] - best[0]) + abs(point["local_steps"] - best[1]) / 10
    return -away - 2 * abs(point["displacement"] - 0.5)


def searched(
    sampler: str | Mapping[str, Any],
    generations: Sequence[int],
    value: Callable[[Mapping[str, Any]], float | None] = quality,
    **more: Any,
) -> list[tuple[Any, ...]]:
    """(client_lr, local_steps, displacement) of all trials, asked for and told in generations."""
    made = build(sampler, more.pop("space", SPACE), ("quality",), 0, **more)
    tried: list[dict[str, Any]] = []
    for size in generations:
        first = len(tried)
        tried += [made.ask(first + place) for place in range(size)]
        for number in reversed(range(first, len(tried))):
            told = value(tried[number])
            made.tell(number, tried[number], None if told is None else {"quality": told}, diverged=told is None)
    return [tuple(point[name] for name in NAMES) for point in tried]


def test_each_hyperparameter_has_a_stage_around_the_best_so_far() -> None:
    tried = searched("staged", (3, 1, 3, 2, 1))
    assert tried[:3] == [(0.1, 5, 0.0), (0.2, 5, 0.0), (0.4, 5, 0.0)]
    assert tried[3:4] == [(0.2, 10, 0.0)]
    assert tried[4:7] == [(0.2, 5, 0.1), (0.2, 5, 0.5), (0.2, 5, 2.5)]
    assert tried[7:9] == [(0.1, 5, 0.5), (0.4, 5, 0.5)], "the first stage again, at the best displacement"
    assert tried[9] == (0.1, 10, 0.5), "and the second"


def test_the_three_stages_of_the_paper() -> None:
    """[B] B.2: the grid without displacement, displacement at its best, the grid again at the best displacement."""
    tried = searched(PAPER, (6, 3, 5))
    assert {(lr, steps) for lr, steps, _ in tried[:6]} == {(lr, steps) for lr in (0.1, 0.2, 0.4) for steps in (5, 10)}
    assert {point[2] for point in tried[:6]} == {0.0}
    assert tried[6:9] == [(0.2, 5, 0.1), (0.2, 5, 0.5), (0.2, 5, 2.5)]
    assert {point[2] for point in tried[9:]} == {0.5}
    assert len(set(tried)) == 14
    finite = [point for point in tried if point[0] < 0.4]
    best = max(finite, key=lambda point: quality(dict(zip(NAMES, point, strict=True))) or 0.0)
    assert best == (0.1, 10, 0.5)


def test_values_around_the_next_best_fill_a_stage_that_has_tried_its_own() -> None:
    """Displacement stays at 0, so that its first turn again has nothing new: it goes on around the second best."""

    def value(point: Mapping[str, Any]) -> float:
        return -point["displacement"] - point["client_lr"] - point["local_steps"] / 100

    tried = searched(PAPER, (6, 3, 5), value)
    assert tried[6:9] == [(0.1, 5, 0.1), (0.1, 5, 0.5), (0.1, 5, 2.5)]
    assert tried[9:14] == [(0.1, 10, 0.1), (0.2, 5, 0.1), (0.2, 10, 0.1), (0.4, 5, 0.1), (0.4, 10, 0.1)]


def test_it_begins_at_a_given_configuration_and_tries_several_first() -> None:
    one = {"client_lr": 0.2, "displacement": 0.1}
    assert searched("staged", (3, 1), start=[one]) == [(0.2, 5, 0.1), (0.1, 5, 0.1), (0.4, 5, 0.1), (0.2, 10, 0.1)]
    off = {"client_lr": Float(0.1, 0.4, points=2)}
    two = [{"client_lr": 0.3, "local_steps": 10}, {"client_lr": 0.2, "displacement": 0.5}]
    tried = searched("staged", (2, 3), start=two, space={**SPACE, **off})
    assert tried == [(0.3, 10, 0.0), (0.2, 5, 0.5), (0.1, 5, 0.5), (0.4, 5, 0.5), (0.3, 5, 0.5)]


def test_a_stage_leaves_out_what_breaks_a_constraint() -> None:
    tried = searched("staged", (3, 1), constraints=[Constraint("client_lr * local_steps <= 1.5")])
    assert tried == [(0.1, 5, 0.0), (0.2, 5, 0.0), (0.1, 10, 0.0), (0.2, 5, 0.1)]


def test_a_search_whose_trials_all_diverge_stays_at_the_first_values() -> None:
    assert searched("staged", (3, 1), lambda point: None)[3] == (0.1, 10, 0.0)


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        (["a", ["b", "a"]], "sampler.stages: must name a once, got it 2"),
        ([[]], r"sampler.stages\[0\]: "),
        ([], "sampler.stages: "),
    ],
)
def test_what_cannot_be_tuned_in_stages_is_refused(stages: Any, line: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{line}"):
        build({"name": "staged", "stages": stages}, SPACE, ("quality",), 0)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4), st.integers(0, 4), st.integers(0, 200))
def test_stages_follow_one_another_without_gaps(values: list[int], start: int, number: int) -> None:
    names = [[str(index)] for index in range(len(values))]
    of_stages = sizes(names, {str(index): range(count) for index, count in enumerate(values)}, start)
    stage, first, end = stage_of(of_stages, number)
    assert first <= number < end
    assert stage_of(of_stages, end)[:2] == (stage + 1, end)
    assert first == 0 or stage_of(of_stages, first - 1)[0] == stage - 1
