"""FO-MAML is a local update with a weight on the last gradient alone."""

import pytest

from .four_clients import RATES, WORK, same


@pytest.mark.parametrize("prox", [0.0, 0.4])
def test_fomaml_is_the_last_weight_only(prox):
    weights = {**RATES, "gradient_weights": [0, 0, 0, 1], "prox": prox}
    same({"name": "fomaml", **WORK, "prox": prox}, {"name": "local_update", **weights})
