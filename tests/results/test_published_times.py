"""Modelled time beside published tables: bandwidths of the scaling laws for DiLoCo, and a measured cluster."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from driftline.results.modelled_time import Time, modelled_seconds

GRID = [10 ** (-1 + 4 * number / 49) for number in range(50)]
"""Bandwidths in Gbit/s, of which every cell of table 6 is one."""

UTILISATIONS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Columns of table 6: computation's share of the time."""

MOST = np.inf
"""The cell "1000.0+"."""


@dataclass(frozen=True)
class Network:
    """A model of table 6 of "Scaling Laws for DiLoCo" (Charles et al. 2025, arXiv 2503.09799).

    Attributes:
        table: Steps between two exchanges -> Gbit/s for each of `UTILISATIONS`. One step is data-parallel training too.
        sent: Gbit that are sent in the time of a step, for each second of it: not published, so it is fitted.
        other: (steps, utilisation) -> how many bandwidths of the grid the model is away, for cells that are not equal.
    """

    table: dict[int, tuple[float, ...]]
    sent: float
    other: dict[tuple[int, float], int]


NETWORKS = {
    "Chinchilla, 10B": Network(
        {
            1: (104.8, 184.2, 222.3, 222.3, 390.7),
            10: (16.0, 49.4, 86.8, 152.6, 222.3),
            50: (3.0, 11.0, 23.3, 41.0, 126.5),
            100: (1.4, 6.2, 13.3, 23.3, 86.8),
            300: (0.5, 2.0, 4.3, 9.1, 41.0),
        },
        144.0,
        {(1, 0.5): -1, (1, 0.99): -3, (10, 0.95): -1, (50, 0.95): 1, (100, 0.5): 1, (100, 0.95): 1},
    ),
    "Llama3, 405B": Network(
        {
            1: (126.5, 222.3, 268.3, 323.8, 323.8),
            10: (19.3, 72.0, 126.5, 184.2, 268.3),
            50: (3.6, 13.3, 28.1, 59.6, 184.2),
            100: (2.0, 7.5, 16.0, 33.9, 126.5),
            300: (0.7, 3.0, 6.2, 13.3, 59.6),
        },
        193.3,
        {(50, 0.5): 1, (50, 0.8): 1, (50, 0.9): 1, (100, 0.9): 1},
    ),
    "DeepSeek-V3, 671B": Network(
        {
            1: (323.8, 569.0, 686.6, 686.6, MOST),
            10: (49.4, 152.6, 268.3, 390.7, 686.6),
            50: (7.5, 33.9, 72.0, 126.5, 390.7),
            100: (4.3, 16.0, 41.0, 72.0, 268.3),
            300: (1.7, 6.2, 13.3, 28.1, 126.5),
        },
        444.7,
        {
            (1, 0.5): -1, (1, 0.99): -3, (50, 0.5): 1, (50, 0.95): 1,
            (100, 0.5): 1, (100, 0.8): 1, (100, 0.95): 1,
        },
    ),
}  # fmt: skip


def least(sent: float, every: int, utilisation: float, overlap: float) -> int:
    """The position in the grid of the least bandwidth that gives this utilisation; its length if none does."""
    counters = {
        "exchanges": 1.0, "slowest_examples": float(every), "client_gradients": float(every),
        **dict.fromkeys(("bytes_up", "bytes_down"), sent * 1e9 / 16),
    }  # fmt: skip

    def reaches(position: int) -> bool:
        time = Time(f"{GRID[position]!r}Gbit,0s", "1GFLOPS", flops_per_example=1e9, overlap=overlap)  # steps of 1 s
        return every / float(modelled_seconds(counters, time, 1)) >= utilisation

    return bisect_left(range(len(GRID)), True, key=reaches)


def differences(network: Network, overlap: float) -> dict[tuple[int, float], int]:
    """(steps, utilisation) -> how many bandwidths of the grid the model is above the table, where it is not equal."""
    found = {}
    for every, row in network.table.items():
        for utilisation, cell in zip(UTILISATIONS, row, strict=True):
            published = len(GRID) if cell == MOST else int(np.argmin(np.abs(np.array(GRID) - cell)))
            found[every, utilisation] = least(network.sent, every, utilisation, overlap) - published
    return {cell: difference for cell, difference in found.items() if difference}


@pytest.mark.parametrize("name", NETWORKS)
def test_table_6_with_sending_during_the_backward_pass(name: str) -> None:
    """58 of the 75 cells are equal, 15 are the next bandwidth of the grid, a factor of 1.21 away.

    What is sent is not published: one amount for each model must give all its cells. The other two are of 99 % with an
    exchange in every step, and they cannot be had: the paper's simulator sends layer by layer, so that the gradient of
    the first layer is always left over after the backward pass. One share of a step knows no layers.
    """
    network = NETWORKS[name]
    assert differences(network, 2 / 3) == network.other


@pytest.mark.parametrize("overlap", [0.0, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_table_6_contradicts_other_overlaps(name: str, overlap: float) -> None:
    """No amount gives as many cells without an overlap, or with one of a whole step."""
    network = NETWORKS[name]
    for sent in network.sent * np.array([0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5]):
        other = differences(Network(network.table, float(sent), {}), overlap)
        assert len(other) > len(network.other) + 2


@dataclass(frozen=True)
class Measured:
    """A run of github.com/Adnan082/diloco-measured (results/raw, first repeats): 4 GPUs, one each, 30,846,720 numbers.

    Attributes:
        every: Local steps between two exchanges.
        steps: That were measured.
        exchanges: Among them.
        computing: Seconds of computation.
        bandwidth: Bits a second between two computers, measured.
        total: Seconds, measured.
    """

    every: int
    steps: int
    exchanges: int
    computing: float
    bandwidth: float
    total: float


PARAMETERS, COMPUTERS = 30_846_720, 4
RUNS = [
    Measured(1, 10, 10, 0.26628, 49.637e6, 382.387),
    Measured(1, 30, 30, 0.79767, 198.491e6, 249.101),
    Measured(1, 90, 90, 2.40638, 992.659e6, 137.988),
    Measured(1, 90, 90, 2.40134, 4963.557e6, 30.9593),
    Measured(8, 72, 9, 1.84566, 49.617e6, 338.629),
    Measured(8, 140, 17, 3.59421, 198.505e6, 144.848),
    Measured(8, 140, 17, 3.61997, 992.647e6, 29.2998),
    Measured(8, 140, 17, 3.66543, 4963.529e6, 9.10800),
    Measured(32, 140, 4, 3.64852, 49.616e6, 151.519),
    Measured(32, 140, 4, 3.66839, 198.491e6, 36.6529),
    Measured(32, 140, 4, 3.64758, 992.607e6, 10.1305),
    Measured(32, 140, 4, 3.65045, 4963.582e6, 5.36022),
    Measured(128, 180, 1, 4.70318, 49.620e6, 40.7205),
    Measured(128, 180, 1, 4.73027, 198.492e6, 13.1080),
    Measured(128, 180, 1, 4.71504, 992.678e6, 6.59223),
    Measured(128, 180, 1, 4.71667, 4963.557e6, 5.42139),
]


def ratio(run: Measured) -> float:
    """Measured over modelled seconds, without any latency; computers that do not overlap sending reduce in a ring."""
    sent = run.exchanges * COMPUTERS * 4 * PARAMETERS  # float32
    counters: dict[str, Any] = {
        "exchanges": float(run.exchanges), "slowest_examples": run.computing, "bytes_up": sent, "bytes_down": sent,
        "client_gradients": float(run.steps * COMPUTERS),
    }  # fmt: skip
    time = Time(f"{run.bandwidth!r}bit,0s", "1GFLOPS", flops_per_example=1e9, ring="1,infbit,0s")
    return run.total / float(modelled_seconds(counters, time, COMPUTERS, 4 * PARAMETERS))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.every}-{run.bandwidth / 1e6:.0f}Mbit")
def test_a_measured_cluster_takes_little_longer_than_modelled(run: Measured) -> None:
    """Within 1.08 to 1.92, the error of that project's own model, in all 16 cells; within 1.13 from 200 Mbit/s on."""
    assert 1.0 < ratio(run) < (1.13 if run.bandwidth > 1e8 else 1.29)
