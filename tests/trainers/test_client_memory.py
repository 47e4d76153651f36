"""What clients keep from round to round: the memory by itself, its limit, and whole trials that use it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from trainers.engine.memory import available_memory
from trainers.engine.packs import lane
from trainers.engine.packs.pack import Pack
from trainers.engine.rounds import client_memory as memories
from trainers.engine.rounds.client_memory import ClientMemory, Size, place
from trainers.errors import SpecError, TooLargeError
from trainers.trial.document import parse

from .members import timeless

GIB = 1 << 30
WORK = {"client_lr": 0.05, "server_lr": 0.05, "local_steps": 3}
STATEFUL = [
    {"method": {"name": "scaffold", **WORK, "variates": "stored"}},
    {
        "method": {
            "name": "scaffold", **WORK, "variates": "stored",
            "variate_update": "gradient", "displacement_source": "batch",
        }
    },
    {"method": {"name": "feddyn", **WORK, "prox": 0.4}},
    {"method": {"name": "fedavg", **WORK}, "client": {"name": "momentum", "state": "keep"}},
    {"method": {"name": "feddyn", **WORK, "prox": 0.4}, "client": {"name": "adam", "epsilon": 0.1, "state": "keep"}},
]  # fmt: skip


def document(method, **changes):
    return {
        "task": {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}},
        "method": method,
        "batch_size": 5,
        "clients_per_round": 4,
        "dtype": "float64",
        "rounds": 8,
        "eval_every": 1,
        "members": [{}, {"client_lr": 0.1, "local_steps": 5}, {"server_lr": 0.02}],
        **changes,
    }


def train(given):
    return timeless(Pack.from_spec(parse(given)).advance())


def like(trials=2, parameters=16, dtype=torch.float64):
    return torch.zeros((trials, 1, parameters), dtype=dtype)


def memory_of(*names, clients=5, **more):
    return ClientMemory(dict.fromkeys(names, like()), clients, "test", **more)


def test_a_name_that_is_not_kept_is_refused():
    with pytest.raises(RuntimeError, match=r"must list its client states in stored\(hyper\), got b as well"):
        memory_of("a").put(np.array([0]), {"b": like()}, np.ones(2, bool))


def test_nothing_is_kept_for_idle_places():
    store = memory_of("a", idle=3)
    assert store.size.trials == 2
    values = torch.randn(5, 1, 16, dtype=torch.float64)
    store.put(np.array([1]), {"a": values}, np.array([True, False, False, False, False]))
    found = store.gather(np.array([1])).values["a"]
    assert found.shape == (5, 1, 16)
    assert torch.equal(found[0], values[0])
    assert not found[1:].any()


def test_a_checkpoint_holds_the_clients_that_took_part():
    store = memory_of("a", clients=1000)
    values = torch.randn(2, 2, 16, dtype=torch.float64)
    store.put(np.array([7, 900]), {"a": values}, np.ones(2, bool))
    rows = [store.row(0), store.row(1)]
    assert all(row["of a"].shape == (2, 16) for row in rows)
    again = memory_of("a", clients=1000)
    again.put(np.array([5]), {"a": values[:, :1]}, np.ones(2, bool))  # is forgotten
    again.load(rows)
    everyone = np.arange(1000)
    assert torch.equal(again.gather(everyone).values["a"], store.gather(everyone).values["a"])


@pytest.mark.parametrize(
    ("clients", "device_free", "host_free", "where"),
    [
        # a client's tensor is 4 MiB: 1024 clients are 4 GiB
        (1024, None, 14 * GIB, "device"),  # computes where the memory is: 12 GiB while a checkpoint is written
        (1024, 16 * GIB, 9 * GIB, "device"),  # a quarter of the device; 8 GiB here while a checkpoint is written
        (1025, 16 * GIB, 14 * GIB, "host"),
        (1024, 80 * GIB, None, "device"),
        (1024, 1 * GIB, None, "host"),
    ],
)
def test_where_a_store_goes(clients, device_free, host_free, where):
    size = Size(tensors=1, clients=clients, parameters=1 << 19, trials=2, item_bytes=4)
    assert size.total == clients * (4 << 20)
    assert place(size, device_free, host_free, "feddyn") == where


@pytest.mark.parametrize(
    ("device_free", "host_free", "needed"), [(None, 13 * GIB, 12), (16 * GIB, 8 * GIB, 8), (15 * GIB, 13 * GIB, 12)]
)
def test_a_store_that_fits_nowhere_says_how_large_it_is(device_free, host_free, needed):
    size = Size(tensors=1, clients=1024, parameters=1 << 19, trials=2, item_bytes=4)
    with pytest.raises(SpecError) as caught:
        place(size, device_free, host_free, "feddyn")
    text = str(caught.value)
    assert "the client states of feddyn must fit into memory, got 4 GiB" in text
    assert "(1024 clients x 524288 parameters x 2 trials x 1 of 4 bytes;" in text
    assert f"{needed} GiB while a checkpoint is written), with {host_free // GIB} GiB available" in text
    assert "train fewer trials in a pack (resources.packs of a study), take fewer clients" in text


def bytes_of(case):
    """12 clients x 800 numbers (650 and pads) x 3 trials x 8 bytes for each tensor, and 8 bytes for a counter."""
    client = case.get("client", {}).get("name")
    tensors = (case["method"]["name"] != "fedavg") + {None: 0, "momentum": 1, "adam": 2}[client]
    return 12 * 3 * 8 * (tensors * 800 + (client is not None))


@pytest.mark.parametrize("case", STATEFUL)
def test_too_large_a_store_is_refused_before_training(case, monkeypatch):
    needed = 3 * bytes_of(case)  # three times while a checkpoint is written

    def made(free, case=case, plan=None):
        def limited(*arguments, **more):
            return ClientMemory(*arguments, host_free=lambda: free, **more)

        monkeypatch.setattr(lane, "ClientMemory", limited)
        return Pack.from_spec(parse(document(**case)), plan=plan)

    plan = made(int(needed / 0.9) + 1).plan
    owner = " with client ".join([case["method"]["name"], *([case["client"]["name"]] if "client" in case else [])])
    with pytest.raises(TooLargeError, match=rf"the client states of {owner} must fit into memory, got") as caught:
        made(int(needed / 0.9) - 1)
    assert caught.value.path == ("client.state" if "client" in case else "method")
    assert ("or client.state: reset" in str(caught.value)) == ("client" in case)
    assert "\n" not in str(caught.value)
    for other in (replace(plan, separate=True), replace(plan, width=7)):  # idle places take nothing
        made(int(needed / 0.9) + 1, plan=other)
        with pytest.raises(SpecError, match="must fit into memory"):
            made(int(needed / 0.9) - 1, plan=other)
    made(0, {"method": {"name": "scaffold", **WORK}})  # fresh variates: nothing is stored, and nothing can be too large


def test_available_memory_is_the_least_of_computer_and_control_group(tmp_path):
    assert available_memory(str(tmp_path)) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert available_memory(str(tmp_path)) == 8000 * 1024
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000000\n")
    assert available_memory(str(tmp_path)) == 8000 * 1024
    (group / "memory.max").write_text("3000000\n")
    assert available_memory(str(tmp_path)) == 2_000_000
    (group / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert available_memory(str(tmp_path)) == 2_500_000
    assert (available_memory() or 1) > 0


@pytest.mark.parametrize("case", STATEFUL)
def test_where_a_store_lies_changes_nothing(case, monkeypatch):
    given = document(**case)
    plain = train(given)
    places = []

    def spilled(size, *_):
        places.append(size.total)
        return "host"

    monkeypatch.setattr(memories, "place", spilled)
    assert train(given) == plain
    assert places == [bytes_of(case)]


def test_clients_of_no_weight_are_stored_all_the_same():
    """The mean over all clients has their share, 0."""
    task = {
        "name": "quadratic",
        "hessians": [[[1.0]], [[3.0]], [[2.0]]],
        "centers": [[0.0], [3.0], [50.0]],
        "client_weights": [0.5, 0.5, 0.0],
    }
    document_ = {"task": task, "method": {**STATEFUL[2]["method"], "server_lr": 0.05}, "rounds": 400, "eval_every": 400}
    end = Pack.from_spec(parse({**document_, "report": ["params"]})).advance()[-1]
    assert end["params"] == pytest.approx([9 / 4], abs=1e-9)
