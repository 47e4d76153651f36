import numpy as np
import pytest

from trainers.problem import Problem, Quadratics
from trainers.registry import optimizers
from trainers.theory.clients import client_quadratics
from trainers.theory.families import two_clients, worst_case
from trainers.theory.interval import Curvature
from trainers.theory.rates import best_parameters
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import round_map
from trainers.theory.setting_point import setting_point
from trainers.theory.spectrum import phi
from trainers.theory.tradeoff import tradeoff_point
from trainers.theory.weights import all_steps


@pytest.mark.parametrize("server", ["sgd", "nesterov", "heavy_ball"])
def test_the_worst_case_at_the_best_server_parameters(server):
    curvature = Curvature(1.0, 10.0)
    clients = worst_case(curvature, 0.05, all_steps(10))
    data = Quadratics(clients.hessians, clients.centers, np.zeros(2))
    problem = Problem("quadratic", data, client_weights=clients.weights)
    best = best_parameters(server, *phi(np.array([1.0, 10.0]), 0.05, 10))
    method = {"name": "fedavg", "client_lr": 0.05, "server_lr": best.server_lr, "local_steps": 10}
    given = {"name": "sgd", "momentum": best.momentum, "nesterov": best.nesterov}
    point = setting_point(problem, method, given)
    theory = tradeoff_point(curvature, 0.05, all_steps(10), server)
    assert point.best_rate == pytest.approx(theory.rate)
    assert point.rate == pytest.approx(theory.rate, abs=1e-6)
    assert point.distance / 2 == pytest.approx(theory.suboptimality)
    assert np.linalg.norm(point.surrogate_optimum - point.optimum) == point.distance
    assert point.messages == ()


def test_adaptive_servers_keep_the_point_and_have_no_rate():
    method = {"name": "fedavg", "client_lr": 0.25, "server_lr": 0.5, "local_steps": 2}
    plain = setting_point(two_clients(), method)
    for name in optimizers():
        if name not in ("sgd", "momentum", "nesterov"):
            other = setting_point(two_clients(), method, {"name": name})
            assert other.surrogate_optimum == pytest.approx(plain.surrogate_optimum)
            assert (other.rate, other.best_rate) == (None, None), name
    assert plain.rate == pytest.approx(abs(1 - 0.5 * (1.75 * 1 + 1.5 * 2) / 2))  # Q_i = 2 - client_lr i


@pytest.mark.parametrize(("name", "nesterov"), [("momentum", False), ("nesterov", True)])
@pytest.mark.parametrize("given", [{}, {"momentum": 0.5}, {"momentum": 0.0}])
def test_momentum_by_name_is_that_of_sgd(name, nesterov, given):
    method = {"name": "fedavg", "client_lr": 0.25, "server_lr": 0.5, "local_steps": 2}
    named = setting_point(two_clients(), method, {"name": name, **given})
    same = setting_point(two_clients(), method, {"name": "sgd", "momentum": 0.9, "nesterov": nesterov, **given})
    assert (named.rate, named.best_rate, named.distance) == (same.rate, same.best_rate, same.distance)
    assert named.rate == round_map(method, two_clients(), {"momentum": 0.9, "nesterov": nesterov, **given}).rate


def test_messages_instead_of_warnings():
    method = {"name": "fedavg", "client_lr": 0.75, "server_lr": 0.1, "local_steps": 2}
    point = setting_point(two_clients(), method)
    assert len(point.messages) == 1
    assert "client 1" in point.messages[0]


def test_methods_without_a_surrogate_have_no_best_rate(clients):
    point = setting_point(clients, {"name": "scaffold", "client_lr": 0.05, "server_lr": 0.05, "local_steps": 5})
    assert point.best_rate is None
    assert 0 < point.rate < 1
    assert point.distance == pytest.approx(0.0, abs=1e-13)


def test_mixed_methods_aim_at_the_mixed_loss():
    central = central_quadratic([[3.0]], [0.0])
    clients = client_quadratics([[[1.0]]], [[1.0]])
    method = {"name": "one_way_transfer", "client_lr": 0.05, "delta_lr": 1.0, "local_steps": 3}
    point = setting_point(clients, method, central=central)
    assert point.optimum == pytest.approx([0.25])
    assert point.distance == pytest.approx(0.0, abs=1e-15)
    assert point.rate == pytest.approx(abs(1 - 4 * (1 - 0.95**3)))
