"""MimeLite: FedAvg without momentum."""

import pytest

from .four_clients import WORK, same


@pytest.mark.parametrize("more", [{}, {"weight_decay": 0.2}])
def test_mimelite_without_momentum_is_fedavg(more):
    same({"name": "mimelite", **WORK, "momentum": 0.0, **more}, {"name": "fedavg", **WORK, **more})
