"""FO-MAML is a local update with a weight on the last gradient alone."""

from .four_clients import WORK, same
from .trials import limit


def test_the_last_weight_only_is_fomaml():
    weights = {"client_lr": 0.1, "gradient_weights": [0, 0, 0, 1]}
    limit({"name": "local_update", **weights}, {"name": "fomaml", "client_lr": 0.1, "local_steps": 4})


def test_fomaml_with_prox_is_the_last_weight_only():
    weights = {"client_lr": 0.05, "gradient_weights": [0, 0, 0, 1], "server_lr": 0.04, "prox": 0.4}
    same({"name": "fomaml", **WORK, "prox": 0.4}, {"name": "local_update", **weights})
