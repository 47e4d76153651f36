"""Four clients and a server with quadratic losses."""

import numpy as np
import pytest

from trainers.theory.clients import client_quadratics
from trainers.theory.families import random_clients
from trainers.theory.rounds.central import central_quadratic


def single(clients):
    """The first of a batch of one problem."""
    return client_quadratics(clients.hessians[0], clients.centers[0], clients.weights[0])


@pytest.fixture
def clients():
    return single(random_clients(np.random.default_rng(5), 1, 4, 3, np.array([8.0])))


@pytest.fixture
def central():
    generator = np.random.default_rng(6)
    root = generator.standard_normal((3, 3))
    return central_quadratic(root @ root.T + 0.5 * np.eye(3), generator.standard_normal(3))
