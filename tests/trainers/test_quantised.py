"""Quantised uploads: a plain loop with rounding, every method, packs and checkpoints, and what cannot be quantised."""

import math

import numpy as np
import pytest
import torch

from trainers.engine.rounds.client_memory import ClientMemory
from trainers.engine.rounds.quantised import BLOCK, QUANTISERS
from trainers.errors import SpecError
from trainers.registry import methods
from trainers.trial.document import parse

from .methods.four_clients import WEIGHTS, WORK, Papers, models, task
from .methods.trials import document, train

BITS = {"int8": 8, "int4": 4}
assert BITS.keys() == QUANTISERS.keys()
ABLE = sorted(name for name in methods() if methods().constant(name, "ONE_UPLOAD"))


def rounded(values, bits):
    scale = np.abs(values).max() / (2 ** (bits - 1) - 1)
    return np.rint(values / scale) * scale


class FedAvg(Papers):
    def __init__(self, bits, feedback, seed, size):
        super().__init__(seed, size)
        self.bits, self.residuals = bits, np.zeros((4, 3)) if feedback else None

    def round(self, cohort, p):
        sums = (self.x - self.ends(cohort, self.gradient)) / WORK["client_lr"]
        if self.residuals is not None:
            sums = sums + self.residuals[cohort]
        sent = np.array([rounded(own, self.bits) for own in sums])
        if self.residuals is not None:
            self.residuals[cohort] = sums - sent
        self.x = self.x - WORK["server_lr"] * p @ sent


@pytest.mark.parametrize(("upload", "feedback"), [("int8", False), ("int4", True)])
def test_a_plain_loop_that_rounds_has_the_same_models(upload, feedback):
    found = models({"name": "fedavg", **WORK}, 100, task(WEIGHTS), upload=upload, clients_per_round=3, seed=5)
    wanted = FedAvg(BITS[upload], feedback, 5, 3).run(100)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
    assert (
        np.abs(found - models({"name": "fedavg", **WORK}, 100, task(WEIGHTS), clients_per_round=3, seed=5)).max() > 1e-4
    )


def test_blocks_have_scales_of_their_own_and_zeros_and_infinities_stay_in_theirs():
    values = torch.zeros(1, 2, 2 * BLOCK + 3, dtype=torch.float64)
    values[0, 0, 0], values[0, 0, BLOCK] = 1000.0, 0.7
    values[0, 1, -1] = math.inf
    sent = QUANTISERS["int4"].sent(values)
    assert sent.shape == values.shape
    assert sent[0, 0, 0] == pytest.approx(1000.0)
    assert sent[0, 0, BLOCK] == pytest.approx(0.7)
    assert not sent[0, 0, 1:BLOCK].any()
    assert not sent[0, 1, : 2 * BLOCK].any()
    assert not sent[0, 1, 2 * BLOCK :].isfinite().any()


def test_feedback_makes_up_for_what_four_bits_lose():
    plain, int8, int4 = (
        models({"name": "fedavg", **WORK, "local_steps": 1}, 300, task(WEIGHTS), **({"upload": name} if name else {}))
        for name in (None, "int8", "int4")
    )
    assert np.abs(int8[-1] - plain[-1]).max() < 1e-3
    # the residual stays bounded, so that the mean of the last models is that of exact uploads
    assert np.abs(int4[-100:].mean(0) - plain[-1]).max() < 0.02


@pytest.mark.parametrize("method", methods())
def test_every_method_sends_less_or_says_why_not(method):
    rounds = 3
    if method not in ABLE:
        with pytest.raises(SpecError, match=f"upload must be left out for {method}, ") as refused:
            parse(document(method, rounds=rounds, upload="int8"))
        assert refused.value.path == "upload"
        return
    plain, line = (train(document(method, rounds=rounds, **more))[-1] for more in ({}, {"upload": "int8"}))
    clients = plain["bytes_up"] // (plain["exchanges"] * 3 * 8)
    assert plain["exchanges"] == line["exchanges"] == rounds
    assert line["bytes_up"] == rounds * clients * (3 + 8)
    assert {name: line[name] for name in ("bytes_down", "client_gradients", "examples") if name in line} == {
        name: plain[name] for name in ("bytes_down", "client_gradients", "examples") if name in plain
    }
    assert line["train_loss"] != plain["train_loss"]
    assert line["train_loss"] == pytest.approx(plain["train_loss"], rel=0.05)


def test_residuals_that_cannot_fit_are_refused_by_the_key_that_asks_for_them():
    first = {"upload.residual": torch.zeros(1, 1, 1 << 20)}
    with pytest.raises(SpecError, match=r"client states of fedavg with upload int4 .* or upload: int8") as refused:
        ClientMemory(first, 1000, "fedavg with upload int4", lambda: 1 << 30)
    assert refused.value.path == "upload"
