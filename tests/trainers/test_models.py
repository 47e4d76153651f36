"""Networks as models: chosen by name with settings, the same start everywhere, chance that is no history."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from trainers.data.federated import choose_model
from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.errors import SpecError
from trainers.hyperparameters import describe
from trainers.models import _dropout as dropout
from trainers.models import cnn, mlp
from trainers.models._augmentation import moved
from trainers.problem import Examples, Problem
from trainers.registry import models
from trainers.trial.document import parse

from .documents import fedavg, wrong
from .members import as_if_alone as of

CPU, META = torch.device("cpu"), torch.device("meta")
MLP = {"name": "mlp", "hidden": [12, 7], "dropout": 0.2}
CNN = {"name": "cnn", "filters": [3, 4], "kernel": 3, "dense": 10, "dropout": 0.25, "crop": 1, "flip": True}


def document(model, **changes):
    task = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}, "model": model}
    return fedavg(task=task, **changes)


def problem(shape=(1, 28, 28), classes=62, rows=4, **settings):
    generator = np.random.default_rng(0)
    sizes = np.array([rows - 1, 1])
    data = Examples(
        generator.random((rows, *shape)), generator.integers(0, classes, rows), np.array([0, rows - 1]), sizes
    )
    return Problem("", data, test=data, model_settings={"classes": classes, **settings})


def forced(spec, oracle):
    plan = Plan(oracle, spec.members, torch.get_num_threads(), "cpu", spec.dtype, 1)
    return Pack.from_spec(spec, plan=plan)


@pytest.mark.parametrize("name", [name for name in models() if models()[name].Settings is not None])
def test_settings_say_range_and_meaning(name):
    module = models()[name]
    for item in describe(module.Settings):
        assert item.doc
        assert not item.required
        assert item.kind in ("bool", "str") or item.choices or item.low is not None
        assert not item.traced
        assert item.name in module.__doc__


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ({"name": "mlp", "hiden": [3]}, 'unknown key "hiden" in task.model: did you mean hidden'),
        ({"name": "mlp", "hidden": []}, "task.model.hidden must be a list of at least one number"),
        ({"name": "mlp", "hidden": [3.5]}, "task.model.hidden.0 must be a whole number"),
        ({"name": "mlp", "hidden": [0]}, "task.model.hidden.0 must be in [1, 100000000]"),
        ({"name": "mlp", "dropout": 1.0}, "task.model.dropout must be in"),
        ({"name": "cnn", "preset": "femnst"}, 'task.model.preset: no preset "femnst": did you mean femnist?'),
        (
            {"name": "cnn", "dropout": [0.1, 0.2, 0.3]},
            "task.model.dropout must be a number, or 2 numbers, one for each",
        ),
        ({"name": "cnn", "groups": 3}, "task.model.groups must divide all filters, got groups=3 for 16"),
    ],
)
def test_wrong_settings_are_refused(model, wanted):
    assert wanted in str(wrong(document(model)))


@pytest.mark.parametrize(
    ("document", "shape", "classes", "count"),
    [
        ("mlp", (1, 28, 28), 62, 784 * 256 + 256 + 256 * 62 + 62),
        ({"name": "mlp", "hidden": [10, 5]}, (1, 28, 28), 3, 7850 + 55 + 18),
        ("cnn", (1, 28, 28), 62, 430_846),
        ({"name": "cnn", "filters": [32, 64], "dense": 512}, (1, 28, 28), 62, 1_690_046),
        ({"name": "cnn", "preset": "femnist"}, (1, 28, 28), 62, 1_690_046),
        ({"name": "cnn", "preset": "femnist"}, (1, 28, 28), 10, 1_663_370),
        ({"name": "cnn", "preset": "femnist_dropout"}, (1, 28, 28), 62, 1_206_590),
        ({"name": "cnn", "preset": "femnist_dropout"}, (1, 28, 28), 10, 1_199_882),
        ({"name": "cnn", "preset": "leaf"}, (1, 28, 28), 62, 6_603_710),
        ({"name": "cnn", "preset": "cifar10"}, (3, 24, 24), 10, 1_068_298),
        ({"name": "cnn", "preset": "niid_bench"}, (3, 32, 32), 10, 62_006),
        ({"name": "cnn", "preset": "niid_bench"}, (1, 28, 28), 10, 44_426),
        ({"name": "cnn", "preset": "omniglot"}, (1, 28, 28), 5, 112_261),
        ("resnet", (3, 32, 32), 10, 11_173_962),
        ("resnet", (3, 24, 24), 100, 11_220_132),
    ],
)
def test_networks_of_papers_have_their_numbers_of_parameters(document, shape, classes, count):
    name, settings, named = choose_model(document, "task.model")
    assert choose_model(named, "task.model") == (name, settings, named)
    data = replace(problem(shape, classes=classes), model_settings={"classes": classes, **settings})
    with META:
        assert models()[name].build(data, torch.float32, META).layout.count == count


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(SpecError, match=r"cnn must get images .* got inputs \(examples, 12\)"):
        cnn.build(problem((12,)), torch.float32, CPU)
    for shape, advice in (
        ((28, 28), r"reshape images of one channel to \(examples, 1, 28, 28\), or use mlp or softmax"),
        ((16, 16, 3), r"got inputs \(examples, 16, 16, 3\), channels last: save x.transpose\(0, 3, 1, 2\)"),
        ((28, 28, 1), "channels last"),
    ):
        with pytest.raises(SpecError, match=advice):
            cnn.build(problem(shape, filters=[2]), torch.float32, CPU)
    with pytest.raises(SpecError, match="filters must be at most 2 for images of 7 x 4"):
        cnn.build(problem((1, 7, 4), filters=[2, 2, 2]), torch.float32, CPU)
    assert cnn.build(problem((3, 7, 4), filters=[2, 2]), torch.float32, CPU).layout.count > 0


def test_the_start_is_torchs_own_and_depends_on_the_seed_only():
    data = problem((1, 8, 8), classes=3)
    before = torch.get_rng_state()
    model = mlp.build(data, torch.float32, CPU)
    first = model.start(None, 5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    assert torch.equal(mlp.build(data, torch.float32, CPU).start(None, 5), first)
    double = mlp.build(data, torch.float64, CPU).start(None, 5)
    assert torch.equal(double, first.double())
    assert not torch.equal(model.start(None, 6), first)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(randomness.key(5, 0, randomness.Purpose.START))
        module = model.make()
    for name, view in model.layout.views(first).items():
        assert torch.equal(view, dict(module.named_parameters())[name])


def test_dropout_leaves_out_its_share_and_keeps_the_mean():
    layer = dropout.Dropout(0.3, 0)
    words = torch.from_numpy(randomness.hashed(7, np.arange(40)[:, None], np.arange(100)).view(np.int64).reshape(-1))
    values = torch.ones(len(words), 50, dtype=torch.float64)
    assert layer(values) is values
    with dropout.keyed((layer,), dropout.dropout_keys(words)):
        out = layer(values)
    kept = (out != 0).double()
    assert set(out.unique().tolist()) == {0.0, 1 / 0.7}
    assert kept.mean().item() == pytest.approx(0.7, abs=4 * (0.21 / kept.numel()) ** 0.5)
    for axis, count in ((0, len(words)), (1, 50)):  # no unit and no example is favoured
        assert (kept.mean(axis) - 0.7).abs().max() < 5 * (0.21 / count) ** 0.5
    assert np.abs(np.corrcoef(kept.T.numpy())[np.triu_indices(50, 1)]).max() < 5 / len(words) ** 0.5
    assert layer.keys is None


def test_dropout_differs_between_layers_steps_clients_and_rounds():
    model = mlp.build(problem((3,), classes=2, rows=9, hidden=[40, 40], dropout=0.5), torch.float64, CPU)
    assert [layer.number for layer in model.dropouts] == [0, 1]

    def masks(round_index, client, step):
        batches = model.source(0, 1, "with_replacement").round(round_index, np.array([client]))
        keys = batches.batch(step, 1)[0].data["keys"][0]
        with dropout.keyed(model.dropouts, keys):
            return [tuple((layer(torch.ones(1, 40)) != 0)[0].tolist()) for layer in model.dropouts]

    found = [mask for place in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)) for mask in masks(*place)]
    assert len(set(found)) == 8
    assert masks(1, 0, 0) == masks(1, 0, 0)


def test_nothing_is_left_out_in_evaluations_and_on_all_data():
    varied = cnn.build(problem((2, 6, 6), classes=3, rows=8, dropout=0.5, crop=2, flip=True), torch.float64, CPU)
    plain = cnn.build(problem((2, 6, 6), classes=3, rows=8), torch.float64, CPU)
    params = plain.start(None, 0).view(1, 1, -1)
    one, other = (model.source(0, None, "shuffled").round(0, np.arange(2)) for model in (varied, plain))
    assert other.always_full
    assert not one.always_full
    loss = plain.oracles["loop"].value(params, other.full())
    assert torch.equal(varied.oracles["loop"].value(params, one.full()), loss)
    assert torch.equal(plain.oracles["loop"].value(params, other.batch(0, 2)), loss)
    steps = [varied.oracles["loop"].value(params, one.batch(step, 2)) for step in (0, 1)]
    assert not torch.equal(steps[0], loss)
    assert not torch.equal(steps[0], steps[1])
    for name, value in plain.evaluate(params).items():
        assert torch.equal(varied.evaluate(params)[name], value)


def test_pictures_move_by_up_to_crop_and_are_mirrored():
    generator = np.random.default_rng(0)
    pictures = torch.from_numpy(generator.random((2, 300, 3, 4, 5)) + 1)
    words = torch.from_numpy(randomness.hashed(1, np.arange(2)[:, None], np.arange(300)).view(np.int64))
    found = moved(pictures, words, 1, True)
    assert found.shape == pictures.shape
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    counts = dict.fromkeys(range(18), 0)
    for place in range(2):
        for old, new in zip(pictures[place].numpy(), found[place].numpy(), strict=True):
            matches = []
            for flip in (False, True):
                padded = np.pad(old, ((0, 0), (1, 1), (1, 1)))
                for down in range(3):
                    for right in range(3):
                        cut = padded[:, down : down + 4, right : right + 5]
                        if np.array_equal(cut[..., ::-1] if flip else cut, new):
                            matches.append(flip * 9 + down * 3 + right)
            assert len(matches) == 1
            counts[matches[0]] += 1
    assert min(counts.values()) > 15  # of 33 on average
    assert torch.equal(moved(pictures, words, 0, False), pictures)


def test_large_batches_are_cut_into_pieces_without_a_change(monkeypatch):
    examples = problem((1, 4, 4), classes=3, rows=60, filters=[2], dropout=0.3)
    model = cnn.build(examples, torch.float64, CPU)
    params = model.start(None, 0).view(1, 1, -1)
    batch = model.source(0, None, "shuffled").round(0, np.arange(2)).batch(0, 2)
    whole = {name: oracle.value_and_grad(params, batch) for name, oracle in model.oracles.items()}
    evaluated = model.evaluate(params), model.full_loss(params, np.array([0.3, 0.7]))
    monkeypatch.setattr("trainers.models._network.LOOP_EXAMPLES", 7)
    monkeypatch.setattr("trainers.models._network.VMAP_EXAMPLES", 9)
    monkeypatch.setattr("trainers.models._network._EVALUATED", 11)
    model = cnn.build(examples, torch.float64, CPU)
    for name, oracle in model.oracles.items():
        for held, wanted in zip(oracle.value_and_grad(params, batch), whole[name], strict=True):
            torch.testing.assert_close(held, wanted, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(model.evaluate(params), evaluated[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(model.full_loss(params, np.array([0.3, 0.7])), evaluated[1], rtol=1e-12, atol=0)


def test_modules_keep_no_replicas_alive():
    model = mlp.build(problem((4,), classes=3), torch.float64, CPU)
    own = [parameter.data_ptr() for parameter in model.module.parameters()]
    params = model.start(None, 0).view(1, 1, -1)
    model.oracles["loop"].value_and_grad(params, model.source(0, 2, "shuffled").round(0, np.arange(2)).batch(0, 2))
    assert [parameter.data_ptr() for parameter in model.module.parameters()] == own


@pytest.mark.parametrize("model", ["softmax", MLP])
def test_losses_and_accuracies_are_means_of_those_of_the_clients(model):
    """Statistics over clients are in test_targets.py."""
    generator = np.random.default_rng(0)
    sizes = np.array([5, 1, 9])
    data = Examples(generator.random((15, 4)), generator.integers(0, 3, 15), np.cumsum(sizes) - sizes, sizes)
    settings = {key: value for key, value in model.items() if key != "name"} if isinstance(model, dict) else {}
    name = model if isinstance(model, str) else model["name"]
    built = models()[name].build(Problem(name, data, test=data, model_settings={"classes": 3, **settings}),
                                 torch.float64, CPU)  # fmt: skip
    params = torch.stack([torch.linspace(-1, 1, built.layout.count, dtype=torch.float64).roll(n) for n in range(3)])
    params = built.layout.row(params.sin() * 3)[:, None]
    batches = built.source(0, None, "shuffled").round(0, np.arange(3))
    order = np.argsort(batches.clients)
    losses = built.oracles["autograd"].value(params, batches.full()).numpy()[:, order]
    weights = np.array([0.2, 0.5, 0.3])
    assert built.full_loss(params, weights).numpy() == pytest.approx(losses @ weights, rel=1e-12)
    shares = built.accuracy(params, batches.full()).numpy()[:, order]
    found = built.evaluate(params)
    assert found["test_accuracy"].numpy() == pytest.approx(shares @ sizes / 15)
    assert found["test_loss"].numpy() == pytest.approx(losses @ sizes / 15, rel=1e-12)


@pytest.mark.parametrize("room", [0, 5000, 1 << 26])
def test_batches_that_are_forgotten_come_again(room, monkeypatch):
    settings = [{"local_steps": 3}, {"local_steps": 2, "client_lr": 0.3}]
    spec = parse(document(CNN, members=settings, rounds=2))
    wanted = forced(spec, "loop").advance()
    monkeypatch.setattr("trainers.engine.batches.examples._KEPT_BYTES", room)
    lines = forced(spec, "loop").advance()
    assert [of(lines, member) for member in (0, 1)] == [of(wanted, member) for member in (0, 1)]


@pytest.mark.parametrize("shape", [(1, 6, 4), (3, 6, 4)])
def test_pictures_lie_channels_last_everywhere(shape):
    model = cnn.build(problem(shape, classes=3, rows=8, filters=[2], crop=1), torch.float32, CPU)
    seen = []
    model.module.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    params = model.start(None, 0).view(1, 1, -1)
    batches = model.source(0, 2, "shuffled").round(0, np.arange(2))
    model.oracles["loop"].value_and_grad(params, batches.batch(0, 2))
    model.oracles["loop"].value(params, batches.full())
    model.evaluate(params)
    model.full_loss(params, np.array([0.5, 0.5]))
    assert len(seen) == 6
    for pictures in seen:
        assert pictures.shape[1:] == shape
        assert pictures.stride() == (shape[0] * 24, 1, shape[0] * 4, shape[0])
