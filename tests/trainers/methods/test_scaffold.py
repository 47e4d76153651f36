"""SCAFFOLD with fresh and with stored control variates: limits, algorithm, theorem 5, client optimizers and costs."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.methods import fedavg, scaffold
from trainers.run import run

from . import client_gradients
from .alignment import RATES, column, slope, third_order
from .client_gradients import OPTIMIZERS, ROUNDS, SERVER_LR, STEPS
from .four_clients import STORED, WEIGHTS, WORK, Papers, models, same, task


@pytest.mark.parametrize("variates", ["fresh", "stored"])
def test_scaffold_without_correction_is_fedavg(variates):
    same({"name": "scaffold", **WORK, "correction": 0.0, "variates": variates}, {"name": "fedavg", **WORK})


@pytest.mark.parametrize("source", ["full", "batch"])
def test_one_step_of_scaffold_is_fedsgd(source):
    one = {"name": "scaffold", "client_lr": 0.3, "server_lr": 0.1, "local_steps": 1, "displacement_source": source}
    same(one, {"name": "fedsgd", "server_lr": 0.1})
    # the loss is that of the broadcast model on the first batches; steps at rate 0 are a larger batch
    larger = {"name": "fedsgd", "server_lr": 0.1, "local_steps": 3}
    same({**one, "client_lr": 0.0, "local_steps": 3}, larger)


@pytest.mark.parametrize("steps", [2, 5, 10])
def test_a_round_of_scaffold_aligns_for_every_pair_of_local_steps(clients, steps):
    """Theorem 5: it adds the slope of the misalignment."""
    rates = RATES / steps
    gain = clients.round(scaffold, rates, local_steps=steps) - clients.round(fedavg, rates, local_steps=steps)
    pull = clients.slope_of_misalignment(clients.start)
    assert slope(gain) == pytest.approx(2, abs=0.15)
    remainder = gain + steps * (steps - 1) / 2 * column(rates, 4) ** 2 * pull
    assert third_order(clients, remainder, exact=steps == 2)


class Scaffold(Papers):
    """With all weights equal c moves by |S| / N times the mean change of the cohort's variates."""

    def __init__(self, seed, size, option):
        super().__init__(seed, size)
        self.option, self.c, self.own = option, np.zeros(3), np.zeros((4, 3))

    def round(self, cohort, weights):
        ends = self.ends(cohort, lambda i, y: self.gradient(i, y) - self.own[i] + self.c)
        new = self.own[cohort] - self.c + (self.x - ends) / (WORK["local_steps"] * WORK["client_lr"])
        if self.option == "gradient":
            new = np.array([self.gradient(i, self.x) for i in cohort])
        self.c = self.c + self.p[cohort] @ (new - self.own[cohort])
        self.own[cohort] = new
        self.x = self.x + WORK["server_lr"] / WORK["client_lr"] * weights @ (ends - self.x)


@pytest.mark.parametrize("option", ["path", "gradient"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_scaffold_with_some_of_the_clients_is_the_papers(option, size):
    found = models({**STORED, "variate_update": option}, 20, task(WEIGHTS), clients_per_round=size, seed=7)
    np.testing.assert_allclose(found, Scaffold(7, size, option).run(20), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_stored_variates_are_means_of_gradients_whatever_the_client_optimizer(name):
    direction, settings = OPTIMIZERS[name]
    x, own = np.array([3.0, -2.0]), np.zeros((3, 2))
    wanted = [x]
    for _ in range(ROUNDS):
        corrections = own.mean(0) - own
        done = [client_gradients.local(client, x, direction, corrections[client]) for client in range(3)]
        own = np.array([mean for _, mean in done]) - corrections
        x = x - SERVER_LR * np.mean([total for total, _ in done], 0)
        wanted.append(x)
    found, last = client_gradients.models(
        {"name": "scaffold", **client_gradients.WORK, "variates": "stored"}, **settings
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert last["bytes_up"] == ROUNDS * 3 * 2 * 2 * 8  # a pseudo-gradient and the change of the variate


def test_decay_beside_the_gradients_is_in_no_variate():
    """By hand: Adam's means are of grad f_i + c - c_i, where c and c_i are gradients without the decay."""
    method = {**client_gradients.WORK, "weight_decay": 0.5}
    task = {"name": "quadratic", "hessians": client_gradients.HESSIANS, "centers": [[0.0, 0.0]] * 3}
    document = {"task": task, "rounds": 4, "init": [3.0, -2.0], "report": ["params"], "clients_per_round": 1}
    document |= {"client": {"name": "adamw"}}
    kept = {"name": "scaffold", "variates": "stored", "variate_update": "gradient", "displacement_source": "full"}
    found = [line["params"] for line in run({**document, "method": {**kept, **method}})]
    x, own = np.array([3.0, -2.0]), np.zeros((3, 2))
    for number in range(4):
        client = int(randomness.cohort(0, number, 3, 1)[0])
        correction = own.mean(0) - own[client]
        y, first, second = x, 0.0, 0.0
        for step in range(1, STEPS + 1):
            slope = np.array(client_gradients.HESSIANS[client]) @ y + correction
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            scaled = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            y = y - client_gradients.LR * (scaled + 0.5 * y)
        own[client] = np.array(client_gradients.HESSIANS[client]) @ x
        x = x + SERVER_LR / client_gradients.LR * (y - x)
        np.testing.assert_allclose(found[number + 1], x, rtol=0, atol=1e-12)
