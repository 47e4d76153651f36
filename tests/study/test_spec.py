"""Studies: what is read, round trips, and bad input with the exact key in the message."""

import json
import pydoc

import pytest

from driftline.errors import InvalidSpec
from driftline.study.budget import Budget
from driftline.study.entries import MethodEntry, ScheduleEntry, ServerOptimizerEntry
from driftline.study.spec import Objective, Resources, Study
from driftline.study.yaml_files import read
from search_spaces import spaces
from search_spaces.parameters import Choice, Float, Int

from .documents import at, changed, mistake

TEXT = """\
name: digits-fedavg-vs-fedprox
task: {name: digits, clients: 50, partition: {dirichlet: 0.3}}
methods:
  - label: averaging
    name: fedavg
    space: {client_lr: {float: [1e-3, 1.0], log: true, also: [0]}, server_lr: 1e-1, local_steps: {choice: [1, 5]}}
    server: {name: sgd, space: {momentum: {choice: [0.0, 0.9]}}}
    schedule: {name: plateau, space: {window: {int: [5, 50]}}}
  - {name: fedprox, space: default}
objective: {quality: test_accuracy, cost: bytes}
budget: {trials_per_method: 64, rounds: 200}
resources: {gpu: auto, packs: 4}
clients_per_round: 10
"""
DOCUMENT = read(TEXT)


def study(text=TEXT):
    return Study.from_yaml(text)


def test_every_value_is_read():
    one = study()
    assert one.labels == ("averaging", "fedprox")
    assert one.entry("averaging").parameters() == {
        "client_lr": Float(1e-3, 1, log=True, also=(0,)),
        "server_lr": Choice((0.1,)),
        "local_steps": Choice((1, 5)),
        "server.momentum": Choice((0.0, 0.9)),
        "schedule.window": Int(5, 50),
    }
    assert one.entry("fedprox").parameters() == spaces.default("methods", "fedprox")
    assert (one.entry("fedprox").server.name, one.entry("fedprox").schedule.name) == ("sgd", "constant")
    assert (one.objective.quality, one.objective.cost) == ("test_accuracy", "bytes")
    assert one.objective.objectives == ("quality", "speed")
    assert (one.budget.trials_per_method, one.budget.rounds, one.budget.seeds, one.budget.confirm) == (64, 200, 6, 8)
    assert (one.resources.gpu, one.resources.cpus, one.resources.packs) == ("auto", 1.0, 4)
    assert (one.sampler, one.seed, one.clients_per_round, one.batch_size) == ("tpe", 0, 10, None)


def test_names_alone_stand_for_mappings():
    rest = "budget: {trials_per_method: 2, rounds: 10}\n"
    short = "name: a\ntask: digits\nmethods: [fedavg, {name: fedprox, server: adam, schedule: plateau}]\n"
    long = (
        "name: a\ntask: {name: digits}\nmethods:\n"
        "  - {label: fedavg, name: fedavg, space: default}\n"
        "  - {label: fedprox, name: fedprox, server: {name: adam}, schedule: {name: plateau}}\n"
    )
    assert study(short + rest).to_json() == study(long + rest).to_json()
    assert study(short + rest).to_json()["task"] == {"name": "digits"}
    assert study("name: a\ntask: quadratic\nmethods: [fedavg]\n" + rest).objective.quality == "excess_loss"


def test_a_notebook_shows_a_study():
    shown = study()._repr_html_()
    assert "client_lr" in shown
    assert "64 trials a method, 200 rounds, 6 seeds" in shown


def test_python_and_yaml_agree():
    made = Study(
        name="digits-fedavg-vs-fedprox",
        task={"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
        methods=[
            MethodEntry(
                label="averaging",
                name="fedavg",
                space={
                    "client_lr": Float(1e-3, 1, log=True, also=(0,)),
                    "server_lr": 0.1,
                    "local_steps": Choice((1, 5)),
                },
                server=ServerOptimizerEntry(name="sgd", space={"momentum": {"choice": [0, 0.9]}}),
                schedule=ScheduleEntry(name="plateau", space={"window": Int(5, 50)}),
            ),
            {"name": "fedprox"},
        ],
        objective=Objective(quality="test_accuracy", cost="bytes"),
        budget=Budget(trials_per_method=64, rounds="200"),
        resources=Resources(packs=4),
        clients_per_round=10,
    )
    assert made == study()


def test_a_pool_is_a_resource_and_is_left_out_where_none_is_named():
    assert study().to_json()["resources"] == {"gpu": "auto", "cpus": 1.0, "packs": 4}  # which older drivers read, too
    chosen = study(TEXT.replace("packs: 4", "packs: 4, pool: a100"))
    assert chosen.to_json()["resources"]["pool"] == "a100"
    assert chosen.fingerprint() == study().fingerprint()


def test_canonical_json_leaves_out_what_is_left_to_the_task():
    document = study().to_json()
    assert document["methods"][0]["space"]["server_lr"] == 0.1
    assert document["methods"][1]["space"]["prox"] == {"float": [0.001, 10.0], "log": True}
    assert document["clients_per_round"] == 10
    assert not {"batch_size", "dtype", "init"} & document.keys()
    assert "rungs" not in document["budget"]


def test_rungs_are_kept_as_they_were_written():
    rule = {"at": [25, 75], "rule": "extrapolation"}
    for written, rounds in (("auto", (22, 66, 200)), (rule, (25, 75, 200)), ([25, 75], (25, 75, 200))):
        one = Study.from_yaml(TEXT.replace("rounds: 200", f"rounds: 200, rungs: {written}"))
        assert one.to_json()["budget"]["rungs"] == written
        assert one.budget.rung_rounds == rounds
        assert Study.from_json(one.to_json()) == one
        assert one.fingerprint() != study().fingerprint()
    same = Study.from_yaml(TEXT.replace("rounds: 200", "rounds: 200, rungs: {at: [25, 75], rule: halving}"))
    assert same.fingerprint() == one.fingerprint()
    assert study().budget.rung_rounds == (200,)
    assert study().budget.search_rounds == 64 * 200
    assert one.budget.search_rounds == 64 * 25 + 22 * 50 + 8 * 125


def test_fingerprint_changes_with_every_value_and_not_with_the_spelling():
    same = TEXT.replace("1e-3", "0.001").replace("rounds: 200", "rounds: 200, seeds: 6, confirm: 8, searches: 1")
    assert study(same).fingerprint() == study().fingerprint()
    for old, new in [("64", "65"), ("1e-3", "2e-3"), ("bytes", "rounds"), ("0.9]", "0.8]"), ("averaging", "a")]:
        assert study(TEXT.replace(old, new, 1)).fingerprint() != study().fingerprint()


def test_objective_follows_the_task():
    text = TEXT.replace("objective: {quality: test_accuracy, cost: bytes}\n", "")
    assert study(text).objective == Objective(quality="test_accuracy")
    assert study(text.replace("name: digits,", "name: quadratic,")).objective.quality == "excess_loss"
    assert study(text.replace("name: digits,", "name: npz, model: {name: linear},")).objective.quality == "test_loss"
    assert study(TEXT.replace("cost: bytes", "optimize: speed")).objective.objectives == ("speed",)


@pytest.mark.parametrize(
    ("where", "default", "written", "read"),
    [
        ("budget.asking", "generations", "asynchronous", "asynchronous"),
        ("budget.branches", 1, 8, 8),
        ("objective.scale", None, {"start": 0.1, "best": 1}, {"start": 0.1, "best": 1.0}),
    ],
)
def test_a_choice_is_left_out_unless_it_is_another_one_and_then_makes_another_study(where, default, written, read):
    section, key = where.split(".")
    told, other = (Study.from_json(changed(DOCUMENT, where, value)) for value in (default, written))
    assert key not in told.to_json()[section]
    assert told == study()
    assert told.fingerprint() == study().fingerprint()
    assert other.to_json()[section][key] == read
    assert Study.from_json(other.to_json()) == other
    assert other.fingerprint() != study().fingerprint()


def test_branches_need_a_schedule_to_search():
    branching = study(TEXT.replace("rounds: 200", "rounds: 200, branches: 8"))
    assert [branching.budget.trunk_of(number) for number in (0, 7, 8, 17)] == [0, 0, 8, 16]
    with pytest.raises(InvalidSpec, match=r"^budget\.branches: needs an entry whose schedule has a space with"):
        study(TEXT.replace("rounds: 200", "rounds: 200, branches: 8").replace("{int: [5, 50]}", "5"))


def test_a_grid_branches_from_fixed_values_alone():
    budget = {"trials_per_method": 6, "rounds": 200, "branches": 3}
    rule = "^budget.branches: with the sampler grid, needs a fixed value for all that is not of the schedule, got a "
    with pytest.raises(InvalidSpec, match=f"{rule}range for client_lr of averaging$"):
        Study.from_json(DOCUMENT | {"budget": budget, "sampler": "grid"})


def test_searches_have_trunks_of_their_own():
    budget = Budget(trials_per_method=16, rounds=1, searches=2, branches=4)
    assert [budget.trunk_of(number) for number in range(10)] == [0, 1, 0, 1, 0, 1, 0, 1, 8, 9]


def test_forecast_is_refused_where_only_speed_counts():
    text = TEXT.replace("cost: bytes", "optimize: speed").replace("rounds: 200", "rounds: 200, rungs: {rule: forecast}")
    with pytest.raises(InvalidSpec, match=r"budget\.rungs\.rule: must be halving or extrapolation with"):
        study(text)
    assert study(text.replace("optimize: speed", "optimize: quality")).budget.rung_rule == "forecast"


BAD = [  # a place, what is written there, and what is said of it or of a place below
    ("3", 4, "keys must be strings"),
    ("budget", {"trials_per_method": 8, "rounds": 200, "searches": 4, "branches": 3}, ".branches: must be at most 2, "),
    ("budget.rounds", 0, "must be at least 1, got rounds=0"),
    ("budget.rounds", True, "must be a whole number, got true"),
    ("budget.rounds", 1.5, "must be a whole number, got 1.5"),
    ("budget.rounds", ..., "must be given"),
    ("budget.rungs", 3, "must be auto or a list of increasing numbers, got 3"),
    ("budget.rungs", ["a"], 'must be auto or a list of increasing numbers, got ["a"]'),
    ("budget.rungs", [], "must be auto or a list of increasing rounds from 1"),
    ("budget.rungs", {"rule": "best"}, '.rule: must be halving, extrapolation or forecast, got rule="best"'),
    ("budget.rungs", {"att": "auto"}, ".att: unknown key: did you mean at?"),
    ("budget.rungs", {"at": 3}, ".at: must be auto or a list of increasing numbers"),
    ("budget.seeds", -1, "must be at least 0, got seeds=-1"),
    ("budget.trials_per_methd", 64, "unknown key: did you mean trials_per_method?"),
    ("eval_every", 0, "must be auto or a whole number of at least 1, got 0"),
    ("method", 3, "unknown key: did you mean methods?"),
    ("methods[0].label", "a.b", "must be 1 to 50 letters"),
    ("methods[0].label", 3, "must be a string, got label=3"),
    ("methods[0].nam", "fedavg", "unknown key: did you mean name?"),
    ("methods[0].schedule.name", ..., "must be given"),
    ("methods[0].schedule.space.window", [5, 50], "write {choice: [5, 50]}"),
    ("methods[0].schedule.space.window.int", 5, "must be a list, got 5"),
    ("methods[0].server.momentum", 0.9, "unknown key: use name and space"),
    ("methods[0].space.client_lr", {"float": [1, 0.001]}, "low must be below high, got float=[1.0, 0.001]"),
    ("methods[0].space.client_lr.lg", True, "unknown key: did you mean log?"),
    ("methods[0].start", 3, "must be a list, got"),
    ("methods[1]", 3, "must be a mapping, got 3"),
    ("methods[1].name", "fedpro", 'no method "fedpro": did you mean fedprox?'),
    ("methods[1].space", 3, "must be a mapping of hyperparameters to their search spaces, or default"),
    ("methods[1].start", [{"prox": 0.1}, {"server_lr": 1e6}], '[1].server_lr: must lie in its space {"float": ['),
    ("methods[1].start", [{"clent_lr": 0.1}], "[0].clent_lr: not in the entry's search space: did you mean client_lr?"),
    ("methods[1].start", [{}], "[0]: must be a mapping of hyperparameters to"),
    ("methods[1].start", [0.1], "[0]: must be a mapping of hyperparameters to"),
    ("methods[1].start", [{"server": {"momentum": 0.9}}], "[0].server: write its settings with a dot: server.momentum"),
    ("name", "/tmp/fedavg-vs-fedprox", "must be 1 to 100 letters"),
    ("objective", 1, "must be a mapping, got objective=1"),
    ("objective.cost", "euros", "must be rounds, bytes, client_gradients, examples, tokens or seconds, got cost="),
    ("objective.scale", {"start": 0.1, "best": 0.1}, ".best: must differ from start, got best=0.1"),
    ("resources.cpus", 0, "must be above 0, got cpus=0"),
    ("resources.gpu", "some", 'must be auto or a number of at least 0, got "some"'),
    ("resources.packs", 0, "must be auto or a whole number of at least 1, got 0"),
    ("resources.pool", "a b", "must be 1 to 100 letters, digits, '.', '_' or '-'"),
    ("rungs", 3, "unknown key: "),
    ("sampler", "tpee", 'no sampler "tpee": did you mean tpe?'),
    ("sampler", 3, "must be the name of a sampler, or a mapping of its name and"),
    ("sampler", {"startup": 3}, ".name: must be given: one of tpe, "),
    ("sampler", {"name": "gpp"}, '.name: no sampler "gpp": did you mean gp?'),
    ("sampler", {"name": "tpe", "startp": 3}, ".startp: unknown key: did you mean startup?"),
    ("sampler", {"name": "gp", "startup": 3}, ".startup: unknown key: known are cap, name"),
    ("sampler", {"name": "tpe", "startup": 0}, ".startup: must be at least 1, got startup=0"),
    ("sampler", {"name": "nsga2", "population_size": 3}, ".population_size: must be at least 4, got population_size=3"),
    ("sampler", {"name": "nsga2", "population_size": "many"}, '.population_size: must be a whole number, got "many"'),
    ("sampler", {"name": "gp", "cap": 15}, ".cap: must be at least 16, got cap=15"),
    ("seed", -1, "must be at least 0, got seed=-1"),
    ("task", 3, "must be a mapping, got task=3"),
    ("budget", {"trials_per_method": 4, "rounds": 9, "searches": 3}, ".trials_per_method: must be a multiple of "),
    ("methods[1].label", "averaging", 'must be unique, got "averaging", which methods[0] has'),
    ("task", {"nam": "digits"}, ".name: must be given"),
]
UNREADABLE = [
    ("clients_per_round: 10", "name: b", 'line 13, column 1: key "name" is given twice (first in line 1): keep one'),
    ("gpu: auto", "gpu: [auto", "line 12, column 33: "),
]


@pytest.mark.parametrize(("place", "value", "said"), BAD)
def test_bad_input_names_key_value_and_remedy(place, value, said):
    message = at(place, said)
    error = mistake(changed(DOCUMENT, place, value))
    assert str(error).startswith(message)
    assert "\n" not in str(error)
    assert error.path in message


@pytest.mark.parametrize(("old", "new", "message"), UNREADABLE)
def test_text_that_is_not_yaml_is_named_by_its_place(old, new, message):
    with pytest.raises(InvalidSpec) as error:
        study(TEXT.replace(old, new, 1))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_labels_and_starts_are_reported_together():
    entries = "methods: [fedavg, {name: fedavg, start: [{client_lr: 0.1}, {client_lr: 0.2}]}, fedavg]\n"
    with pytest.raises(InvalidSpec) as error:
        study(f"name: a\ntask: digits\n{entries}budget: {{trials_per_method: 1, rounds: 1}}\n")
    assert [path for path, _ in error.value.errors] == ["methods[1].label", "methods[1].start", "methods[2].label"]
    assert [f"{path}: {problem}" for path, problem in error.value.errors] == str(error.value).splitlines()
    assert (error.value.path, error.value.problem) == error.value.errors[0]


def test_at_most_20_errors_are_listed():
    document = {**study().to_json(), **{f"key{number}": 0 for number in range(50)}}
    with pytest.raises(InvalidSpec) as error:
        Study.from_json(document)
    assert len(error.value.errors) == 21
    assert str(error.value).splitlines()[-1] == "and 30 more"


def test_parts_built_alone_raise_the_same_error():
    with pytest.raises(InvalidSpec, match=r"^space\.client_lr: low must be below high"):
        MethodEntry(name="fedavg", space={"client_lr": {"float": [1, 0]}})
    with pytest.raises(InvalidSpec, match=r"^rounds: must be given, or examples"):
        Budget(trials_per_method=3)
    with pytest.raises(InvalidSpec, match=r"^must be a mapping of keys to values, got \[\]$"):
        Study.from_json([])
    with pytest.raises(InvalidSpec, match=r'^label: no entry "fedprx" in study .*: did you mean fedprox\?$'):
        study().entry("fedprx")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, object()])
def test_what_json_cannot_hold_is_refused(value):
    for task, space in [({"name": "digits", "x": value}, "default"), ({"name": "digits"}, {"client_lr": value})]:
        entry = {"name": "fedavg", "space": space}
        with pytest.raises(InvalidSpec):
            Study(name="a", task=task, methods=[entry], budget={"trials_per_method": 1, "rounds": 1})


def test_a_text_that_contains_itself_is_refused():
    with pytest.raises(InvalidSpec):
        study(TEXT.replace("clients: 50", "clients: &a [*a]"))


def test_help_begins_with_names_and_defaults_and_not_with_how_they_are_checked():
    opening = pydoc.plain(pydoc.render_doc(Study)).partition("Several entries")[0]
    assert "Study(*, name, task, methods, " in opening
    assert "sampler='tpe', seed=0, " in opening
    assert "Annotated" not in opening


@pytest.mark.parametrize(
    ("trials", "confirm", "seeds", "expected"),
    [(64, 8, 3, (8, 24, 88)), (5, 8, 3, (5, 15, 20)), (64, 8, 0, (0, 0, 64)), (1, 1, 1, (1, 1, 2))],
)
def test_a_budget_says_how_many_trials_an_entry_has(
    trials: int, confirm: int, seeds: int, expected: tuple[int, int, int]
) -> None:
    budget = Budget(trials_per_method=trials, rounds=10, confirm=confirm, seeds=seeds)
    assert (budget.confirmed, budget.confirmation_trials, budget.trials) == expected


START = TEXT.replace(
    "space: {window: {int: [5, 50]}}}",
    "space: {window: {int: [5, 50]}}}\n"
    "    start: [{schedule.window: '7', client_lr: 0, server.momentum: 9e-1}, {local_steps: 5.0}]",
)


def test_start_is_kept_in_the_types_of_the_space():
    one = study(START)
    assert one.methods[0].start == [
        {"client_lr": 0.0, "schedule.window": 7, "server.momentum": 0.9},
        {"local_steps": 5},
    ]
    assert [type(value) for value in one.methods[0].start[0].values()] == [float, int, float]
    assert type(one.methods[0].start[1]["local_steps"]) is int
    document = one.to_json()
    assert document["methods"][0]["start"] == one.methods[0].start
    assert "start" not in document["methods"][1]
    assert Study.from_json(json.loads(json.dumps(document))) == one
    assert one.fingerprint() != study().fingerprint()
    assert study(TEXT.replace("space: default", "space: default, start: []")).fingerprint() == study().fingerprint()


def test_start_must_fit_into_the_budget():
    assert study(START.replace("trials_per_method: 64", "trials_per_method: 2")).methods[0].start
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.start: must hold at most 1 configurations, .*, got 2$"):
        study(START.replace("trials_per_method: 64", "trials_per_method: 1"))
