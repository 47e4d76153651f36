"""Drift of the clients and dissimilarity of both losses, as reports, by hand."""

import itertools

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.theory.mixed_limits import dissimilarity

from .methods.mixed import WEIGHTS, problem, train


def walked(x, weight, client_lr=0.05, steps=4, added=0.0, prox=0.0, weights=None):
    """Mean squared distance of all clients' models after each step from where they start."""
    _, hessians, centers, _, _ = problem()
    found = []
    for hessian, center in zip(hessians, centers, strict=True):
        y, squares = x, []
        for _ in range(steps):
            y = y - client_lr * (weight * hessian @ (y - center) + added + prox * (y - x))
            squares.append(((y - x) ** 2).sum())
        found.append(np.mean(squares))
    return np.dot(np.full(4, 0.25) if weights is None else weights, found)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_drift_is_equation_12(weights):
    given, _, _, own, center = problem(weights=weights)
    asked = {"trial": {"report": ["drift", "params"]}}
    transfer = "one_way_transfer"  # at weight 0 the drift is that of the correction
    for name, weight in (("parallel_training", 0.7), (transfer, 0.7), (transfer, 0.0), ("fedavg", 1.0)):
        lines = train(name, 3, given, **({} if name == "fedavg" else {"federated_weight": weight}), **asked)
        assert "drift" not in lines[0]
        for before, line in itertools.pairwise(lines):
            x = np.array(before["params"])
            added = (1 - weight) * own @ (x - center) if name == transfer else 0.0
            wanted = walked(x, weight, added=added, weights=weights)
            assert line["drift"] == pytest.approx(wanted, rel=1e-12)


def test_drift_of_other_local_work():
    asked = {"trial": {"report": ["drift", "params"]}}
    for name, more, local in (
        ("fedprox", {"prox": 0.5}, {"prox": 0.5}),
        ("fomaml", {}, {}),  # steps whose gradients are not sent are taken all the same
        ("fedavg", {"client_lr": 0.0}, {"client_lr": 0.0}),
        ("fedavg", {"local_steps": 1}, {"steps": 1}),
    ):
        first, line = train(name, 1, **more, **asked)
        assert line["drift"] == pytest.approx(walked(np.array(first["params"]), 1.0, **local), rel=1e-12, abs=0), name
    joined = train("all_on_client", 1, **asked)
    _, hessians, centers, own, center = problem()
    x = np.array(joined[0]["params"])
    found = []
    for hessian, held in zip(hessians, centers, strict=True):
        y = x
        for _ in range(4):
            y = y - 0.05 * (hessian @ (y - held) + own @ (y - center)) / 2
            found.append(((y - x) ** 2).sum())
    assert joined[1]["drift"] == pytest.approx(np.mean(found), rel=1e-12)
    assert train("maml", 1, **asked)[1]["drift"] is None
    assert train("pooled_training", 1, **asked)[1]["drift"] is None


@pytest.mark.parametrize("name", ["parallel_training", "two_way_transfer", "pooled_training"])
def test_dissimilarity_is_that_of_both_gradients(name):
    given, hessians, centers, own, center = problem()
    lines = train(name, 4, given, federated_weight=0.73, trial={"report": ["dissimilarity", "params"]})
    for before, line in itertools.pairwise(lines):
        x = np.array(before["params"])
        a = 0.73 * np.einsum("ijk,ik->j", hessians, x - centers) / 4
        wanted = dissimilarity(a, 0.27 * own @ (x - center), 0.73)
        assert line["dissimilarity_offset_sq"] == pytest.approx(wanted[0], rel=1e-11)
        assert line["dissimilarity_factor_sq"] == pytest.approx(wanted[1], rel=1e-11)
        assert wanted[0] > 0.01


def test_clients_alone_are_not_unlike_anything():
    line = train("parallel_training", 1, federated_weight=1.0, trial={"report": ["dissimilarity"]})[-1]
    assert (line["dissimilarity_offset_sq"], line["dissimilarity_factor_sq"]) == (0.0, 1.0)


def test_other_methods_have_no_dissimilarity():
    message = "report.0 must not be dissimilarity with a method without data of the server, as fedavg"
    with pytest.raises(SpecError, match=message):
        train("fedavg", 1, trial={"report": ["dissimilarity"]})
