"""Few-shot tasks: what a task holds, MAML, FOMAML and Reptile on them as plain loops, held-out classes, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from trainers.data.folder import find
from trainers.engine.evaluation.after_adaptation import split
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.problem import Problem
from trainers.registry import tasks
from trainers.trial.document import parse

from .datasets import needs

WAYS, SHOTS, QUERIES = 3, 2, 4
FEW = {"ways": WAYS, "shots": SHOTS, "queries": QUERIES, "test_clients": 5}
LETTERS = [chr(ord("a") + number) for number in range(12)]
GENERATOR = np.random.default_rng(1)
NAMED = GENERATOR.permutation(np.repeat(LETTERS, [8] * 11 + [3]))  # of the last letter there are too few
ARRAYS = {
    "x": GENERATOR.standard_normal((len(NAMED), 4)) + (np.unique(NAMED, return_inverse=True)[1] % 5)[:, None],
    "y": NAMED,
    "held": np.isin(NAMED, ["a", "b", "c", "d"]),
}
SHARED = {"rounds": 2, "clients_per_round": 3, "batch_size": WAYS * SHOTS, "batching": "by_class", "dtype": "float64"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("letters")
    np.savez(path / "letters.npz", **ARRAYS)
    later = ARRAYS["x"][ARRAYS["held"]], np.char.add("new ", NAMED[ARRAYS["held"]])
    np.savez(path / "apart.npz", x=ARRAYS["x"], y=NAMED, x_test=later[0], y_test=later[1])
    return path


def task(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"name": "npz", "path": str(folder / "letters.npz"), "clients": 7, "episodes": FEW, **changes}


def built(document: dict[str, Any]) -> tuple[Any, Problem]:
    module = tasks()[document["name"]]
    settings = module.parse(document, "task")
    return settings, module.build(settings, "float64")


def letters_of(problem: Problem, side: str) -> list[list[str]]:
    """The letters of each task's classes, in the order of its class numbers."""
    part = getattr(problem, side)
    names = {tuple(row): name for row, name in zip(ARRAYS["x"].tolist(), NAMED.tolist(), strict=True)}
    found = []
    for first, size in zip(part.offsets.tolist(), part.sizes.tolist(), strict=True):
        rows = [tuple(row) for row in part.inputs[first : first + size].tolist()]
        assert size == len(set(rows)) == WAYS * (SHOTS + QUERIES)  # no example twice
        labels = part.targets[first : first + size]
        own = [{names[row] for row, label in zip(rows, labels, strict=True) if label == way} for way in range(WAYS)]
        assert np.bincount(labels).tolist() == [SHOTS + QUERIES] * WAYS
        assert [len(letters) for letters in own] == [1] * WAYS
        found.append([letters.pop() for letters in own])
    return found


@pytest.mark.parametrize(
    ("changes", "held_out"),
    [
        ({"test_fraction": 0.4}, None),
        ({"test": {"classes": ["b", "a", "k", "c"]}}, {"a", "b", "c", "k"}),
        ({"test": "held"}, {"a", "b", "c", "d"}),
    ],
)
def test_a_task_has_examples_of_some_classes_and_test_tasks_of_others(
    folder: Path, changes: dict[str, Any], held_out: set[str] | None
) -> None:
    settings, problem = built(task(folder, **changes))
    trained, tested = letters_of(problem, "train"), letters_of(problem, "test")
    assert (len(trained), len(tested)) == (7, 5)
    seen, unseen = {name for own in trained for name in own}, {name for own in tested for name in own}
    assert all(len(set(own)) == WAYS for own in [*trained, *tested])
    assert not seen & unseen
    assert "l" not in seen | unseen
    assert held_out is None or unseen <= held_out
    assert len({tuple(own) for own in trained}) > 1
    assert (
        settings.notes[-1] == "task.targets: 1 classes have fewer than shots + queries = 6 examples: no task has them"
    )
    again = tasks()["npz"].parse(settings.document, "task")
    assert again.document == settings.document
    np.testing.assert_array_equal(again.parts.rows, settings.parts.rows)
    more, other = built(task(folder, clients=9, **changes)), built(task(folder, split_seed=1, **changes))
    np.testing.assert_array_equal(more[1].train.inputs[: len(problem.train.inputs)], problem.train.inputs)
    assert (other[1].train.inputs != problem.train.inputs).any()


def test_test_tasks_of_a_file_of_their_own(folder: Path) -> None:
    own = {"inputs": "x_test", "targets": "y_test"}
    settings, problem = built(task(folder, path=str(folder / "apart.npz"), test=own, scale="standardise"))
    assert problem.test.clients == 5
    assert problem.model_settings["classes"] == settings.outputs == WAYS
    assert settings.classes == 16
    assert sorted(np.unique(problem.test.targets)) == [0, 1, 2]


def network(flat: Tensor, inputs: Tensor) -> Tensor:
    """A network of 4 inputs, 5 hidden units and 3 classes."""
    hidden = inputs @ flat[:20].view(5, 4).T + flat[20:25]
    return hidden.relu() @ flat[25:40].view(3, 5).T + flat[40:43]


def slope(flat: Tensor, batch: Any, graph: bool = False) -> Tensor:
    loss = F.cross_entropy(network(flat, batch[0]), batch[1])
    return torch.autograd.grad(loss, flat, create_graph=graph)[0]


def plain(method: str, start: Tensor, tasks_of_rounds: list[Any], steps: int, rates: tuple[float, float]) -> Tensor:
    """The model after training, in a loop over tasks with torch's own differentiation."""
    model = start.clone()
    for batches_of_tasks in tasks_of_rounds:
        total = torch.zeros_like(model)
        for batches in batches_of_tasks:
            begun = model.clone().requires_grad_()
            adapted, summed = begun, torch.zeros_like(model)
            for batch in batches[:steps]:
                gradient = slope(adapted, batch, graph=method == "maml")
                summed, last = summed + gradient.detach(), gradient.detach()
                adapted = (
                    adapted - rates[0] * gradient
                    if method == "maml"
                    else ((adapted - rates[0] * gradient).detach().requires_grad_())
                )
            if method == "maml":
                loss = F.cross_entropy(network(adapted, batches[steps][0]), batches[steps][1])
                last = torch.autograd.grad(loss, begun)[0]
            total += summed if method == "reptile" else last
        model = model - rates[1] * total / len(batches_of_tasks)
    return model


@pytest.mark.parametrize("method", ["maml", "fomaml", "reptile"])
def test_methods_learn_and_adapt_as_plain_loops_do(method: str, folder: Path) -> None:
    document = task(folder, model={"name": "mlp", "hidden": [5]}, test_fraction=0.4)
    rates, steps = (0.3, 0.2), 2
    trial = {
        "task": document,
        "method": {"name": method, "client_lr": rates[0], "server_lr": rates[1], "local_steps": steps},
        "adaptation": {"steps": [0, 2], "client_lr": 0.1, "shots": SHOTS},
        "report": ["params"],
        **SHARED,
    }
    pack = Pack.from_spec(parse(trial))
    rounds = []
    for number in range(2):
        batches = pack._setting.draw(number).batches
        batches.prepare(steps + 1)
        drawn = [batches.batch(step, 3)[0].data for step in range(steps + 1)]
        for data in drawn:
            assert [np.bincount(own).tolist() for own in data["targets"].numpy()] == [[SHOTS] * WAYS] * 3
        rounds.append([[(data["inputs"][place], data["targets"][place]) for data in drawn] for place in range(3)])
    lines = pack.advance()
    wanted = plain(method, torch.tensor(lines[0]["params"], dtype=torch.float64), rounds, steps, rates)
    np.testing.assert_allclose(lines[-1]["params"], wanted.numpy(), rtol=1e-11, atol=1e-12)

    support, query = (part.train for part in split(built(document)[1], 0.5, SHOTS))
    accuracies: dict[int, list[float]] = {0: [], 2: []}
    for place in range(5):
        own = [
            (torch.tensor(part.inputs[rows]), torch.tensor(part.targets[rows]))
            for part in (support, query)
            for rows in [slice(part.offsets[place], part.offsets[place] + part.sizes[place])]
        ]
        assert np.bincount(own[1][1]).tolist() == [QUERIES] * WAYS
        flat = wanted.clone().requires_grad_()
        for count in range(3):
            if count in accuracies:
                accuracies[count].append(float((network(flat, own[1][0]).argmax(1) == own[1][1]).double().mean()))
            flat = (flat - 0.1 * slope(flat, own[0])).detach().requires_grad_()
    for count, values in accuracies.items():
        assert lines[-1][f"adapted_accuracy_{count}"] == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"episodes": {"ways": 1}}, "task.episodes.ways must be at least 2"),
        ({"episodes": {"way": 2}}, 'unknown key "way" in task.episodes'),
        ({"episodes": 5}, 'task.episodes must be like {"ways": 5'),
        ({"episodes": {**FEW, "ways": 10}}, "task.episodes.ways must be at most 9, the classes with shots"),
        ({"episodes": {**FEW, "queries": 7}}, "task.episodes.ways must be at most 0"),
        ({"clients": 10**9}, "task.clients must be at most 59652323: tasks x numbers"),
        ({"partition": "iid"}, "task.partition must be left out beside episodes"),
        ({"client": "y"}, "task.client must be left out beside episodes"),
        ({"central": {"fraction": 0.1}}, "task.central must be left out beside episodes"),
        ({"model": "linear"}, "task.episodes must be left out for numbers"),
        ({"test": {"clients": 0.2}}, 'task.test must hold out classes beside episodes, as {"classes"'),
        ({"test": {"classes": ["z"]}}, 'task.test.classes: no class "z" in the data'),
        ({"test": {"classes": []}}, "task.test.classes must be a list of labels"),
        ({"test": {"classes": ["a"]}}, "task.test.ways must be at most 1"),
        (
            {"episodes": None, "client": None, "partition": "iid", "test": {"classes": ["a"]}},
            'unknown key "classes" in task.test',
        ),
        ({"test": {"path": "letters.npz"}}, "task.test"),
    ],
)
def test_what_is_no_few_shot_task_is_refused(
    changes: dict[str, Any], error: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SpecError) as caught:
        tasks()["npz"].parse(task(folder, **changes), "task")
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_on_both_sides_is_refused(folder: Path) -> None:
    np.savez(folder / "both.npz", **ARRAYS, x_test=ARRAYS["x"], y_test=NAMED)
    document = task(folder, path=str(folder / "both.npz"), test={"inputs": "x_test", "targets": "y_test"})
    with pytest.raises(SpecError, match='must have other classes than training, got class "a"'):
        tasks()["npz"].parse(document, "task")


@pytest.mark.data
@needs("omniglot/images_evaluation.npz")
def test_omniglot_is_turned_and_reduced_by_area() -> None:
    document = {"name": "omniglot", "clients": 40, "episodes": {**FEW, "ways": 5}, "characters": 1200}
    settings, problem = built(document)
    assert settings.document["model"]["name"] == "cnn"
    assert problem.train.inputs.shape == (40 * 30, 1, 28, 28)
    assert (problem.train.inputs.min(), problem.train.inputs.max() <= 1) == (0, True)
    for side in (settings.parts, settings.test):
        assert {len(set((own // 20).tolist())) for own in side} == {5}
    turned = settings.parts.rows // 20 % 4
    assert np.bincount(turned).min() > 200
    assert not set((settings.parts.rows // 80).tolist()) & set((settings.test.rows // 80).tolist())
    row = int(np.flatnonzero(turned == 1)[0])
    character, drawing = settings.parts.rows[row] // 80, settings.parts.rows[row] % 20
    name, first = ("background", 0) if character < 964 else ("evaluation", 964)
    with np.load(find(f"omniglot/images_{name}.npz")) as archive:
        ink = 1 - archive["images"][character - first, drawing].astype(float)
    fine = np.repeat(np.repeat(ink, 4, 0), 4, 1)  # 420 = 4 x 105 = 15 x 28
    wanted = np.rot90(fine.reshape(28, 15, 28, 15).mean((1, 3)))
    np.testing.assert_allclose(problem.train.inputs[row, 0], wanted, atol=1e-12)


def test_each_sinusoid_has_an_amplitude_and_a_phase_of_its_own() -> None:
    settings, problem = built({"name": "sinusoids", "clients": 30, "test_clients": 20, "examples": 12})
    spec = parse(
        {
            "task": settings.document,
            "method": {"name": "maml", "client_lr": 0.02, "server_lr": 0.01, "local_steps": 1},
            "rounds": 1,
            "batch_size": 6,
            "adaptation": {"steps": [1]},
        }
    )
    assert Pack.from_spec(spec)._setting.model.layout.count == 1761  # 1, 40, 40 and 1 units
    waves = []
    for part, clients in ((problem.train, 30), (problem.test, 20)):
        assert part.sizes.tolist() == [12] * clients
        for x, y in zip(part.inputs.reshape(clients, 12), part.targets.reshape(clients, 12), strict=True):
            assert np.abs(x).max() <= 5
            (sine, cosine), rest, *_ = np.linalg.lstsq(np.stack([np.sin(x), -np.cos(x)], 1), y, rcond=None)
            assert float(rest[0]) < 1e-20
            waves.append((float(np.hypot(sine, cosine)), float(np.arctan2(cosine, sine))))
    amplitudes, phases = np.array(waves).T
    assert len(set(amplitudes.round(9))) == 50
    assert (amplitudes.min() >= 0.1, amplitudes.max() <= 5) == (True, True)
    assert (phases.min() >= 0, phases.max() <= np.pi) == (True, True)
    assert np.corrcoef(amplitudes, phases)[0, 1] == pytest.approx(0, abs=0.5)
    assert amplitudes.std() == pytest.approx(4.9 / 12**0.5, rel=0.3)
    line = Pack.from_spec(spec).advance()[-1]
    assert {"test_loss", "adapted_loss_1"} <= line.keys()
    with pytest.raises(SpecError, match="clients x examples must be at most"):
        tasks()["sinusoids"].parse({"name": "sinusoids", "clients": 10**6, "examples": 1000}, "task")
