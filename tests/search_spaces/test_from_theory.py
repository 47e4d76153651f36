"""Spaces from theory (`search_spaces.from_theory`): ranges, first points, and what is refused."""

import pytest

from search_spaces import spaces
from search_spaces.from_theory import TheoryPrior, pseudo_gradient
from search_spaces.parameters import Choice, Float
from trainers import LossEstimate, SpecError
from trainers.registry import methods
from trainers.tasks import quadratic
from trainers.theory.prediction import predictor
from trainers.theory.rates import best_parameters
from trainers.theory.spectrum import phi

MEASURED = LossEstimate(
    smoothness=2.0,
    useful_curvature=0.05,
    client_smoothness=(1.5, 2.0, 3.0),
    distance=4.0,
    gradient_noise=0.5,
    client_spread=1.0,
    clients=8,
)
SGD = spaces.default("server", "sgd")


def prior(method: str = "fedavg", server: str = "sgd", measured: LossEstimate = MEASURED) -> TheoryPrior:
    return TheoryPrior(method, "sgd", server, measured, rounds=100, clients_per_round=4)


def test_the_range_of_server_lr_holds_the_best_rate_of_every_client_lr_and_number_of_steps() -> None:
    space = prior().space(spaces.default("methods", "fedavg"))
    client_lr, server_lr, steps = space["client_lr"], space["server_lr"], space["local_steps"]
    assert isinstance(client_lr, Float)
    assert isinstance(steps, Choice)
    for rate in client_lr.grid(9):
        for count in steps.options:
            if rate * MEASURED.smoothness < 1:
                low, high = phi([MEASURED.useful_curvature, MEASURED.smoothness], rate, count)
                assert server_lr.contains(best_parameters("sgd", float(low), float(high)).server_lr)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_rates_scale_with_the_inverse_of_the_curvature(factor: float) -> None:
    scaled = LossEstimate(2.0 * factor, 0.05 * factor, (1.5 * factor, 2.0 * factor, 3.0 * factor), 4.0, 0.0, 0.0, 8)
    exact = LossEstimate(2.0, 0.05, (1.5, 2.0, 3.0), 4.0, 0.0, 0.0, 8)
    default = spaces.default("methods", "fedavg")
    one, other = prior(measured=exact).space(default), prior(measured=scaled).space(default)
    for name in ("client_lr", "server_lr"):
        assert other[name].ends()[0] * factor == pytest.approx(one[name].ends()[0], rel=0.05)
        assert other[name].ends()[1] * factor == pytest.approx(one[name].ends()[1], rel=0.05)


@pytest.mark.parametrize("method", [name for name in methods() if pseudo_gradient(name)])
@pytest.mark.parametrize("server", ["sgd", "nesterov", "adam"])
def test_first_points_lie_in_the_space(method: str, server: str) -> None:
    theirs = spaces.default("server", server)
    known = prior(method, server)
    space, server_space = known.space(spaces.default("methods", method)), known.server_space(theirs)
    points = list(known.points(space, server_space))
    assert points
    whole = {**space, **{f"server.{name}": parameter for name, parameter in server_space.items()}}
    for point in points:
        assert all(whole[name].contains(value) for name, value in point.items())
        assert ("server_lr" in point) == (server != "adam")


def test_the_points_for_exact_gradients_converge_as_fast_as_a_quadratic_allows() -> None:
    """One client whose Hessian has the measured eigenvalues: the point's asymptotic rate is the best one."""
    document = {"name": "quadratic", "hessians": [[[2.0, 0], [0, 0.05]]], "centers": [[1.0, 1.0]]}
    known = predictor(quadratic.build(quadratic.parse(document, "task"), "float64"))
    exact = LossEstimate(2.0, 0.05, (2.0, 2.0, 2.0), 4.0, 0.0, 0.0, 1)
    theory = prior(measured=exact)
    space = theory.space(spaces.default("methods", "fedavg"))
    for server in ({}, theory.server_space(SGD)):
        last = list(theory.points(space, server))[-1]
        momentum = last.pop("server.momentum", 0.0)
        curvatures = phi([0.05, 2.0], last["client_lr"], last["local_steps"])
        setting = known.setting({"name": "fedavg", **last}, {"name": "sgd", "momentum": momentum})
        best = best_parameters("heavy_ball" if server else "sgd", *map(float, curvatures))
        assert setting.rate == pytest.approx(best.rate, abs=0.05)


def test_noise_lowers_the_server_lr() -> None:
    space = prior().space(spaces.default("methods", "fedavg"))
    loud = LossEstimate(2.0, 0.05, (1.5, 2.0, 3.0), 4.0, 50.0, 1.0, 8)
    assert next(prior(measured=loud).points(space, {}))["server_lr"] < next(prior().points(space, {}))["server_lr"]


def test_local_steps_end_where_clients_reach_their_own_minimizers() -> None:
    easy = LossEstimate(2.0, 2.0, (2.0, 2.0, 2.0), 4.0, 0.0, 0.0, 8)
    assert prior(measured=easy).space(spaces.default("methods", "fedavg"))["local_steps"] == Choice((1, 2, 4))


def test_momentum_ends_beyond_the_best_heavy_ball() -> None:
    best = best_parameters("heavy_ball", 0.05, 2.0).momentum
    momentum = prior().server_space(SGD)["momentum"]
    assert isinstance(momentum, Float)
    assert 1 - momentum.high == pytest.approx((1 - best) / 2, rel=0.05)


def test_methods_and_optimizers_without_theory_are_refused() -> None:
    with pytest.raises(SpecError, match="no rates for mass: use default"):
        prior("mass")
    with pytest.raises(SpecError, match="plain sgd on the clients, got adam"):
        TheoryPrior("fedavg", "adam", "sgd", MEASURED, 100)
