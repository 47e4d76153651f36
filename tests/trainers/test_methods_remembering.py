"""Stored SCAFFOLD, FedDyn, Mime, MimeLite and reused mean gradients: algorithms, closed forms, limits and costs."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import fixed_point, round_map
from trainers.trial.document import parse

WEIGHTS = [0.1, 0.4, 0.3, 0.2]
INIT = [2.0, -1.0, 0.5]
WORK = {"client_lr": 0.05, "server_lr": 0.04, "local_steps": 4}
STORED = {"name": "scaffold", **WORK, "variates": "stored"}
GRADIENT_VARIATES = {**STORED, "variate_update": "gradient"}
FEDDYN = {"name": "feddyn", **WORK, "prox": 0.4}
MIMELITE = {"name": "mimelite", **WORK, "momentum": 0.7}
MIME = {"name": "mime", **WORK, "momentum": 0.7}
REUSED = {"name": "fedga", **WORK, "displacement": 0.2, "reuse_mean_gradient": True}
EACH_STEP = {
    "name": "fedga", **WORK, "displacement": 0.2, "prox": 0.4, "displacement_form": "each_step", "weight_decay": 0.3,
}  # fmt: skip
REGULARIZED = {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.2}
CLOSED = [
    STORED,
    {**STORED, "correction": 0.5, "weight_decay": 0.3},
    GRADIENT_VARIATES,
    {**STORED, "variate_update": "gradient", "displacement_source": "batch", "weight_decay": 0.3},
    FEDDYN,
    {"name": "feddyn", **WORK, "server_lr": 0.05, "prox": 0.4, "weight_decay": 0.3},
    MIMELITE,
    {"name": "mimelite", **WORK, "gradient_source": "batch", "weight_decay": 0.3},
    MIME,
    {"name": "mime", **WORK, "gradient_source": "batch", "weight_decay": 0.3},
    REUSED,
    {"name": "fedga", **WORK, "displacement": 0.2, "reuse_mean_gradient": True, "prox": 0.4, "weight_decay": 0.3},
    {"name": "fedga", **WORK, "displacement": 0.2, "prox": 0.4},
    EACH_STEP,
    {"name": "fomaml", **WORK, "prox": 0.4},
    REGULARIZED,
    {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.2, "weight_decay": 0.3},
    {"name": "linear_scaling", "server_lr": 0.02},
    {"name": "aligned_linear_scaling", "client_lr": 0.03, "server_lr": 0.02, "weight_decay": 0.3},
]


def losses(clients=4, dimension=3):
    """Hessians with eigenvalues in [0.5, 4], and centers."""
    generator = np.random.default_rng(0)
    bases = np.linalg.qr(generator.standard_normal((clients, dimension, dimension)))[0]
    values = generator.uniform(0.5, 4.0, (clients, dimension))
    hessians = np.einsum("ijk,ik,ilk->ijl", bases, values, bases)
    return (hessians + hessians.transpose(0, 2, 1)) / 2, generator.standard_normal((clients, dimension))


def task(weights=None, noise=0.0):
    hessians, centers = losses()
    more = {} if weights is None else {"client_weights": weights}
    return {
        "name": "quadratic",
        "hessians": hessians.tolist(),
        "centers": centers.tolist(),
        "gradient_noise": noise,
        **more,
    }


def pack(method, rounds=1, given=None, **changes):
    document = {
        "task": given or task(),
        "method": method,
        "rounds": rounds,
        "dtype": "float64",
        "init": INIT,
        "report": ["params"],
        **changes,
    }
    return Pack.from_spec(parse(document))


def models(*arguments, **more):
    """(rounds + 1, parameters)."""
    return np.array([line["params"] for line in pack(*arguments, **more).advance()])


@pytest.mark.parametrize("method", CLOSED)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("server", [{"name": "sgd"}, {"name": "sgd", "momentum": 0.5, "nesterov": True}])
def test_rounds_follow_the_closed_form(method, weights, server):
    clients = client_quadratics(*losses(), weights)
    wanted = round_map(method, clients, server).after(INIT, 12)
    found = models(method, 12, task(weights), server=server)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    assert np.abs(found[12] - found[11]).max() > 1e-4


FIND_IT = ("scaffold", "feddyn", "mime")  # the minimizer of the mean loss
SETTLING = [STORED, GRADIENT_VARIATES, FEDDYN, MIMELITE, MIME, REUSED, EACH_STEP, REGULARIZED]


@pytest.mark.parametrize("method", SETTLING)
def test_training_ends_at_the_predicted_fixed_point(method):
    clients = client_quadratics(*losses(), WEIGHTS)
    faster = {"feddyn": {"server_lr": 0.05, "prox": 1.5}, "fomaml": {"server_lr": 0.2}}
    method = {**method, **faster.get(method["name"], {})}
    rounds = int(np.ceil(np.log(1e-11) / np.log(round_map(method, clients).rate)))
    assert rounds < 160
    end = models(method, rounds, task(WEIGHTS), eval_every=rounds)[-1]
    np.testing.assert_allclose(end, fixed_point(method, clients), rtol=0, atol=1e-9)
    biased = np.linalg.norm(fixed_point({"name": "fedavg", **WORK}, clients) - clients.optimum)
    assert biased > 1e-2
    assert (np.linalg.norm(end - clients.optimum) < 1e-9) == (method["name"] in FIND_IT)


class Papers:
    """Rounds of some of the clients, as the papers write them: every client by itself, changes of models."""

    def __init__(self, seed, size):
        self.hessians, self.centers = losses()
        self.seed, self.size = seed, size
        self.x = np.array(INIT)
        self.p = np.array(WEIGHTS)

    def gradient(self, client, at):
        return self.hessians[client] @ (at - self.centers[client])

    def run(self, rounds):
        models = [self.x]
        for number in range(rounds):
            cohort = randomness.cohort(self.seed, number, 4, self.size)
            self.round(cohort, self.p[cohort] / self.p[cohort].sum())
            models.append(self.x)
        return np.array(models)

    def ends(self, cohort, direction):
        found = []
        for i in cohort:
            y = self.x
            for _ in range(WORK["local_steps"]):
                y = y - WORK["client_lr"] * direction(i, y)
            found.append(y)
        return np.array(found)


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


class FedDyn(Papers):
    """With all weights equal h moves by the sum of the changes over the number of all clients."""

    def __init__(self, seed, size, prox):
        super().__init__(seed, size)
        self.prox, self.h, self.slopes = prox, np.zeros(3), np.zeros((4, 3))

    def round(self, cohort, weights):
        pull = self.prox
        ends = self.ends(cohort, lambda i, y: self.gradient(i, y) - self.slopes[i] + pull * (y - self.x))
        self.slopes[cohort] -= pull * (ends - self.x)
        self.h = self.h - pull * self.p[cohort] @ (ends - self.x)
        self.x = weights @ ends - self.h / pull


@pytest.mark.parametrize("option", ["path", "gradient"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_scaffold_with_some_of_the_clients_is_the_papers(option, size):
    found = models({**STORED, "variate_update": option}, 20, task(WEIGHTS), clients_per_round=size, seed=7)
    np.testing.assert_allclose(found, Scaffold(7, size, option).run(20), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_feddyn_with_some_of_the_clients_is_the_papers(size):
    method = {"name": "feddyn", **WORK, "server_lr": WORK["client_lr"], "prox": 0.4}
    found = models(method, 20, task(WEIGHTS), clients_per_round=size, seed=7)
    np.testing.assert_allclose(found, FedDyn(7, size, 0.4).run(20), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "own", "mean"),
    [
        (STORED, "variate", "mean_variate"),
        ({**STORED, "variate_update": "gradient"}, "variate", "mean_variate"),
        ({"name": "feddyn", **WORK, "prox": 0.4}, "gone", "mean_gone"),
    ],
)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_server_holds_the_mean_of_what_all_clients_keep(method, own, mean, weights):
    running = pack(method, 15, task(weights, noise=0.3), clients_per_round=2, batch_size=1, seed=2)
    running.advance()
    kept = running._lanes[0].now.clients.gather(np.arange(4))[own][0]
    p = np.full(4, 0.25) if weights is None else np.array(weights)
    np.testing.assert_allclose(running._lanes[0].now.state.memory[mean][0, 0], p @ kept.numpy(), rtol=0, atol=1e-13)
    assert np.abs(kept[:, :3].numpy()).max() > 0.01


COHORT = {"clients_per_round": 3, "batch_size": 5, "seed": 3, "server": {"name": "sgd", "momentum": 0.6}}
DIGITS = {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}}


def same(one, two, given=None, tolerance=1e-12, **changes):
    """Two methods do the same, in a cohort with momentum, on noisy quadratics and on digits."""
    for chosen, init in [(task(noise=0.3), INIT), (DIGITS, None)] if given is None else [(given, None)]:
        settings = {**COHORT, "init": init, **changes}
        np.testing.assert_allclose(
            models(one, 6, chosen, **settings), models(two, 6, chosen, **settings), rtol=0, atol=tolerance
        )


def test_limit_cases():
    fedavg = {"name": "fedavg", **WORK}
    same({**STORED, "correction": 0.0}, fedavg)
    same({"name": "mimelite", **WORK, "momentum": 0.0}, fedavg)
    same({"name": "mimelite", **WORK, "momentum": 0.0, "weight_decay": 0.2}, {**fedavg, "weight_decay": 0.2})
    same({"name": "fedga", **WORK, "displacement": 0.0, "reuse_mean_gradient": True}, fedavg)
    same({"name": "fedga", **WORK, "displacement": 0.0, "prox": 0.4}, {"name": "fedprox", **WORK, "prox": 0.4})
    same({"name": "fedexp", **WORK, "epsilon": 1e9}, fedavg)
    same({"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.0}, {"name": "fedsgd", "server_lr": 0.1})
    weights = {"client_lr": 0.05, "gradient_weights": [0, 0, 0, 1], "server_lr": 0.04, "prox": 0.4}
    same({"name": "fomaml", **WORK, "prox": 0.4}, {"name": "local_update", **weights})


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_mime_without_momentum_is_scaffold_on_full_batches(decay):
    work = {**WORK, "weight_decay": decay}
    same({"name": "mime", **work, "momentum": 0.0}, {"name": "scaffold", **work}, DIGITS, batch_size=None)
    same({"name": "mime", **work, "momentum": 0.0}, {"name": "scaffold", **work}, task(), init=INIT)


def test_one_step_of_mime_is_gradient_descent_whatever_the_batches():
    """grad f_i(x; batch) is taken away from itself: only the mean of full gradients is left."""
    one = {"name": "mime", "client_lr": 0.3, "server_lr": 0.1, "local_steps": 1, "momentum": 0.0}
    found = models(one, 6, DIGITS, **{**COHORT, "init": None})
    wanted = models({"name": "fedsgd", "server_lr": 0.1}, 6, DIGITS, **{**COHORT, "init": None, "batch_size": None})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_mimelite_with_one_step_is_the_servers_momentum_a_round_late():
    """d = (1 - momentum) g + momentum m, m of the rounds before: the new momentum itself."""
    held = {"name": "mimelite", "client_lr": 0.0, "server_lr": 0.1, "local_steps": 1, "momentum": 0.6}
    found = models(held, 10)
    wanted = models({"name": "fedsgd", "server_lr": 0.1 * 0.4}, 10, server={"name": "sgd", "momentum": 0.6})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("more", [{}, {"weight_decay": 0.2}, {"client_lr": 0.0}, {"reuse_mean_gradient": True}])
def test_fedga_with_prox_is_its_form_with_a_displacement_at_each_step(more):
    work = {"name": "fedga", **WORK, "displacement": 0.3, "prox": 0.7, **more}
    same(work, {**work, "displacement_form": "each_step"}, tolerance=2e-14)


@pytest.mark.parametrize("source", ["full", "batch"])
def test_regularized_descent_is_gradalign_on_quadratics(source):
    one = {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.3, "displacement_source": source}
    two = {"name": "gradalign", "server_lr": 0.1, "displacement": 0.3, "displacement_source": source}
    for weights in (None, WEIGHTS):
        same(one, two, task(weights), init=INIT, batch_size=None)


def test_with_local_epochs_a_variate_is_the_mean_over_the_clients_own_steps(tmp_path):
    """At client_lr 0 the batches of a pass have the full gradient as their mean, after 3, 2, 1 and 10 steps."""
    sizes = [12, 8, 4, 40]
    labels = np.arange(64) % 3
    inputs = np.random.default_rng(0).standard_normal((64, 5)) + labels[:, None]
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels, client=np.repeat(np.arange(4), sizes))
    given = {"name": "npz", "path": str(tmp_path / "mine.npz"), "test_fraction": 0}
    epochs = {"name": "scaffold", "client_lr": 0.0, "server_lr": 0.05, "local_epochs": 1, "variates": "stored"}
    found = []
    for update in ("path", "gradient"):
        running = pack({**epochs, "variate_update": update}, 1, given, batch_size=4, batching="shuffled", init=None)
        assert running.advance()[-1]["client_gradients"] == 16 * (1 if update == "path" else 2)
        found.append(running._lanes[0].now.clients.gather(np.arange(4))["variate"])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-14)
    assert np.abs(found[0].numpy()).max() > 0.05


HAND = {"name": "quadratic", "hessians": [[[1.0]], [[3.0]]], "centers": [[0.0], [3.0]]}


@pytest.mark.parametrize(
    ("method", "end"),
    [
        # f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 from x = 1: gradients 1 and -6; two steps at 0.1 end at 0.81 and 2.02
        ({"name": "feddyn", "prox": 0.0}, 1 + 2 * 0.415),
        ({"name": "fedexp", "epsilon": 1e-12}, 1 + 0.415 * (0.19**2 + 1.02**2) / 2 / (2 * 0.415**2)),
        ({"name": "fedexp", "epsilon": 10.0}, 1.415),
        ({"name": "scaffold", "variates": "stored"}, 1.415),
        ({"name": "mimelite", "momentum": 0.5}, 1 - 0.1 * 0.5 * (1 + 0.95 - 6 - 6 * 0.85) / 2),
    ],
)
def test_numbers_by_hand(method, end):
    settings = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    assert models({**method, **settings}, 1, HAND, init=[1.0])[1] == pytest.approx([end], abs=1e-9)


def test_fedexp_never_shrinks_a_step_and_settles_with_fedavg():
    fedavg = {"name": "fedavg", **WORK}
    clients = client_quadratics(*losses())
    extrapolated = models({"name": "fedexp", **WORK, "epsilon": 1e-3}, 1)
    plain = models(fedavg, 1)
    one, two = extrapolated[1] - INIT, plain[1] - INIT
    assert np.linalg.norm(one) >= np.linalg.norm(two)
    np.testing.assert_allclose(one / np.linalg.norm(one), two / np.linalg.norm(two), atol=1e-13)
    end = models({"name": "fedexp", **WORK, "epsilon": 1e-1}, 600)[-1]
    np.testing.assert_allclose(end, fixed_point(fedavg, clients), atol=1e-9)


@pytest.mark.parametrize(
    ("method", "costs"),
    [
        # a round of 4 clients, 3 steps, model bytes down and up in models, and gradients; a pass is `passes` batches
        (STORED, lambda passes: (1, 2, 2, 12)),
        ({**STORED, "variate_update": "gradient"}, lambda passes: (1, 2, 2, 12 + passes)),
        (
            {**STORED, "variate_update": "gradient", "displacement_source": "batch"},
            lambda passes: (1, 2, 2, 12 + 4),
        ),
        ({"name": "feddyn", **WORK, "prox": 0.4}, lambda passes: (1, 1, 1, 12)),
        ({"name": "mimelite", **WORK}, lambda passes: (1, 2, 2, 12 + passes)),
        ({"name": "mime", **WORK, "gradient_source": "batch"}, lambda passes: (2, 3, 2, 24 + 4)),
        ({"name": "mime", **WORK}, lambda passes: (2, 3, 2, 24 + passes)),
        ({"name": "fedexp", **WORK}, lambda passes: (1, 1, 1, 12)),
        ({"name": "fedga", **WORK, "displacement": 0.1}, lambda passes: (2, 2, 2, 12 + passes)),
        (
            {"name": "fedga", **WORK, "displacement": 0.1, "reuse_mean_gradient": True},
            lambda passes: (1, 2, 1, 12 + passes),
        ),
        (
            {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.1, "displacement_source": "full"},
            lambda passes: (2, 2, 2, 3 * passes),
        ),
    ],
)
def test_costs_of_a_round(method, costs):
    given = {"name": "digits", "clients": 4, "partition": {"dirichlet": 0.3}}
    if "local_steps" in method:
        method = {**method, "local_steps": 3}
    running = pack(method, 2, given, batch_size=7, init=None)
    line = running.advance()[-1]
    passes = int(np.ceil(running._setting.model.examples / 7).sum())
    exchanges, down, up, gradients = costs(passes)
    one = 4 * len(line["params"]) * 8
    found = [line[name] for name in ("exchanges", "bytes_down", "bytes_up", "client_gradients")]
    assert found == [2 * exchanges, 2 * down * one, 2 * up * one, 2 * gradients]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "feddyn", **WORK}, r"method.prox must be given \(at least 0\)"),
        ({"name": "feddyn", **WORK, "prox": 0.1, "client_lr": 0}, "client_lr must be above 0, got client_lr=0"),
        ({**STORED, "variates": "kept"}, 'variates must be one of fresh, stored, got variates="kept"'),
        ({**STORED, "variate_update": "II"}, 'variate_update must be one of path, gradient, got variate_update="II"'),
        ({"name": "mime", **WORK, "momentum": 1.0}, r"momentum must be in \[0, 1\), got momentum=1"),
        ({"name": "fedexp", **WORK, "epsilon": 0}, "epsilon must be above 0, got epsilon=0"),
        ({"name": "regularized_gd", "server_lr": 0.1}, r"method.misalignment_weight must be given \(at least 0\)"),
    ],
)
def test_bad_settings_are_refused_before_training(method, message):
    with pytest.raises(SpecError, match=message):
        parse({"task": task(), "method": method, "rounds": 1})
