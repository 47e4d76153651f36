"""Mini-batch SGD takes one gradient a client."""

import numpy as np

from .three_clients import CENTERS, HESSIANS, START, clients_of, document
from .trials import train


def test_minibatch_sgd_takes_one_gradient_a_client():
    lines = train(document({"name": "minibatch_sgd", "server_lr": 0.2}, clients_per_round=2))
    x = np.array(START)
    for number, line in enumerate(lines[1:]):
        x = x - 0.2 * np.mean([HESSIANS[c] @ (x - CENTERS[c]) for c in clients_of(number, 2)], 0)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)
    assert lines[-1]["client_gradients"] == 12 * 2
