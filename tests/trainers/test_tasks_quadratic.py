"""The quadratic task: known optima, generated problems, wrong documents, noise of gradients."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import SpecError
from trainers.run import run
from trainers.tasks import quadratic
from trainers.theory import families
from trainers.theory.clients import ClientQuadratics, client_quadratics
from trainers.theory.interval import Curvature
from trainers.theory.weights import listed

GOLDEN = {"name": "quadratic", "hessians": [[[1, 0], [0, 10]], [[5.5, 4.5], [4.5, 5.5]]], "centers": [[1, 0], [0, 1]]}


def problem(**document: Any) -> Any:
    return quadratic.build(quadratic.parse({"name": "quadratic", **document}, "task"), "float64")


def test_the_optimum_of_the_golden_case() -> None:
    built = quadratic.build(quadratic.parse(GOLDEN, "task"), "float64")
    assert built.optimum == pytest.approx([0.7515528, 0.1366460], abs=5e-8)
    assert built.train.hessians.shape == (2, 2, 2)
    assert built.client_weights is None


def test_client_weights_move_the_optimum() -> None:
    one = [[[1.0]], [[1.0]]]
    built = problem(hessians=one, centers=[[0.0], [1.0]], client_weights=[0.25, 0.75], gradient_noise="1e-1")
    assert built.optimum == pytest.approx([0.75], abs=1e-15)
    assert built.client_weights.tolist() == [0.25, 0.75]
    assert built.train.gradient_noise == 0.1


def test_weights_within_rounding_are_made_exact() -> None:
    built = problem(problem="continuum", clients=3, client_weights=[0.3333333, 0.3333333, 0.3333333])
    assert built.client_weights.sum() == pytest.approx(1.0, abs=1e-16)


def worst_case(weights: list[float], prox: float) -> tuple[dict[str, Any], ClientQuadratics]:
    document = {"problem": "worst_case", "smoothness": 5.0, "strong_convexity": 0.5, "center_bound": 2.0}
    document |= {"client_lr": 0.01, "gradient_weights": weights, "prox": prox}
    return document, families.worst_case(Curvature(0.5, 5.0), 0.01, listed(weights), prox, center_bound=2.0)


@pytest.mark.parametrize(
    ("document", "theory"),
    [
        ({"problem": "two_clients"}, families.two_clients()),
        ({"problem": "continuum"}, families.continuum()),
        *(worst_case(weights, prox) for weights in ([1.0], [1.0] * 20, [0.0] * 9 + [1.0]) for prox in (0.0, 1.0)),
    ],
)
def test_generated_problems_are_those_of_the_theory(document: dict[str, Any], theory: ClientQuadratics) -> None:
    """What their optima and the limits of methods are is tested in tests/theory."""
    built = problem(**document)
    found = client_quadratics(built.train.hessians, built.train.centers, built.client_weights)
    for name in ("hessians", "centers", "weights"):
        np.testing.assert_allclose(getattr(found, name), getattr(theory, name), rtol=1e-12)
    np.testing.assert_allclose(built.optimum, theory.optimum, rtol=1e-12)


@given(
    clients=st.integers(1, 5),
    dimension=st.integers(1, 6),
    low=st.floats(0.1, 2),
    ratio=st.floats(1, 100),
    seed=st.integers(0, 2**40),
)
def test_random_hessians_have_the_extremes_asked_for(
    clients: int, dimension: int, low: float, ratio: float, seed: int
) -> None:
    document = {
        "problem": "random",
        "clients": clients,
        "dimension": dimension,
        "strong_convexity": low,
        "smoothness": low * ratio,
        "data_seed": seed,
    }
    built = problem(**document)
    assert built.train.centers.shape == (clients, dimension)
    for hessian in built.train.hessians:
        assert np.array_equal(hessian, hessian.T)
        values = np.linalg.eigvalsh(hessian)
        assert values[0] >= low * (1 - 1e-9)
        assert values[-1] <= low * ratio * (1 + 1e-9)
        if dimension > 1:
            assert values[0] == pytest.approx(low, rel=1e-9)
            assert values[-1] == pytest.approx(low * ratio, rel=1e-9)
    again = problem(**document)
    assert np.array_equal(again.train.hessians, built.train.hessians)
    assert np.array_equal(again.train.centers, built.train.centers)
    gradient = np.einsum("ijk,ik->j", built.train.hessians, built.optimum - built.train.centers) / clients
    assert gradient == pytest.approx(np.zeros(dimension), abs=1e-8 * low * ratio)


@pytest.mark.parametrize(
    "document",
    [
        GOLDEN,
        {"name": "quadratic", "problem": "random", "clients": 3, "dimension": 2, "client_weights": [0.5, 0.25, 0.25]},
        {"name": "quadratic", "problem": "worst_case", "client_lr": 0.01, "gradient_weights": [1, 1]},
        {"name": "quadratic", "problem": "two_clients", "gradient_noise": 0.5},
    ],
)
def test_the_filled_document_means_the_same(document: dict[str, Any]) -> None:
    first = quadratic.parse(document, "task")
    again = quadratic.parse(json.loads(json.dumps(first.document)), "task")
    assert again.document == first.document
    assert np.array_equal(again.losses.hessians, first.losses.hessians)
    assert np.array_equal(again.losses.centers, first.losses.centers)


WRONG = [
    ({}, "task.hessians must be given (or a problem: random, two_clients, continuum, worst_case)"),
    ({"hessians": [[[1]]]}, "task.centers must be given (or a problem: random, two_clients, continuum, worst_case)"),
    ({"hessians": [], "centers": []}, "task.hessians must be a list with one square matrix per client, got []"),
    ({"hessians": [[1, 0]], "centers": [[1]]}, "task.hessians.0 must be a square matrix (a list of rows), got [1, 0]"),
    ({"hessians": [[[1, 0]]], "centers": [[1]]}, "task.hessians.0 must be a square matrix, got 1 rows of 2 numbers"),
    (
        {"hessians": [[[1, 2], [3, 9]]], "centers": [[1, 0]]},
        "task.hessians.0 must be symmetric, got 2 at row 0, column 1 and 3 at row 1, column 0",
    ),
    (
        {"hessians": [[[1]], [[-1]]], "centers": [[1], [1]]},
        "task.hessians.1 must be positive definite, got smallest eigenvalue -1",
    ),
    ({"hessians": [[[0]]], "centers": [[1]]}, "task.hessians.0 must be positive definite, got smallest eigenvalue 0"),
    (
        {"hessians": [[[1, 0], [0, 1]], [[1]]], "centers": [[1, 0], [1, 0]]},
        "task.hessians.1 must be 2 x 2 as task.hessians.0, got 1 x 1",
    ),
    (
        {"hessians": [[[1]], [[1]]], "centers": [[1]]},
        "task.centers must have one center per hessian: 2 hessians, got 1 centers",
    ),
    ({"hessians": [[[1]]], "centers": [[1, 2]]}, "task.centers.0 must have 1 numbers as the hessians have rows, got 2"),
    (
        {"hessians": [[[1]]], "centers": [1]},
        "task.centers must be a list with one list of 1 numbers per client, got [1]",
    ),
    ({"hessians": [[["x"]]], "centers": [[1]]}, 'task.hessians.0.0.0 must be a number, got hessians.0.0.0="x"'),
    ({"hessians": [[[True]]], "centers": [[1]]}, "task.hessians.0.0.0 must be a number, got hessians.0.0.0=true"),
    ({"hessian": [[[1]]], "centers": [[1]]}, 'unknown key "hessian" in task: did you mean hessians?'),
    (
        {"problem": "random", "hessians": [[[1]]]},
        "task must have either problem or hessians and centers, got both: leave one out",
    ),
    ({"problem": "randm"}, 'task.problem: no quadratic problem "randm": did you mean random?'),
    ({"problem": "random", "clients": 0}, "task.clients must be in [1, 10000000], got clients=0"),
    (
        {"problem": "random", "strong_convexity": 2, "smoothness": 1},
        "task.smoothness must be at least strong_convexity=2, got smoothness=1",
    ),
    ({"problem": "two_clients", "gradient_noise": -1}, "task.gradient_noise must be at least 0, got gradient_noise=-1"),
    (
        {"problem": "two_clients", "client_weights": [0.5]},
        "task.client_weights must have one weight per client: 2 clients, got 1 weights",
    ),
    (
        {"problem": "two_clients", "client_weights": [0.5, 0.6]},
        "task.client_weights must sum to 1, got a sum of 1.1: divide each weight by it",
    ),
    (
        {"problem": "two_clients", "client_weights": [1e308, 1e308]},
        "task.client_weights must sum to 1, got a sum above the largest float",
    ),
    ({"problem": "two_clients", "client_weights": [1.5, -0.5]}, "task.client_weights.1 must be at least 0, got -0.5"),
    ({"problem": "two_clients", "client_weights": 1}, "task.client_weights must be a list of 2 numbers, got 1"),
    ({"problem": "worst_case", "client_lr": 0.1}, "task.gradient_weights must be given (numbers at least 0)"),
    (
        {"problem": "worst_case", "client_lr": 0.1, "gradient_weights": [1, 0]},
        "task.gradient_weights must end with a weight above 0, got [1.0, 0.0]",
    ),
    (
        {"problem": "worst_case", "client_lr": 1, "gradient_weights": [0, 1]},
        (
            "task: client_lr must be small enough for positive distortions of both curvatures, got client_lr=1.0, "
            "with distortion -9 at smoothness and 0 at strong_convexity"
        ),
    ),
]


@pytest.mark.parametrize(("document", "message"), WRONG)
def test_wrong_documents(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        quadratic.parse({"name": "quadratic", **document}, "task")
    assert str(caught.value) == message


def test_noise_is_fresh_in_every_step_and_averages_over_the_batch() -> None:
    hessians = [[[1.0, 0.0], [0.0, 1.0]]] * 200
    task = {"name": "quadratic", "hessians": hessians, "centers": [[0.0, 0.0]] * 200, "gradient_noise": 0.5}
    spread: dict[int | None, float] = {}
    for batch_size in (None, 1, 25):
        given = {
            "task": task,
            "method": {"name": "fedsgd", "server_lr": 1e-9, "local_steps": 5},
            "clients_per_round": 1,
            "batch_size": batch_size,
            "rounds": 200,
            "eval_every": 200,
            "init": [0.0, 0.0],
            "report": ["params"],
        }
        lines = list(run(given))
        steps = np.diff(np.array([line["params"] for line in lines]), axis=0) / -1e-9
        spread[batch_size] = steps.std() / np.sqrt(5)
    assert spread[None] == spread[1]
    assert spread[1] == pytest.approx(0.5, rel=0.1)
    assert spread[25] == pytest.approx(0.1, rel=0.1)


def test_noise_leaves_the_expected_pseudo_gradient() -> None:
    # Full participation of 3000 equal clients: the mean over their independent noises is the surrogate's gradient.
    task = {"name": "quadratic", "hessians": [[[2.0]]] * 3000, "centers": [[1.0]] * 3000, "gradient_noise": 1.0}
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 1.0, "local_steps": 5}
    document = {"task": task, "method": method, "rounds": 1, "init": [3.0], "report": ["params"]}
    line = list(run(document))[-1]
    expected = sum(0.8**power * 2.0 * 2.0 for power in range(5))
    deviation = np.sqrt(sum(0.8 ** (2 * power) for power in range(5)) / 3000)
    assert abs(3.0 - line["params"][0] - expected) < 4 * deviation
    assert abs(3.0 - line["params"][0] - expected) > 1e-6
