"""Appendix D of mixed federated learning: rounds of one-way transfer, simulated with noise, stay within the bounds."""

import math

import numpy as np
import pytest

from .one_way_bounds import OneWay, best_convex_step, best_non_convex_step, convex_bound, non_convex_bound

RUNS = 4000


def spd(generator, high=1.0):
    basis = np.linalg.qr(generator.standard_normal((3, 3)))[0]
    return basis @ np.diag(generator.uniform(0.05, high, 3)) @ basis.T


class Problem:
    """0.5 (x - p)' A (x - p) + 0.5 (x - q)' C (x - q) of smoothness 1 each, every client with the first part."""

    def __init__(self, generator):
        self.a, self.c = spd(generator), spd(generator)
        self.p, self.q = generator.standard_normal((2, 3))
        self.best = np.linalg.solve(self.a + self.c, self.a @ self.p + self.c @ self.q)
        self.convexity = min(np.linalg.eigvalsh(self.a)[0], np.linalg.eigvalsh(self.c)[0])

    def gap(self, x):
        away = x - self.best
        return 0.5 * np.einsum("...i,ij,...j->...", away, self.a + self.c, away)

    def slope(self, x):
        return (x - self.best) @ (self.a + self.c)

    def round(self, generator, x, held):
        """(models after a round, (runs,) drift) from models (runs, 3), with noise of the given variances."""
        runs, clients = len(x), held.clients_per_round
        own, shared = (math.sqrt(v / 3) for v in (held.client_gradient_variance, held.central_gradient_variance))
        central = (x - self.q) @ self.c + shared * generator.standard_normal(x.shape)
        y, drift = np.repeat(x[:, None], clients, 1), 0.0
        for _ in range(held.local_steps):
            gradients = (y - self.p) @ self.a + own * generator.standard_normal((runs, clients, 3))
            y = y - held.client_lr * (gradients + central[:, None])
            drift = drift + ((y - x[:, None]) ** 2).sum(-1).mean(1) / held.local_steps
        return x + held.delta_lr * (y.mean(1) - x), drift


def cases(number):
    generator = np.random.default_rng(number)
    problem = Problem(generator)
    steps, clients = int(generator.integers(1, 9)), int(generator.integers(2, 6))
    variances = (generator.uniform(0, 1, 2) * generator.integers(0, 2, 2)) ** 2
    start = problem.best + generator.standard_normal(3) * generator.choice([0, 0.1, 1.0])
    for convex in (True, False):
        delta_lr = math.sqrt(5 * clients / 8) * 1.001 if convex else math.sqrt(clients)
        step = generator.uniform(0.3, 1) / (8 if convex else 18)
        held = OneWay(
            client_lr=step / (steps * delta_lr),
            delta_lr=delta_lr,
            local_steps=steps,
            clients_per_round=clients,
            smoothness=1.0,
            strong_convexity=problem.convexity,
            client_gradient_variance=variances[0],
            central_gradient_variance=variances[1],
        )
        yield generator, problem, start, held, convex


def within(number, ratios):
    for generator, problem, start, held, convex in cases(number):
        after, drifts = problem.round(generator, np.tile(start, (RUNS, 1)), held)
        drift, gap, slope = drifts.mean(), problem.gap(start), problem.slope(start)
        slope_sq = slope @ slope
        found = {"D.9": (((after - start) ** 2).sum(-1).mean(), held.move(drift, slope_sq))}
        away, left = ((start - problem.best) ** 2).sum(), ((after - problem.best) ** 2).sum(-1).mean()
        if convex:
            found["D.10"] = (left, held.distance(away, gap, drift))
            found["D.11"] = (drift, held.drift(gap))
            found["recursion"] = (left, held.recursion(away, gap))
        else:
            found["D.12"] = (problem.gap(after).mean(), held.loss(gap, slope_sq, drift))
            found["D.13"] = (drift, held.drift_by_slope(slope_sq))
        for name, (value, bound) in found.items():
            if bound > 1e-10:
                ratios.setdefault(name, []).append(value / bound)


def test_lemmas_hold_on_random_problems():
    ratios = {}
    for number in range(25):
        within(number, ratios)
    assert set(ratios) == {"D.9", "D.10", "D.11", "recursion", "D.12", "D.13"}
    for name, values in ratios.items():
        assert max(values) < 1 + 0.01, name  # the mean over runs has an error of its own
        assert max(values) > 0.2, name  # and the bounds say something


def sampled(number, noise, rounds, step, runs=400):
    """Models (rounds + 1, runs, 3) of a random problem with effective_step `step`."""
    generator = np.random.default_rng(number)
    problem, clients, steps = Problem(generator), 4, 3
    held = OneWay(
        client_lr=step / (steps * 2.0),
        delta_lr=2.0,
        local_steps=steps,
        clients_per_round=clients,
        smoothness=1.0,
        client_gradient_variance=noise[0],
        central_gradient_variance=noise[1],
    )
    models = [np.tile(problem.best + np.array([1.0, -1.0, 0.5]), (runs, 1))]
    for _ in range(rounds):
        models.append(problem.round(generator, models[-1], held)[0])
    return problem, np.array(models)


@pytest.mark.parametrize("noise", [(0.0, 0.0), (1.0, 0.3)])
@pytest.mark.parametrize("rounds", [20, 200])
def test_runs_with_the_tuned_step_keep_the_bounds(noise, rounds):
    problem, models = sampled(3, noise, 1, 1e-3)
    start = models[0, 0]
    distance_sq, gap = ((start - problem.best) ** 2).sum(), problem.gap(start)
    spread = 5 * noise[0] / (3 * 4) + 3 * noise[1]
    problem, models = sampled(3, noise, rounds, best_convex_step(rounds + 1, 1.0, spread, distance_sq))
    found = problem.gap(models.mean(0)).mean()
    assert 0 < found < convex_bound(rounds + 1, 4, 1.0, spread, distance_sq)
    spread = 3 * noise[0] / (3 * 4) + 2 * noise[1]
    problem, models = sampled(3, noise, rounds, best_non_convex_step(rounds + 1, 1.0, spread, gap))
    slopes = (problem.slope(models) ** 2).sum(-1).mean(1)
    assert 0 < slopes.min() < non_convex_bound(rounds + 1, 1.0, spread, gap)
