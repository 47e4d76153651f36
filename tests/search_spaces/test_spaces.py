"""The default spaces and the papers' grids."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from search_spaces import spaces
from search_spaces.parameters import from_json
from search_spaces.spaces import SERVERS
from trainers.errors import PluginError, SpecError
from trainers.registry import methods, optimizers, schedules
from trainers.trial.document import parse
from trainers.trial.parts import offered
from trainers.trial.roles import ROLES, serving

REGISTRIES = {"methods": methods, **dict.fromkeys(ROLES, optimizers), "schedules": schedules}


def choices(kind):
    """What can be chosen: of optimizers those that can serve in the role."""
    return serving(kind) if kind in ROLES else list(REGISTRIES[kind]())


ALL = [(kind, name) for kind in spaces.KINDS for name in choices(kind)]


@pytest.mark.parametrize("kind", spaces.KINDS)
def test_every_module_of_ours_states_a_default_space_and_it_is_read_without_importing(kind):
    registry = REGISTRIES[kind]()
    assert set(registry) == set(spaces.names(kind))
    for name, module in registry.items():
        assert registry.constant(name, "SPACE") == module.SPACE
        assert (registry.constant(name, "SPACES") or {}) == getattr(module, "SPACES", {})


def test_rates_are_on_a_log_scale_everywhere():
    for kind, name in ALL:
        for key, parameter in spaces.default(kind, name).items():
            if key.endswith("_lr") or key == "prox":
                assert parameter.log, (name, key)
            if key == "momentum":
                assert parameter.complement


def test_unknown_name_is_named_with_its_neighbour():
    with pytest.raises(SpecError, match='no method "fedpro": did you mean fedprox'):
        spaces.default("methods", "fedpro")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        *((name, f"it is fedavg with server {server}: write {{preset: {name}}}") for name, server in SERVERS.items()),
        ("Fed-Adam", "write {preset: fedadam}"),
        ("fedopt", "write {preset: fedadam}, fedyogi, fedadagrad or fedavgm"),
        ("fedmedian", "known are aligned_feddyn, "),
    ],
)
def test_names_of_the_literature_are_explained_and_far_ones_are_not_guessed(name, advice):
    for entry in (name, {"name": name, "space": {"client_lr": 0.1}}):
        study = {"name": "s", "task": "digits", "methods": [entry], "budget": {"trials_per_method": 1, "rounds": 1}}
        with pytest.raises(InvalidSpec) as caught:
            Study.from_json(study).check()
        assert caught.value.errors[0][0] == "methods[0].name"
        assert advice in str(caught.value)
    with pytest.raises(SpecError, match=r"method\.name: no method"):
        methods().find(name, "method.name")


def test_a_method_may_state_no_default_space_but_not_a_computed_one(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fedmedian_of_a_package.py").write_text("import nothing_of_that_name\nHyper = int\n")
    (tmp_path / "fedmean_of_a_package.py").write_text("SPACE = dict(client_lr=0.1)\n")
    for name in ("fedmedian", "fedmean"):
        point = EntryPoint(name, f"{name}_of_a_package", "driftline.methods")
        monkeypatch.setitem(methods()._added, name, point)
    with pytest.raises(PluginError, match="fedmean_of_a_package: SPACE must be a literal, line 1"):
        spaces.default("methods", "fedmean")
    with pytest.raises(SpecError, match='no default space for method "fedmedian": give it a space'):
        spaces.default("methods", "fedmedian")


GRIDS = {
    "fedavg, figure 12": 6,
    "fedavg, appendix E.3": 81,
    "fedprox, section 6": 324,
    "fedavg, sections 8.1 and 8.4": 63,
    "fedavg, figure 6": 7,
    "local_sgd, section 8.2": 6,
    "fedga, coarse stage": 4,
    "fedga, section 5.1 (EMNIST)": 32,
    "fedga, section 5.2 (CIFAR-10)": 16,
    "scaffold, section 5.1 (EMNIST)": 32,
    "scaffold, section 5.2 (CIFAR-10)": 16,
    "gradalign, section 5.2": 8,
}
"""Configurations of the papers' grids."""
PAPERS = yaml.safe_load((Path(spaces.__file__).parent / "papers.yaml").read_text(encoding="utf-8"))
PAPERS = {place: form for paper in PAPERS.values() for place, form in paper.items() if place != "choice"}


@pytest.mark.parametrize("place", PAPERS)
def test_the_papers_grids_fit_their_modules(place):
    name, form = re.split("[, ]", place)[0], PAPERS[place]
    start = form.pop("start", [])
    space = {key: from_json(value) for key, value in (form or spaces.default("methods", name)).items()}
    assert spaces.grid_size(space) == GRIDS.get(place, spaces.grid_size(space))
    if name not in methods():
        part, word = (schedules()[name], "schedule") if name in schedules() else (optimizers()[name], "server")
        described = {item.name: item for item in offered(part, word)}
        for key, parameter in space.items():
            spaces.check(parameter, described[key], key)
        return
    task = {"name": "digits", "central": {"fraction": 0.1}} if methods()[name].CENTRAL else {"name": "digits"}
    for setting in start or [{key: parameter.grid()[0] for key, parameter in space.items()}]:
        member = parse({"task": task, "method": {"name": name, **setting}, "rounds": 1}).method.member(0)
        assert member | {key: value for key, value in setting.items() if key != "delta_lr"} == member
        if "delta_lr" in setting:
            assert member["server_lr"] == setting["client_lr"]
        if task.get("central") and "central_steps" in member:
            assert (member["central_steps"], member["central_lr"], member["merge_lr"]) == (
                setting["local_steps"],
                None,
                1,
            )


TASK = {"name": "quadratic", "problem": "two_clients", "central": {"hessian": [[1.0]], "center": [0.0]}}


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_settings_of_the_default_space_make_trials(kind, name):
    method = "parallel_training" if kind in ("central", "merge") else "fedavg"
    document = {"task": TASK, "method": {"name": method, "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}}
    word = {"methods": "method", "schedules": "schedule"}.get(kind, kind)
    space = spaces.default(kind, name)
    if "local_epochs" in space:
        document["task"] = {"name": "linear_regression"}  # of a quadratic there are no passes over the data
    settings = [{key: parameter.from_unit(u) for key, parameter in space.items()} for u in (0.0, 0.3, 0.7, 0.999)]
    settings += [{key: parameter.ends()[place] for key, parameter in space.items()} for place in (0, -1)]
    for setting in settings:
        spec = parse({**document, word: {"name": name, **setting}, "rounds": 1})
        member = {"method": spec.method, "schedule": spec.schedule, **spec.optimizers}[word].member(0)
        expected = {key: tuple(value) if isinstance(value, list) else value for key, value in setting.items()}
        assert member | {key: value for key, value in expected.items() if key != "delta_lr"} == member


def test_the_default_ranges_grid_is_the_papers():
    default, grid = spaces.default("methods", "fedavg"), PAPERS["fedavg, figure 12"]["client_lr"]
    assert default["client_lr"].grid() == from_json(grid).options
    assert default["server_lr"].grid() == pytest.approx(from_json(PAPERS["fedavg, appendix E.3"]["server_lr"]).options)


def test_free_names_are_sorted_and_leave_out_the_fixed():
    assert spaces.free({"b": from_json(1.0), "a": from_json({"float": [0, 1]})}) == ("a",)
    assert spaces.free(spaces.default("methods", "fedprox")) == ("client_lr", "local_steps", "prox", "server_lr")
