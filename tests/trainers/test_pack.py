"""Packs: what members may not do to one another, divergence, evaluation, weights, plans."""

import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.errors import SpecError
from trainers.trial.document import parse

from .documents import fedavg
from .members import as_if_alone as of

DIGITS = {"name": "digits", "clients": 10, "partition": {"dirichlet": 0.3}}


def document(**changes):
    return fedavg(**{"task": DIGITS, "clients_per_round": 5, "batch_size": 8, "rounds": 5, "seed": 1, **changes})


def train(given, **more):
    return Pack.from_spec(parse(given), **more).advance()


def columns(lines, name):
    return np.array([line[name] for line in lines], dtype=float)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("count", "batch_size"), [(3, 8), (8, 8), (9, 8), (7, None), (8, None)])
def test_a_diverging_member_disturbs_no_bit_of_the_others(dtype, count, batch_size):
    calm = [{"client_lr": 0.05 * (1 + number), "local_steps": 1 + number % 4} for number in range(count)]
    task = {**DIGITS, "clients": 10 if batch_size else 60}
    base = document(dtype=dtype, rounds=12, task=task, batch_size=batch_size, clients_per_round=task["clients"] // 2)
    lines = train({**base, "members": calm})
    for place in (0, count // 2, count - 1):
        wild = [*calm]
        wild[place] = {**calm[place], "server_lr": 1e12, "client_lr": 100.0}
        disturbed = train({**base, "members": wild})
        assert columns(of(disturbed, place), "diverged").sum() == 1
        assert of(disturbed, place)[-1]["diverged"] is True
        assert of(disturbed, place)[-1]["round"] < 12
        for member in set(range(count)) - {place}:
            assert of(disturbed, member) == of(lines, member)


def descent(server_lr, rounds=100, curvatures=(1.0,), center=1.0, **changes):
    """Gradient descent on one quadratic."""
    task = {"name": "quadratic", "hessians": [np.diag(curvatures).tolist()], "centers": [[center] * len(curvatures)]}
    return {"task": task, "method": {"name": "fedsgd", "server_lr": server_lr}, "rounds": rounds, **changes}


def test_a_diverged_trial_is_reported_once_and_ends_the_run():
    pack = Pack.from_spec(parse(descent(30.0, eval_every=1)))
    lines = pack.advance()
    # The training loss of round r is 0.5 * 29^(2 (r - 1)); it exceeds 0.5 + 1e6 at r = 4.
    assert [line["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["diverged"] for line in lines] == [False] * 4 + [True]
    assert pack.done
    assert pack.advance() == []


def test_what_overflows_is_none():
    lines = train(descent(1e300, report=["params"]))
    assert lines[-1]["diverged"] is True
    assert lines[-1]["loss"] is None
    assert json.loads(json.dumps(lines, allow_nan=False)) == lines


def test_momentum_that_overshoots_has_not_diverged():
    rate, momentum = 4 / (1000**0.5 + 1) ** 2, ((1000**0.5 - 1) / (1000**0.5 + 1)) ** 2
    given = descent(rate, 500, (1.0, 1000.0), 0.0, server={"name": "sgd", "momentum": momentum}, init=[0.0, 1e-3])
    lines = train(given | {"eval_every": 1})
    assert len(lines) == 501
    assert max(columns(lines, "loss")) > 10 * lines[0]["loss"]
    assert lines[-1]["loss"] < 1e-9 * lines[0]["loss"]


def test_advance_stops_when_time_is_up():
    pack = Pack.from_spec(parse(document(rounds=10_000)))
    assert [line["round"] for line in pack.advance(seconds=0)] == [0, 1]
    assert [line["round"] for line in pack.advance(seconds=0)] == [2]  # never nothing, however little time there is
    assert pack.advance(max_rounds=0, seconds=0) == []
    assert [line["round"] for line in pack.advance(max_rounds=2, seconds=60.0)] == [3, 4]
    lines = pack.advance(seconds=0.05)
    assert 1 <= len(lines) < 9_999
    assert not pack.done


@pytest.mark.parametrize(("weights", "once"), [(None, True), ([0.2, 0.2, 0.6], False)])
def test_equal_weights_of_cohorts_are_made_once(weights, once):
    task = {"name": "quadratic", "hessians": [[[1.0]]] * 3, "centers": [[1.0], [2.0], [3.0]], "client_weights": weights}
    given = {"task": task, "method": {"name": "fedsgd", "server_lr": 0.5}, "rounds": 9, "clients_per_round": 2}
    setting = Pack.from_spec(parse(given))._setting
    draws = [setting.draw(number) for number in range(9)]
    assert (draws[1].weights is draws[0].weights) == once
    for draw in draws:
        own = setting.training.whole[draw.batches.clients]
        assert draw.weights.tolist() == (own / own.sum()).tolist()
        assert draw.share == own.sum() / setting.training.whole.sum()


@pytest.mark.parametrize(("name", "kept"), [("constant", True), ("plateau", False)])
def test_hyperparameters_are_made_again_when_the_rates_may_move(name, kept):
    pack = Pack.from_spec(parse(document(schedule={"name": name}, rounds=2)))
    (lane,) = pack._lanes
    first = lane._hyper()
    pack.advance(1)
    assert (lane._hyper()[2] is first[2]) == kept


def test_train_loss_is_on_the_same_data_whatever_the_schedule_monitors():
    schedule = {"name": "plateau", "window": 1, "patience": 1, "cooldown": 0, "min_delta": 0.05}
    given = document(rounds=6, dtype="float64", report=["cohort_misalignment"])
    plain, watching = train(given), train({**given, "schedule": schedule})
    for name in ("train_loss", "cohort_misalignment"):  # the first model loses log 10 on all data
        assert watching[2][name] == plain[2][name]
    full = train({**given, "schedule": schedule, "loss_data": "full"})
    assert [line["client_lr"] for line in watching] == [line["client_lr"] for line in full]  # monitored in both
    assert watching[-1]["client_lr"] < 0.1
    assert watching[2]["train_loss"] != pytest.approx(full[2]["train_loss"], rel=1e-3)


def test_a_schedule_may_watch_the_accuracy():
    schedule = {"name": "plateau", "window": 1, "patience": 1, "cooldown": 0, "monitor": "accuracy", "min_delta": 2.0}
    lines = train(document(schedule=schedule, rounds=3))
    assert columns(lines, "client_lr") == pytest.approx([0.1, 0.1, 0.1, 0.01])


def test_the_engine_times_its_candidates_once(monkeypatch):
    from trainers.engine.packs import plan

    monkeypatch.setattr(plan, "_chosen", {})
    spent = {"stacked": 0.2, "loop": 0.1, "autograd": 0.01, "example_space": 0.01}
    timed = []

    def measure(oracle, batches, params, steps):
        name = next((one for one, other in model.oracles.items() if other is oracle), "of another type")
        timed.append(name)
        return spent.get(name, 0.3)

    monkeypatch.setattr(plan, "_measure", measure)
    network = {**document()["task"], "model": "mlp"}
    spec = parse(document(batch_size=None, task=network))
    model = Pack.from_spec(spec, plan=Plan("stacked", 1, torch.get_num_threads(), "cpu", "float32", 1))._setting.model
    assert Pack.from_spec(spec).plan.oracle == "loop"
    assert set(timed) == {"stacked", "loop"}
    count = len(timed)
    assert Pack.from_spec(spec).plan.oracle == "loop"
    assert len(timed) == count
    spent["loop"] = 0.19  # not clearly faster
    assert Pack.from_spec(parse(document(batch_size=None, task=network, members=[{}, {}]))).plan.oracle == "stacked"
    assert Pack.from_spec(parse(document(task=network))).plan.oracle == "stacked"
    Pack.from_spec(parse(document(task=network, dtype="bfloat16")), device="cpu")
    assert len(timed) == 4 * count  # another width, another kind of batch, another type


def test_example_space_is_counted_and_not_timed(monkeypatch):
    from trainers.engine.packs import plan

    monkeypatch.setattr(plan, "_chosen", {})
    monkeypatch.setattr(plan, "_measure", lambda *_: pytest.fail("nothing should be timed"))
    few = {**document()["task"], "clients": 100}  # 14 examples each, of 65 numbers
    many = {**document()["task"], "clients": 5}  # 287 or 288 each
    assert Pack.from_spec(parse(document(batch_size=None, task=few))).plan.oracle == "example_space"
    assert Pack.from_spec(parse(document(batch_size=None, task=many))).plan.oracle == "stacked"
    assert Pack.from_spec(parse(document())).plan.oracle == "stacked"


GPU, CPU = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)


def race(monkeypatch, params, seconds):
    """The oracle that a race chooses; seconds of the calls of each oracle, the last one repeated; errors are raised."""
    from trainers.engine.packs import plan

    calls = {name: itertools.chain(spent[:-1], itertools.repeat(spent[-1])) for name, spent in seconds.items()}

    def measure(oracle, batches, params, steps):
        spent = next(calls[oracle])
        if isinstance(spent, Exception):
            raise spent
        return spent

    monkeypatch.setattr(plan, "_measure", measure)
    return plan._race({name: name for name in seconds}, lambda: None, params, 8)


def test_on_a_gpu_a_slow_first_call_leaves_no_candidate_unmeasured(monkeypatch):
    seconds = {"loop": [5.0, 0.3], "vmap": [2.0, 0.01]}
    assert race(monkeypatch, GPU, seconds) == "vmap"
    assert race(monkeypatch, CPU, seconds) == "loop"


@pytest.mark.parametrize("device", [GPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    "fault",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("vmap: It looks like you're calling .item() on a Tensor."),
        NotImplementedError("no rule for this operation"),
    ],
    ids=["memory", "control flow", "no rule"],
)
def test_a_candidate_that_fails_leaves_the_race(monkeypatch, fault, device):
    assert race(monkeypatch, device, {"vmap": [fault], "loop": [0.3]}) == "loop"
    assert race(monkeypatch, device, {"loop": [0.3], "vmap": [fault]}) == "loop"
    assert race(monkeypatch, device, {"vmap": [0.1, fault], "loop": [0.3]}) == "loop"
    with pytest.raises(type(fault), match=re.escape(str(fault))):
        race(monkeypatch, device, {"loop": [fault], "vmap": [ValueError("the first one's error is raised")]})


def test_plans_survive_json_and_unknown_oracles_are_refused():
    pack = Pack.from_spec(parse(document()))
    plan = Plan.from_json(json.loads(json.dumps({**pack.plan.to_json(), "later": 1})))
    assert plan == pack.plan
    with pytest.raises(SpecError, match="oracle must be one of stacked"):
        Pack.from_spec(parse(document()), plan=Plan("magic", 1, 1, "cpu", "float32", 1))
