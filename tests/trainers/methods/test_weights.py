"""Whose answers count how much, and who takes part: weights by examples or uniform, cohorts without replacement."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.hyperparameters import describe
from trainers.registry import methods
from trainers.trial.document import parse

TASK = {"name": "digits", "clients": 6, "partition": {"classes_per_client": 2}}
USUAL = {"client_lr": 0.1, "server_lr": 0.2, "local_steps": 3, "prox": 0.5, "gradient_weights": [1.0, 0.0, 2.0]}
ONE_MEAN = [
    "fedavg",
    "fedprox",
    "fedsgd",
    "fomaml",
    "local_sgd",
    "local_update",
    "minibatch_prox",
    "minibatch_sgd",
    "reptile",
]


def document(method, **changes):
    needed = {item.name: USUAL.get(item.name, 1) for item in describe(methods()[method].Hyper) if item.required}
    central = {"fraction": 0.1} if methods()[method].CENTRAL else None
    return {
        "task": {**TASK, "central": central},
        "method": {"name": method, **needed},
        "batch_size": 8,
        "rounds": 1,
        "dtype": "float64",
        "report": ["params"],
        **changes,
    }


def moved(given, weights=None):
    """The change of the model in one round; weights: in place of the trial's own."""
    pack = Pack.from_spec(parse(given))
    if weights is not None:
        pack._setting.weights = np.asarray(weights, dtype=np.float64)
    first, last = pack.advance()
    return np.array(last["params"]) - np.array(first["params"])


def counts(method="fedavg"):
    spec = parse(document(method))
    found = np.array(spec.task_module.build(spec.task, spec.dtype).train.sizes)
    assert len(found) == 6
    assert found.max() > 1.5 * found.min()
    return found


@pytest.mark.parametrize("method", methods())
def test_every_method_weighs_by_examples_or_uniformly(method):
    by_examples = moved(document(method, weighting="examples"))
    uniform = moved(document(method, weighting="uniform"))
    np.testing.assert_allclose(by_examples, moved(document(method), counts(method)), rtol=0, atol=1e-14)
    np.testing.assert_allclose(uniform, moved(document(method), [1] * 6), rtol=0, atol=1e-14)
    alone = methods()[method].CLIENTS_PER_ROUND == 1
    assert (np.abs(by_examples - uniform).max() > 1e-4) != alone


@pytest.mark.parametrize("method", ONE_MEAN)
def test_the_update_is_the_weighted_mean_of_the_clients_updates(method):
    own = np.array([moved(document(method), np.eye(6)[client]) for client in range(6)])
    by_examples = moved(document(method, weighting="examples"))
    np.testing.assert_allclose(by_examples, np.average(own, 0, counts()), rtol=0, atol=1e-13)
    np.testing.assert_allclose(moved(document(method, weighting="uniform")), own.mean(0), rtol=0, atol=1e-13)


def test_weights_are_scaled_within_the_cohort():
    given = document("fedavg", weighting="examples", clients_per_round=3)
    chosen = randomness.cohort(0, 0, 6, 3)
    held = counts()[chosen]
    own = np.array([moved({**given, "clients_per_round": None}, np.eye(6)[client]) for client in chosen])
    np.testing.assert_allclose(moved(given), np.average(own, 0, held), rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", methods())
def test_a_round_has_different_clients(method, monkeypatch):
    from trainers.engine.packs import lane

    size = methods()[method].CLIENTS_PER_ROUND or 4
    seen = []

    class Spy(lane.Cohort):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            seen.append(tuple(self._batches.clients.tolist()))

    monkeypatch.setattr(lane, "Cohort", Spy)
    Pack.from_spec(parse(document(method, clients_per_round=size, rounds=25))).advance()
    assert len(seen) == 25
    assert all(len(set(clients)) == len(clients) == size for clients in seen)
    assert len({frozenset(clients) for clients in seen}) > 3  # drawn anew in each round
    assert {client for clients in seen for client in clients} == set(range(6))


def test_every_client_is_drawn_equally_often():
    drawn = [randomness.cohort(3, number, 10, 4) for number in range(2000)]
    assert all(len(set(clients.tolist())) == 4 for clients in drawn)
    often = np.bincount(np.concatenate(drawn), minlength=10) / 2000
    assert often == pytest.approx(np.full(10, 0.4), abs=4 * np.sqrt(0.4 * 0.6 / 2000))
