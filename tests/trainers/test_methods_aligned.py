"""SCAFFOLD, FedGA, GradAlign and linear scaling: closed forms, identities, limits and costs, through whole trials."""

import itertools

import numpy as np
import pytest

from search_spaces.methods import aligned_linear_scaling, fedga, gradalign, scaffold
from search_spaces.spaces import grid_size
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import fixed_point, round_map
from trainers.trial.document import parse

WEIGHTS = [0.1, 0.4, 0.3, 0.2]
INIT = [2.0, -1.0, 0.5]
WORK = {"client_lr": 0.05, "server_lr": 0.04, "local_steps": 4}
HAND = {"name": "quadratic", "hessians": [[[1.0]], [[3.0]]], "centers": [[0.0], [3.0]]}


def losses(seed=0, clients=4, dimension=3, equal=False):
    """Hessians with eigenvalues in [0.5, 4], and centers."""
    generator = np.random.default_rng(seed)
    bases = np.linalg.qr(generator.standard_normal((clients, dimension, dimension)))[0]
    values = generator.uniform(0.5, 4.0, (clients, dimension))
    hessians = np.einsum("ijk,ik,ilk->ijl", bases, values, bases)
    hessians = (hessians + hessians.transpose(0, 2, 1)) / 2
    return np.repeat(hessians[:1], clients, 0) if equal else hessians, generator.standard_normal((clients, dimension))


def task(weights=None, **options):
    hessians, centers = losses(**options)
    more = {} if weights is None else {"client_weights": weights}
    return {"name": "quadratic", "hessians": hessians.tolist(), "centers": centers.tolist(), **more}


def train(method, rounds=1, given=None, **changes):
    """Report lines of a trial; with members, of all of them."""
    document = {
        "task": given or task(),
        "method": method,
        "rounds": rounds,
        "dtype": "float64",
        "init": INIT,
        "report": ["params"],
        **changes,
    }
    return Pack.from_spec(parse(document)).advance()


def models(*arguments, **more):
    """(rounds + 1, parameters)."""
    return np.array([line["params"] for line in train(*arguments, **more)])


CLOSED = [
    {"name": "scaffold", **WORK},
    {"name": "scaffold", **WORK, "correction": 0.5, "weight_decay": 0.3},
    {"name": "scaffold", **WORK, "displacement_source": "batch"},
    {"name": "fedga", **WORK, "displacement": 0.2},
    {"name": "fedga", **WORK, "displacement": 0.2, "displacement_form": "each_step", "weight_decay": 0.3},
    {"name": "fedga", **WORK, "displacement": 0.2, "displacement_source": "batch", "weight_decay": 0.3},
    {"name": "gradalign", "server_lr": 0.1, "displacement": 0.2},
    {"name": "gradalign", "server_lr": 0.1, "displacement": 0.2, "displacement_source": "full", "weight_decay": 0.3},
]


@pytest.mark.parametrize("method", CLOSED)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("server", [{"name": "sgd"}, {"name": "sgd", "momentum": 0.5, "nesterov": True}])
def test_rounds_follow_the_closed_form(method, weights, server):
    clients = client_quadratics(*losses(), weights)
    wanted = round_map(method, clients, server).after(INIT, 12)
    found = models(method, 12, task(weights), server=server)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    assert np.abs(found[12] - found[11]).max() > 1e-4


@pytest.mark.parametrize("method", CLOSED)
def test_training_ends_at_the_predicted_fixed_point(method):
    clients = client_quadratics(*losses(), WEIGHTS)
    end = models({**method, "server_lr": 0.1}, 150, task(WEIGHTS), eval_every=150)[-1]
    np.testing.assert_allclose(end, fixed_point(method, clients), atol=1e-10)


def test_scaffold_finds_the_optimum_where_fedavg_does_not():
    hessians, centers = losses()
    optimum = np.linalg.solve(hessians.mean(0), np.einsum("ijk,ik->j", hessians, centers) / 4)
    ends = {name: models({"name": name, **WORK, "server_lr": 0.1}, 150)[-1] for name in ("scaffold", "fedavg")}
    np.testing.assert_allclose(ends["scaffold"], optimum, atol=1e-10)
    assert np.linalg.norm(ends["fedavg"] - optimum) > 1e-2


def test_with_equal_hessians_scaffold_is_gradient_descent():
    given = task(equal=True)
    work = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 5}
    descent = models({"name": "fedsgd", "server_lr": 0.1}, 300, given)
    np.testing.assert_allclose(models({"name": "scaffold", **work}, 60, given), descent[::5], atol=1e-13)
    optimum = losses(equal=True)[1].mean(0)
    np.testing.assert_allclose(descent[-1], optimum, atol=1e-10)


def test_two_steps_of_scaffold_are_two_of_gradient_descent():
    work = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    descent = models({"name": "fedsgd", "server_lr": 0.1}, 8)
    np.testing.assert_allclose(models({"name": "scaffold", **work}, 4), descent[::2], atol=1e-14)


def test_gradalign_minimizes_the_loss_plus_the_misalignment():
    end = models({"name": "gradalign", "server_lr": 0.1, "displacement": 0.15}, 300)[-1]
    weighted = {"name": "regularized_gd", "misalignment_weight": 0.15}
    np.testing.assert_allclose(end, fixed_point(weighted, client_quadratics(*losses())), atol=1e-10)


HAND_WORK = {"client_lr": 0.1, "server_lr": 0.1}


@pytest.mark.parametrize(
    ("method", "ends"),
    [
        ({"name": "fedsgd", "server_lr": 0.1}, 1.25),
        ({"name": "gradalign", "server_lr": 0.1, "displacement": 0.05}, 1.2675),
        ({"name": "fedavg", **HAND_WORK}, (1.25, 1.415, 1.5215)),
        ({"name": "fedga", **HAND_WORK, "displacement": 0.05}, (1.2675, 1.443, 1.555275)),
        ({"name": "fedga", **HAND_WORK, "displacement": 0.2}, (1.32, 1.527, 1.6566)),
        ({"name": "scaffold", **HAND_WORK}, (1.25, 1.45, 1.6125)),
        ({"name": "fedprox", **HAND_WORK, "prox": 1.0}, (1.25, 1.39, 1.466)),
        ({"name": "linear_scaling", "server_lr": 0.1}, 1.5),
        ({"name": "aligned_linear_scaling", **HAND_WORK}, 1.485),
    ],
)
def test_numbers_by_hand(method, ends):
    """f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 from x = 1: gradients 1 and -6; ends after 1, 2 and 3 local steps."""
    settings = [{}] if isinstance(ends, float) else [{"local_steps": steps} for steps in (1, 2, 3)]
    lines = train(method, 1, HAND, init=[1.0], members=settings)
    found = [line["params"][0] for line in lines if line["round"] == 1]
    assert found == pytest.approx(np.atleast_1d(ends).tolist(), abs=1e-14)


NOISY = {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3, "gradient_noise": 0.3}
DIGITS = {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}}
COHORT = {"clients_per_round": 4, "batch_size": 5, "seed": 3, "server": {"name": "sgd", "momentum": 0.6}}


def same(one, two, rounds=5, tolerance=1e-12, given=(NOISY, DIGITS), metrics=("train_loss", "update_norm")):
    """Two methods do the same on noisy quadratics and on digits, in a cohort with momentum."""
    for chosen in given:
        init = {} if chosen is NOISY else {"init": None}
        lines, others = (train(method, rounds, chosen, **{**COHORT, **init}) for method in (one, two))
        for line, other in itertools.zip_longest(lines, others):
            np.testing.assert_allclose(line["params"], other["params"], rtol=0, atol=tolerance)
            for name in metrics:
                wanted = other[name] if other[name] is None else pytest.approx(other[name], abs=tolerance)
                assert line[name] == wanted


@pytest.mark.parametrize("source", ["full", "batch"])
@pytest.mark.parametrize("more", [{}, {"weight_decay": 0.2}, {"client_lr": 0.0}])
def test_fedga_is_its_form_with_a_displacement_at_each_step(source, more):
    work = {"name": "fedga", **WORK, "displacement": 0.3, "displacement_source": source, **more}
    same(work, {**work, "displacement_form": "each_step"}, tolerance=1e-14, metrics=())


def test_fedga_is_its_other_form_with_local_epochs():
    work = {"name": "fedga", "client_lr": 0.05, "server_lr": 0.05, "local_epochs": 2, "displacement": 0.3}
    same(work, {**work, "displacement_form": "each_step"}, tolerance=1e-14, given=(DIGITS,), metrics=())


def test_without_displacement_or_correction_they_are_fedavg():
    fedavg = {"name": "fedavg", **WORK}
    for form in ("once", "each_step"):
        same({"name": "fedga", **WORK, "displacement": 0.0, "displacement_form": form}, fedavg)
    same({"name": "scaffold", **WORK, "correction": 0.0}, fedavg)
    same({"name": "gradalign", "server_lr": 0.1, "displacement": 0.0}, {"name": "fedsgd", "server_lr": 0.1})


@pytest.mark.parametrize("source", ["full", "batch"])
def test_one_step_of_scaffold_is_fedsgd(source):
    one = {"name": "scaffold", "client_lr": 0.3, "server_lr": 0.1, "local_steps": 1, "displacement_source": source}
    same(one, {"name": "fedsgd", "server_lr": 0.1})
    # the loss is that of the broadcast model on the first batches; steps at rate 0 are a larger batch
    larger = {"name": "fedsgd", "server_lr": 0.1, "local_steps": 3}
    same({**one, "client_lr": 0.0, "local_steps": 3}, larger)


@pytest.mark.parametrize("source", ["full", "batch"])
def test_one_step_of_fedga_is_gradalign(source):
    shared = {"server_lr": 0.1, "displacement": 0.3, "displacement_source": source, "weight_decay": 0.1}
    same({"name": "fedga", "client_lr": 0.3, "local_steps": 1, **shared}, {"name": "gradalign", **shared})


def test_linear_scaling_is_fedsgd_at_a_larger_rate_and_the_limit_of_its_aligned_form():
    linear = {"name": "linear_scaling", "server_lr": 0.02, "weight_decay": 0.1}
    lines = [train(m, 5, NOISY, **COHORT) for m in (linear, {**linear, "name": "fedsgd", "server_lr": 0.08})]
    for line, other in zip(*lines, strict=True):
        np.testing.assert_allclose(line["params"], other["params"], rtol=0, atol=1e-12)
    same({**linear, "name": "aligned_linear_scaling", "client_lr": 0.0}, linear)


def test_aligned_linear_scaling_with_decay_is_that_of_the_decayed_losses():
    hessians, centers = losses()
    decayed = hessians + 0.4 * np.eye(3)
    moved = np.linalg.solve(decayed, np.einsum("ijk,ik->ij", hessians, centers)[..., None])[..., 0]
    given = {"name": "quadratic", "hessians": decayed.tolist(), "centers": moved.tolist()}
    method = {"name": "aligned_linear_scaling", "client_lr": 0.03, "server_lr": 0.02}
    found = models({**method, "weight_decay": 0.4}, 5)
    np.testing.assert_allclose(found, models(method, 5, given), atol=1e-13)


def test_a_full_gradient_counts_as_the_batches_of_a_pass():
    sizes = np.array(examples(DIGITS))
    passes = int(np.ceil(sizes / 5).sum())
    changes = {"batch_size": 5, "init": None}
    full = train({"name": "scaffold", **WORK}, 2, DIGITS, **changes)[-1]
    batch = train({"name": "scaffold", **WORK, "displacement_source": "batch"}, 2, DIGITS, **changes)[-1]
    assert full["client_gradients"] == 2 * (passes + 8 * 4)
    assert batch["client_gradients"] == 2 * (8 + 8 * 4)
    everything = train({"name": "scaffold", **WORK}, 2, DIGITS, init=None, batch_size=None)[-1]
    assert everything["client_gradients"] == 2 * (8 + 8 * 4)
    model_bytes = 8 * len(full["params"]) * 8
    for line in (full, batch, everything):
        assert (line["exchanges"], line["bytes_down"], line["bytes_up"]) == (4, 4 * model_bytes, 4 * model_bytes)


def examples(chosen):
    spec = parse({"task": chosen, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
    return Pack.from_spec(spec)._setting.model.examples


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "fedga", **WORK}, r"method.displacement must be given \(at least 0\)"),
        ({"name": "fedga", **WORK, "displacement": -0.1}, "displacement must be at least 0, got displacement=-0.1"),
        (
            {"name": "fedga", **WORK, "displacement": 0.1, "displacement_form": "twice"},
            'displacement_form must be one of once, each_step, got displacement_form="twice"',
        ),
        (
            {"name": "gradalign", "server_lr": 0.1, "displacement": 0.1, "displacement_source": "some"},
            'displacement_source must be one of full, batch, got displacement_source="some"',
        ),
        ({"name": "scaffold", **WORK, "correction": 2}, r"correction must be in \[0, 1\], got correction=2"),
        ({"name": "scaffold", **WORK, "local_epochs": 2}, "local_epochs"),
        ({"name": "scaffold", **WORK, "displacement": 0.1}, "displacement"),
        ({"name": "gradalign", "server_lr": 0.1, "displacement": 0.1, "local_steps": 2}, "local_steps"),
        ({"name": "linear_scaling", "server_lr": 0.1, "client_lr": 0.1}, "client_lr"),
    ],
)
def test_bad_settings_are_refused_before_training(method, message):
    with pytest.raises(SpecError, match=message):
        parse({"task": task(), "method": method, "rounds": 1})


def test_papers_grids_have_the_papers_numbers():
    assert [grid_size(scaffold.emnist()), grid_size(scaffold.cifar10())] == [32, 16]
    assert [grid_size(fedga.emnist(0.025)), grid_size(fedga.cifar10(2.5)), grid_size(gradalign.cifar10(2.0))] == [
        32,
        16,
        8,
    ]
    assert fedga.emnist(0.025)["displacement"].options == (0.025,)
    best = {name: value for name, value in fedga.cifar10(2.5).items() if name != "displacement"}
    staged = fedga.displacements(best, fedga.alignment.coarse_displacements())
    assert staged["displacement"].options == (0.01, 0.1, 1.0, 5.0)
    assert grid_size(staged) == 4 * grid_size(best)
    for name, space in [("fedga", staged), ("aligned_linear_scaling", aligned_linear_scaling.one_rate())]:
        setting = {key: parameter.grid()[0] for key, parameter in space.items()}
        assert parse({"task": task(), "method": {"name": name, **setting}, "rounds": 1}).method.name == name
