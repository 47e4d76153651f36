"""Reports that a trial can ask for: right by hand, and looking changes nothing, for any method."""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.evaluation import views
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.hyperparameters import describe
from trainers.registry import methods, reports
from trainers.trial.document import parse

HAND = {"name": "quadratic", "hessians": [[[1.0]], [[3.0]]], "centers": [[0.0], [3.0]]}
DIGITS = {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}, "central": {"fraction": 0.1}}
USUAL = {"client_lr": 0.05, "server_lr": 0.05, "local_steps": 3, "displacement": 0.1}
METHODS = ("fedavg", "fedga", "scaffold", "maml", "two_way_transfer", "lookahead")


def usual(method):
    """Settings of all required hyperparameters."""
    wanted = {item.name for item in describe(methods()[method].Hyper)}
    return {"name": method, **{name: value for name, value in USUAL.items() if name in wanted}}


def train(method, task=HAND, rounds=3, **changes):
    document = {"task": task, "method": method, "rounds": rounds, "dtype": "float64", "eval_every": 1, **changes}
    return Pack.from_spec(parse(document)).advance()


def test_misalignment_and_difference_norm_by_hand():
    """f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 at x = 1: gradients 1 and -6, their mean -2.5."""
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    asked = ["misalignment", "difference_norm", "full_loss", "cohort_misalignment", "params"]
    lines = train(method, init=[1.0], report=asked)
    assert lines[0]["misalignment"] == pytest.approx(6.125, abs=1e-14)
    assert lines[0]["difference_norm"] == pytest.approx(3.5, abs=1e-14)
    assert "cohort_misalignment" not in lines[0]
    for before, line in itertools.pairwise(lines):
        x = line["params"][0]
        first, second = x, 3 * (x - 3)
        assert line["misalignment"] == pytest.approx((first - second) ** 2 / 8, rel=1e-13)
        assert line["difference_norm"] == pytest.approx(abs(first - second) / 2, rel=1e-13)
        assert line["full_loss"] == pytest.approx((x**2 / 2 + 1.5 * (x - 3) ** 2) / 2, rel=1e-13)
        # all clients take part: what a round finds where it starts is what the line before it says
        assert line["cohort_misalignment"] == pytest.approx(before["misalignment"], rel=1e-13)


def test_weights_of_the_clients_count():
    given = {**HAND, "client_weights": [0.2, 0.8]}
    line = train({"name": "fedsgd", "server_lr": 0.1}, given, init=[1.0], report=["misalignment", "difference_norm"])[0]
    mean = 0.2 * 1 - 0.8 * 6
    assert line["misalignment"] == pytest.approx((0.2 * (1 - mean) ** 2 + 0.8 * (6 + mean) ** 2) / 2, rel=1e-13)
    assert line["difference_norm"] == pytest.approx(1 - mean, rel=1e-13)


def test_one_client_is_aligned_with_itself():
    method = {"name": "lookahead", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    assert [line["cohort_misalignment"] for line in train(method, report=["cohort_misalignment"])[1:]] == [0.0] * 3


@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [6]}])
def test_parts_of_the_clients_join_exactly(model, monkeypatch):
    """All clients at once or some at a time, and autograd client by client: the same numbers."""
    given = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}, "model": model}
    settings = {"method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1, "dtype": "float64"}
    pack = Pack.from_spec(parse({"task": given, **settings, "members": [{}, {"server_lr": 0.5}]}))
    pack.advance()
    params, weights = pack._lanes[0].now.state.params, np.linspace(1, 3, 12) / 24
    found = []
    for most in (1 << 30, 700, 1):
        monkeypatch.setattr("trainers.engine.evaluation.client_chunks._EXAMPLES", most)
        found.append(views.ModelView(params, pack._setting.model, pack._setting.oracle, weights).spread)
    everyone = pack._setting.model.source(0, None, "shuffled").round(0, np.arange(12))
    gradients = pack._setting.model.oracles["autograd"].value_and_grad(params, everyone.full())[1]
    held = torch.as_tensor(weights[everyone.clients])
    gaps = gradients - (held @ gradients).unsqueeze(1)
    for spread in found:
        torch.testing.assert_close(spread.misalignment, gaps.square().sum(-1) @ held / 2, rtol=1e-11, atol=0)
        first = gaps[:, everyone.clients.tolist().index(0)].norm(dim=-1)
        torch.testing.assert_close(spread.difference_norm, first, rtol=1e-11, atol=0)


def test_displacement_ratio_is_in_units_of_scaffold_and_follows_the_schedule():
    method = {"name": "fedga", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 5, "displacement": 0.05}
    members = [{}, {"local_steps": 1}, {"displacement": 0.0}, {"client_lr": 0.0}]
    lines = train(method, rounds=2, report=["displacement_ratio"], members=members)
    found = [line["displacement_ratio"] for line in lines if line["round"] == 2]
    assert found == [pytest.approx(0.05 / 0.2, rel=1e-12), None, 0.0, None]
    schedule = {"name": "theory_1_over_t", "strong_convexity": 1.0, "smoothness": 3.0}
    for line in train(method, rounds=4, report=["displacement_ratio"], schedule=schedule)[1:]:
        assert line["displacement_ratio"] == pytest.approx(0.05 / (2 * line["client_lr"]), rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", ["quadratic", "digits"])
def test_looking_changes_nothing(method, task):
    """Every report at once, against none: curves and counters are the same to the bit."""
    central = {"hessian": [[1.0]], "center": [1.0]}
    given = {**HAND, "gradient_noise": 0.2, "central": central} if task == "quadratic" else DIGITS
    spec = parse({"task": given, "method": usual(method), "rounds": 1})
    possible = {name: module for name, module in reports().items() if set(module.NEEDS) <= set(spec.metrics)}
    asked = [name for name, module in possible.items() if module.refuse(spec.method) is None]
    one = None if method == "lookahead" else 2
    settings = {"batch_size": 3, "seed": 3, "clients_per_round": one, "rounds": 5}
    plain = train(usual(method), given, **settings)
    reported = train(usual(method), given, **settings, report=asked)
    added = [name for report in asked for name in reports()[report].METRICS]
    for line, other in zip(plain, reported, strict=True):
        assert {name for name in added if name in other} == (set(added) if line["round"] else {*added} & {*other})
        for name in line.keys() - {"wall_seconds"}:
            assert other[name] == line[name], name


def test_every_report_has_its_name_and_says_so():
    for name, module in reports().items():
        assert module.METRICS
        own = [kind for kind in ("of_model", "of_round") if kind in vars(type(module))]
        assert len(own) == 1, name
        assert module.__doc__
        assert module.PASSES >= 0
    given = {**HAND, "central": {"hessian": [[1.0]], "center": [1.0]}}
    for name, module in reports().items():
        if "test_recall_at_k" in module.NEEDS:  # of histories of items: test_item_rows.py
            continue
        takes = [
            method
            for method in ("fedga", "two_way_transfer", "mass")
            if module.refuse(parse({"task": given, "method": usual(method), "rounds": 1}).method) is None
        ]
        task = DIGITS if "test_accuracy" in module.NEEDS else given
        spec = parse({"task": task, "method": usual(takes[0]), "rounds": 1, "report": [name]})
        assert set(spec.metrics) >= set(module.METRICS)


def test_a_ratio_must_have_its_parts():
    with pytest.raises(SpecError, match=r"report.1 must not be displacement_ratio with a method without displacement"):
        parse({"task": HAND, "method": usual("fedavg"), "rounds": 1, "report": ["params", "displacement_ratio"]})
    epochs = {"name": "fedga", "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 2, "displacement": 0.1}
    with pytest.raises(SpecError, match="displacement_ratio with local_epochs: give local_steps"):
        parse({"task": DIGITS, "method": epochs, "rounds": 1, "report": ["displacement_ratio"]})
