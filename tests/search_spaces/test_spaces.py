"""The default spaces and the papers' grids."""

import pytest

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from search_spaces import rates, spaces
from search_spaces.methods import aligned_linear_scaling, fedavg, fedga, fedprox, gradalign, local_sgd, scaffold
from search_spaces.optimizers import sgd, yogi
from search_spaces.schedules import plateau
from search_spaces.spaces import SERVERS
from trainers.errors import SpecError
from trainers.registry import methods, optimizers, schedules
from trainers.trial.document import parse
from trainers.trial.parts import offered
from trainers.trial.roles import ROLES, serving

REGISTRIES = {"methods": methods, **dict.fromkeys(ROLES, optimizers), "schedules": schedules}


def choices(kind):
    """What can be chosen: of optimizers those that can serve in the role."""
    return serving(kind) if kind in ROLES else list(REGISTRIES[kind]())


ALL = [(kind, name) for kind in spaces.KINDS for name in choices(kind)]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_default_space_fits_its_module(kind, name):
    described = {item.name: item for item in offered(REGISTRIES[kind]()[name], kind)}
    space = spaces.default(kind, name)
    assert space.keys() <= described.keys()
    for key, parameter in space.items():
        for value in parameter.ends():
            described[key].check(value, key)
    required = {key for key, item in described.items() if item.required}
    instead = {"delta_lr": "server_lr", "local_epochs": "local_steps"}
    assert required <= {*space, *(name for other, name in instead.items() if other in space)}


@pytest.mark.parametrize("kind", spaces.KINDS)
def test_everything_that_can_be_chosen_has_a_default_space(kind):
    assert set(REGISTRIES[kind]()) == set(spaces.names(kind))


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
        ("fedmedian", "known are aligned_linear_scaling, "),
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


def test_a_method_of_a_package_has_no_default_space(monkeypatch):
    monkeypatch.setattr(methods(), "_own", {*methods()._own, "fedmedian"})
    with pytest.raises(SpecError, match='no default space for method "fedmedian": give it a space'):
        spaces.default("methods", "fedmedian")


def test_papers_grids_have_the_papers_numbers():
    assert rates.client_lr_grid().options == (0, 1e-3, 1e-2, 1e-1, 1, 10)
    assert rates.client_lr_grid(100).options == (0, 1e-3, 1e-2, 1e-1, 1, 10, 100)
    assert rates.half_decades().options == pytest.approx(
        [0.001, 0.00316227766, 0.01, 0.0316227766, 0.1, 0.316227766, 1, 3.16227766, 10], rel=1e-9
    )
    assert [spaces.grid_size(space) for space in (fedavg.fixed_server_lr(), fedavg.tuned_server_lr())] == [6, 63]
    assert [spaces.grid_size(space) for space in (fedavg.jointly_tuned(), fedprox.jointly_tuned())] == [81, 324]
    assert fedavg.tuned_server_lr()["local_steps"].options == (10,)
    assert fedavg.jointly_tuned()["local_steps"].options == (50,)
    assert sgd.paper()["momentum"].options == (0, 0.9)
    assert {key: value.options for key, value in plateau.paper().items()} == {
        "window": (100,),
        "patience": (100,),
        "cooldown": (100,),
        "min_delta": (1e-4,),
        "client_decay": (0.1,),
        "server_decay": (0.9,),
    }


def test_grids_of_gradient_alignment_have_the_papers_numbers():
    assert [spaces.grid_size(scaffold.emnist()), spaces.grid_size(scaffold.cifar10())] == [32, 16]
    assert [spaces.grid_size(fedga.emnist(0.025)), spaces.grid_size(fedga.cifar10(2.5))] == [32, 16]
    assert spaces.grid_size(gradalign.cifar10(2.0)) == 8
    assert fedga.emnist(0.025)["displacement"].options == (0.025,)
    best = {name: value for name, value in fedga.cifar10(2.5).items() if name != "displacement"}
    staged = fedga.displacements(best, fedga.alignment.coarse_displacements())
    assert staged["displacement"].options == (0.01, 0.1, 1.0, 5.0)
    assert spaces.grid_size(staged) == 4 * spaces.grid_size(best)
    for name, space in [("fedga", staged), ("aligned_linear_scaling", aligned_linear_scaling.one_rate())]:
        setting = {key: parameter.grid()[0] for key, parameter in space.items()}
        document = {"task": {"name": "quadratic", "problem": "two_clients"}, "method": {"name": name, **setting}}
        assert parse({**document, "rounds": 1}).method.name == name


def test_the_yogi_study():
    assert {key: value.options[0] for key, value in yogi.paper().items()} == {
        "beta1": 0.9,
        "beta2": 0.99,
        "epsilon": 1e-5,
        "initial_accumulator": 0,
        "bias_correction": True,
    }
    assert fedavg.adaptive_fixed_server_lr()["client_lr"].options == (0, 1e-3, 1e-2, 1e-1, 1, 10, 100)
    assert fedavg.adaptive_fixed_server_lr()["server_lr"].options == (0.01,)
    found = [(setting["client_lr"], setting["server_lr"]) for setting in yogi.word_prediction()]
    assert found == [(0.1, 10**-1.5), (0.01, 10**-1.5), (0.001, 0.01), (0, 0.01)]
    found = [(setting["client_lr"], setting["server_lr"]) for setting in yogi.tag_prediction()]
    assert found == [(rate, 10**-0.5) for rate in (100, 10, 1, 0.1, 0.01, 0)]
    grid = fedavg.tuned_server_lr()
    for setting in (*yogi.word_prediction(), *yogi.tag_prediction()):
        assert all(grid[name].contains(value) for name, value in setting.items())


def test_the_tied_study():
    assert local_sgd.tied()["client_lr"].options == (1e-3, 1e-2, 1e-1, 1, 10, 100)


TASK = {"name": "quadratic", "problem": "two_clients", "central": {"hessian": [[1.0]], "center": [0.0]}}


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_settings_of_the_default_space_make_trials(kind, name):
    method = "parallel_training" if kind in ("central", "merge") else "fedavg"
    document = {"task": TASK, "method": {"name": method, "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}}
    word = {"methods": "method", "schedules": "schedule"}.get(kind, kind)
    space = spaces.default(kind, name)
    if "local_epochs" in space:
        document["task"] = {"name": "linear_regression"}  # of a quadratic there are no passes over the data
    for u in (0.0, 0.3, 0.7, 0.999):
        setting = {key: parameter.from_unit(u) for key, parameter in space.items()}
        spec = parse({**document, word: {"name": name, **setting}, "rounds": 1})
        member = {"method": spec.method, "schedule": spec.schedule, **spec.optimizers}[word].member(0)
        expected = {key: tuple(value) if isinstance(value, list) else value for key, value in setting.items()}
        assert member | {key: value for key, value in expected.items() if key != "delta_lr"} == member


def test_the_default_ranges_grid_is_the_papers():
    assert rates.client_lr().grid() == rates.client_lr_grid().options
    assert rates.server_lr().grid() == pytest.approx(rates.half_decades().options, rel=1e-11)


def test_free_names_are_sorted_and_leave_out_the_fixed():
    assert spaces.free(fedavg.fixed_server_lr()) == ("client_lr",)
    assert spaces.free(spaces.default("methods", "fedprox")) == ("client_lr", "local_steps", "prox", "server_lr")
