"""Histories of items: the examples, the two towers, and a server whose loss is a formula."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainers import Pack, parse
from trainers.data.histories import Histories, Log, numbered, sortable
from trainers.errors import SpecError
from trainers.models import dual_encoder, own_module
from trainers.problem import Examples, Problem
from trainers.tasks import data
from trainers.trial import sizes

from .members import contract
from .table_forms import write

CPU = torch.device("cpu")
ITEMS, CONTEXT, MARGIN, WEIGHT = 7, 3, 0.8, 0.05
WIDTH = 4
MODEL = {"name": "dual_encoder", "embedding": WIDTH, "margin": MARGIN}
GENERATOR = np.random.default_rng(3)
ROWS = [
    {"who": f"c{client}", "film": f"film {GENERATOR.integers(ITEMS)}", "at": int(GENERATOR.permutation(90)[0])}
    for client in range(5)
    for _ in range(9 + 2 * client)
]


def keys(folder: Path, **more: Any) -> dict[str, Any]:
    path = folder / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    task = {"name": "data", "path": str(path), "kind": "pairs", "inputs": "film", "client": "who", "order": "at"}
    return {**task, "context": CONTEXT, "model": MODEL, **more}


def expected() -> list[tuple[list[int], int]]:
    """The examples of all clients, one after the other, item by item."""
    names = sorted({row["film"] for row in ROWS})
    found = []
    for client in sorted({row["who"] for row in ROWS}):
        own = [names.index(row["film"]) for row in sorted(ROWS, key=lambda row: row["at"]) if row["who"] == client]
        for place in range(1, len(own)):
            before = [0] * CONTEXT + [item + 1 for item in own[:place]]
            found.append((before[-CONTEXT:], own[place]))
    return found


def test_an_example_is_an_item_and_those_before_it(tmp_path: Path) -> None:
    task = data.parse(keys(tmp_path, test_fraction=0), "task")
    train = data.build(task, "float64").train
    assert isinstance(train, Examples)
    assert list(zip(train.inputs.tolist(), train.targets.tolist(), strict=True)) == expected()
    assert train.sizes.tolist() == [8, 10, 12, 14, 16]
    assert task.outputs == ITEMS
    assert task.notes == ()
    assert sizes.parameters(task) == WIDTH * (ITEMS + 1) + WIDTH * (WIDTH + 1)


def test_rows_of_equal_order_stay_in_theirs() -> None:
    log = Log(np.array([5, 3, 4, 9]), np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0]))
    [examples], _ = numbered([log], Histories(2), "task")
    assert examples.before.tolist() == [[0, 2], [2, 3]]
    assert examples.rows.tolist() == [0, 1]


def test_held_out_rows_keep_their_histories(tmp_path: Path) -> None:
    for row in ROWS:
        row["held"] = row["who"] == "c4"
    task = data.parse(keys(tmp_path, test="held", partition="natural"), "task")
    problem = data.build(task, "float64")
    assert isinstance(problem.test, Examples)
    assert list(zip(problem.test.inputs.tolist(), problem.test.targets.tolist(), strict=True)) == expected()[-16:]


HELD_OUT = {"who": ["z", "z", "y", "z"], "film": ["film 1", "film 2", "film 3", "film 0"], "at": [3, 1, 5, 2]}


@pytest.mark.parametrize("where", ["file", "folder", "columns"])
def test_histories_for_testing_are_in_their_own_order(tmp_path: Path, where: str) -> None:
    columns = {name: [row[name] for row in ROWS[:4]] for name in HELD_OUT}  # as many rows, in another order
    columns |= {"who": ["a"] * 4, "at": [1, 2, 3, 4]}
    write(tmp_path / "train.csv", columns)
    write(tmp_path / "test.csv", HELD_OUT)
    np.savez(tmp_path / "own.npz", **columns, **{f"{name}_held": column for name, column in HELD_OUT.items()})
    changes: dict[str, Any] = {
        "file": {"path": str(tmp_path / "train.csv"), "test": {"path": str(tmp_path / "test.csv")}},
        "folder": {"path": str(tmp_path), "format": "csv"},
        "columns": {
            "path": str(tmp_path / "own.npz"),
            "test": {"inputs": "film_held", "client": "who_held", "order": "at_held"},
        },
    }[where]
    task = data.parse(keys(tmp_path, **changes), "task")
    assert data.parse(task.document, "task").document == task.document
    test, names = data.build(task, "float64").test, sorted({*columns["film"], *HELD_OUT["film"]})
    assert test is not None
    first, second, third = (names.index(f"film {item}") for item in (2, 0, 1))
    assert test.inputs.tolist() == [[0, 0, first + 1], [0, first + 1, second + 1]]
    assert test.targets.tolist() == [second, third]


def test_large_numbers_of_items_stay_apart() -> None:
    log = Log(np.array([2**62, 2**62 + 1, 2**62 + 2]), np.zeros(3, np.int64))
    other = Log(np.array([2**63, 2**63 + 1], np.uint64), np.zeros(2, np.int64))
    examples, count = numbered([log, other], Histories(1), "task")
    assert count == 5
    assert [one.items.tolist() for one in examples] == [[1, 2], [4]]


def test_items_of_a_module_of_ones_own_begin_with_none(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def make(vocabulary, outputs):\n"
        "    return nn.Sequential(nn.Embedding(vocabulary, 4), nn.Flatten(), nn.LazyLinear(outputs))\n"
    )
    task = data.parse(keys(tmp_path, model={"module": f"{tmp_path / 'net.py'}:make"}), "task")
    model = own_module.build(data.build(task, "float32"), torch.float32, CPU)
    assert model.layout.views(model.start(None, 0))["0.weight"].shape == (ITEMS + 1, 4)
    assert model.kind.outputs == ITEMS


def towers(model: Any, tensors: dict[str, torch.Tensor], before: torch.Tensor) -> torch.Tensor:
    """Cosines, by their definition."""
    table = tensors["items.weight"]
    scores = []
    for line in before:
        mean = torch.stack([table[item] for item in line if item]).mean(0)
        left = (tensors["dense.weight"] @ mean + tensors["dense.bias"]).relu()
        scores.append(torch.stack([left @ own / left.norm().clamp(min=1e-12) / own.norm() for own in table[1:]]))
    return torch.stack(scores)


def spread(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    table = tensors["items.weight"][1:]
    cosines = table @ table.T / table.norm(dim=1) / table.norm(dim=1)[:, None]
    return WEIGHT * (cosines * (1 - torch.eye(ITEMS))).norm()


def test_parallel_training_with_spreadout_is_a_plain_loop(tmp_path: Path) -> None:
    rate, steps, rounds, size = 0.4, 3, 3, 4
    spec = parse(
        {
            "task": keys(tmp_path, central={"spreadout": WEIGHT}),
            "method": {"name": "parallel_training", "client_lr": rate, "delta_lr": 1.0, "local_steps": steps},
            "clients_per_round": 5,
            "batch_size": size,
            "rounds": rounds,
            "seed": 5,
            "dtype": "float64",
            "eval_every": 1,
            "report": ["params", "overhead"],
        }
    )
    lines = Pack.from_spec(spec).advance()
    model = dual_encoder.build(data.build(spec.task, "float64"), torch.float64, CPU)
    source, weights = model.source(5, size, "shuffled"), model.sizes / model.sizes.sum()
    start = {name: held.clone() for name, held in model.layout.views(model.start(None, 5)).items()}

    def descended(loss: Any) -> dict[str, torch.Tensor]:
        own = {name: held.clone().requires_grad_() for name, held in start.items()}
        for step in range(steps):
            gradients = torch.autograd.grad(0.5 * loss(own, step), list(own.values()), materialize_grads=True)
            pairs = zip(own.items(), gradients, strict=True)
            own = {name: (held - rate * gradient).detach().requires_grad_() for (name, held), gradient in pairs}
        return {name: held.detach() - start[name] for name, held in own.items()}

    for number in range(rounds):
        batches = source.round(number, np.arange(5))
        changes = [descended(lambda own, step: spread(own))]
        for place, client in enumerate(batches.clients.tolist()):

            def loss(own: Any, step: int, place: int = place, batches: Any = batches) -> torch.Tensor:
                batch = batches.batch(step, 5)[0].data
                scores, wanted = towers(model, own, batch["inputs"][place]), batch["targets"][place]
                return (MARGIN - scores.gather(1, wanted[:, None])).clamp(min=0).mean()

            changes.append({name: weights[client] * held for name, held in descended(loss).items()})
        for name, held in start.items():
            held += sum(change[name] for change in changes)
        flat = torch.cat([start[entry.name].flatten() for entry in model.layout.entries])
        assert torch.tensor(lines[number + 1]["params"], dtype=torch.float64).allclose(flat, rtol=1e-10, atol=1e-10)
    assert lines[-1]["central_gradients"] == rounds * steps
    test = model.test
    assert test is not None
    scores = towers(model, start, torch.as_tensor(test.inputs))
    own = scores.gather(1, torch.as_tensor(test.targets).long()[:, None])
    assert lines[-1]["test_loss"] == pytest.approx(float((MARGIN - own).clamp(min=0).mean()), rel=1e-10)
    assert lines[-1]["test_recall_at_k"] == 1.0  # of 10, with 7 items


@pytest.mark.parametrize("method", ["one_way_transfer", "two_way_transfer", "all_on_client"])
def test_a_formula_serves_every_mixed_method_also_in_packs(tmp_path: Path, method: str) -> None:
    document = {
        "task": keys(tmp_path, central={"spreadout": WEIGHT}),
        "method": {"name": method, "delta_lr": 1.0, "local_steps": 2},
        "batch_size": 4,
        "rounds": 2,
        "dtype": "float64",
        "eval_every": 1,
    }
    contract(document, [{"client_lr": 0.1}, {"client_lr": 0.3}], cut=1)


@pytest.mark.parametrize(
    ("method", "of_clients", "of_server"),
    [("parallel_training", 0, 2), ("one_way_transfer", 0, 1), ("all_on_client", 2, 0)],
)
def test_the_operations_of_a_formula_are_its_own(tmp_path: Path, method: str, of_clients: int, of_server: int) -> None:
    """A product of the table with itself has ITEMS times the operations of an example's dense layer, 6 WIDTH^2."""
    document = {
        "task": keys(tmp_path, central={"spreadout": WEIGHT}),
        "method": {"name": method, "client_lr": 0.1, "delta_lr": 1.0, "local_steps": 2},
        "clients_per_round": 5,
        "batch_size": 4,
        "rounds": 3,
        "report": ["overhead"],
    }
    line = Pack.from_spec(parse(document)).advance()[-1]
    example = 6 * WIDTH**2
    assert line["client_flops"] == 3 * 5 * (2 * 4 + of_clients * ITEMS) * example
    assert line["server_flops"] == 3 * of_server * ITEMS * example
    assert line["slowest_examples"] == 3 * (2 * 4 + of_clients * ITEMS)
    assert line["client_examples"] == 3 * 5 * (2 * 4 + of_clients)


def test_recall_counts_the_first_of_equal_scores() -> None:
    none = np.zeros(1, np.int64)
    train = Examples(np.ones((4, 1), np.int32), np.arange(4), none, none + 4, "pairs")
    problem = Problem("", train, test=train, model_settings={"classes": 4, "at": 2})
    model = dual_encoder.build(problem, torch.float64, CPU)
    params = torch.zeros(1, 1, model.layout.size, dtype=torch.float64)  # all scores are 0
    assert float(model.evaluate(params)["test_recall_at_k"]) == 0.5


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"context": None}, "task.context must be given for pairs"),
        ({"words": 3}, "task.words must be left out for pairs, got words=3: it needs kind: tokens"),
        ({"targets": "at"}, "task.targets must be left out for pairs, which are the next items of inputs"),
        ({"order": "when"}, 'task.order: no column "when"'),
        ({"client": None, "partition": "iid", "clients": 2}, "task.client must be a column for pairs"),
        ({"at": 8}, "task.at must be at most 7, the number of items, got at=8"),
        ({"central": {"spreadout": 0}}, "task.central.spreadout must be above 0"),
        ({"central": {"spread": 1}}, 'unknown key "spread" in task.central'),
        ({"order": "who"}, None),
        ({"order": "day"}, 'task.order: column "day" must hold numbers, dates such as 2024-01-31T10:00:00, or'),
        ({"test": {"inputs": "film"}}, "task.test.order must be given, as order of the task is, got order=null"),
        ({"test": {"inputs": "film", "order": "at"}}, "task.test.client must be a column for pairs"),
        (
            {"order": None, "test": {"inputs": "film", "order": "at"}},
            'task.test.order must be left out without order of the task, got order="at"',
        ),
        ({"test": "first"}, "task.test must mark some items, and not clients' first alone, got none of others"),
        ({"inputs": "one"}, "task.inputs must hold two different items, got one"),
    ],
)
def test_keys_of_histories(tmp_path: Path, changes: dict[str, Any], error: str | None) -> None:
    task, clients = keys(tmp_path, **changes), {row["who"] for row in ROWS}
    own = {who: [(row["at"], number) for number, row in enumerate(ROWS) if row["who"] == who] for who in clients}
    firsts = {min(rows)[1] for rows in own.values()}
    more = (
        {"day": f"{number % 28 + 1:02}.01.2024", "one": "a", "first": number in firsts} for number in range(len(ROWS))
    )
    lines = (json.dumps(row | columns) for row, columns in zip(ROWS, more, strict=True))
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    if error is None:
        data.parse(task, "task")
        return
    with pytest.raises(SpecError) as caught:
        data.parse(task, "task")
    assert str(caught.value).startswith(error)


def test_more_items_before_than_memory_holds_are_refused() -> None:
    log = Log(np.zeros(10**6, np.int64), np.zeros(10**6, np.int64))
    with pytest.raises(SpecError, match=r"task.context must be at most 1073 for 1000000 items, 4 GiB of numbers, got"):
        numbered([log], Histories(2000), "task")


def test_a_log_of_single_items_is_refused(tmp_path: Path) -> None:
    task = keys(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"who": 1, "film": "a", "at": 1}\n{"who": 2, "film": "a", "at": 1}')
    with pytest.raises(SpecError, match="hold two items of a client, got one of each client"):
        data.parse(task, "task")


DATES = {
    "days": ["2024-05-02", "2024-05-01", "2024-05-03"],
    "seconds": ["2024-05-01T10:00:01", "2024-05-01T10:00:00", "2024-05-01T10:00:02"],
    "fractions in some rows": ["2024-05-01T10:00:00.5", "2024-05-01T10:00:00", "2024-05-01T10:00:01"],
    "offsets": ["2024-05-01T10:00:00Z", "2024-05-01T11:00:00+02:00", "2024-05-01T10:00:00-05:00"],
    "below a microsecond": [f"2024-05-01T10:00:00.{end}Z" for end in ("0000000010", "000000000", "000000002")],
    "times of day": ["10:00:01", "10:00:00", "10:00:02"],
    "before 1970": ["1969-12-31T23:59:59", "0001-01-01T00:00:00", "1970-01-01T00:00:00"],
}


@pytest.mark.parametrize("name", DATES)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "npz"])
def test_dates_order_items(tmp_path: Path, ending: str, name: str) -> None:
    path = tmp_path / f"dates.{ending}"
    write(path, {"film": [5, 3, 4], "who": ["a"] * 3, "at": DATES[name]})
    task = data.parse(keys(tmp_path, path=str(path), test_fraction=0), "task")
    train = data.build(task, "float64").train
    assert isinstance(train, Examples)
    assert (train.inputs[-1].tolist(), train.targets.tolist()) == ([0, 1, 3], [2, 1])  # films 3, 5, then 4


def test_one_instant_in_two_zones_is_a_tie() -> None:
    order = sortable(np.array(["2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00.0000000Z"]), "order", "task.order")
    assert order[0] == order[1]


@pytest.mark.parametrize(
    "texts",
    [
        ("5/1/2023", "4/1/2024"),
        ("12/2023", "01/2024"),
        ("10:00 31.12.2023", "09:00 01.01.2024"),
        ("31-Dec-2023", "01-Jan-2024"),
        ("Sun, 31 Dec 2023", "Mon, 01 Jan 2024"),
        ("2024/05/01 10:00 AM", "2024/05/01 09:00 PM"),
        ("9 h", "10 h"),
    ],
)
def test_times_whose_strings_do_not_sort_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(SpecError, match="or strings of one length that sort as meant, got"):
        sortable(np.array(texts), "order", "task.order")


@pytest.mark.parametrize(
    "texts", [("2023/12/31", "2024/01/01"), ("t001", "t002"), ("09:00", "10:00"), ("marx", "mayo")]
)
def test_strings_of_one_length_that_sort_are_an_order(texts: tuple[str, ...]) -> None:
    assert sortable(np.array(texts), "order", "task.order").tolist() == list(texts)


def test_instants_of_libraries_order_items(tmp_path: Path) -> None:
    at = np.array(DATES["seconds"], "datetime64[ns]")
    for ending in ("parquet", "npz"):
        path = tmp_path / f"log.{ending}"
        write(path, {"film": [5, 3, 4], "who": ["a"] * 3, "at": at})
        task = data.parse(keys(tmp_path, path=str(path), test_fraction=0), "task")
        assert data.build(task, "float64").train.targets.tolist() == [2, 1]
