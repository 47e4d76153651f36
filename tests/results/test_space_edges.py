"""Which recommended values are at the edge of what was searched."""

from typing import Any

import pytest

from driftline.results.space_edges import space_edges


def result(form: dict[str, Any], value: Any, name: str = "client_lr") -> dict[str, Any]:
    prefix, _, short = name.rpartition(".")
    entry: dict[str, Any] = {"label": "fedavg", "name": "fedavg", "space": {}}
    (entry.setdefault(prefix, {"space": {}}) if prefix else entry)["space"][short] = form
    method = {
        "recommendations": [{"configuration": 1}, {"configuration": 4}],
        "configurations": [{"configuration": 4, "hyperparameters": {name: value}}],
    }
    return {"specification": {"methods": [entry]}, "methods": {"fedavg": method}}


RATE = {"float": [0.01, 1.0], "log": True}
MOMENTUM = {"float": [0, 0.99], "log": True, "complement": True}


@pytest.mark.parametrize(
    ("form", "value", "edge"),
    [
        (RATE, 0.95, "largest"),
        (RATE, 0.9, ""),
        (RATE, 0.0105, "smallest"),
        ({**RATE, "also": [0]}, 0, ""),
        ({"float": [0, 0.9]}, 0.001, ""),
        ({"float": [0, 0.9]}, 0.89, "largest"),
        (MOMENTUM, 0.98, ""),  # 85 % of the way on its own scale
        (MOMENTUM, 0.9895, "largest"),
        ({"int": [5, 50]}, 50, "largest"),
        ({"int": [5, 50]}, 5, "smallest"),
        ({"choice": [1, 5, 10]}, 10, "largest"),
        ({"choice": [1, 5, 10]}, 1, ""),
        ({"choice": [2, 5, 10]}, 2, "smallest"),
        ({"choice": [0.1, 0.5]}, 0.5, ""),
        ({"choice": [True, False]}, True, ""),
    ],
    ids=str,
)
def test_edges(form: dict[str, Any], value: Any, edge: str) -> None:
    for name in ("client_lr", "server.momentum"):
        expected = [f"fedavg: {name} {value:.4g} ({edge})"] if edge else []
        assert space_edges(result(form, value, name)) == expected


def test_without_a_specification_nothing_is_known() -> None:
    assert space_edges({"methods": {}}) == []
