"""Studies: what is read, round trips, and bad input with the exact key in the message."""

import json
import pydoc

import pytest

from driftline.errors import InvalidSpec
from driftline.study.budget import Budget
from driftline.study.entries import MethodEntry, ScheduleEntry, ServerOptimizerEntry
from driftline.study.spec import Objective, Resources, Study
from search_spaces import spaces
from search_spaces.parameters import Choice, Float, Int

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
    assert (one.objective.quality, one.objective.cost, one.objective.objectives) == (
        "test_accuracy",
        "bytes",
        ("quality", "speed"),
    )
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


def test_canonical_json_round_trips_through_text_in_any_key_order():
    one = study()
    document = json.loads(json.dumps(one.to_json(), sort_keys=True))
    assert Study.from_json(document) == one
    assert Study.from_json(document).fingerprint() == one.fingerprint()
    assert len(one.fingerprint()) == 64


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


def test_rungs_do_not_begin_before_the_first_evaluation():
    document = {**study().to_json(), "eval_every": 30}
    with pytest.raises(
        InvalidSpec, match=r"^budget\.rungs: must not begin before the first evaluation, after round 30"
    ):
        Study.from_json({**document, "budget": {**document["budget"], "rungs": "auto"}})


def test_fingerprint_changes_with_every_value_and_not_with_the_spelling():
    same = TEXT.replace("1e-3", "0.001").replace("rounds: 200", "rounds: 200, seeds: 6, confirm: 8, searches: 1")
    assert study(same).fingerprint() == study().fingerprint()
    for old, new in [("64", "65"), ("1e-3", "2e-3"), ("bytes", "rounds"), ("0.9]", "0.8]"), ("averaging", "a")]:
        assert study(TEXT.replace(old, new, 1)).fingerprint() != study().fingerprint()


def test_how_samplers_are_asked_changes_the_fingerprint_only_when_it_is_chosen():
    told = study(TEXT.replace("rounds: 200}", "rounds: 200, asking: generations}"))
    assert "asking" not in told.to_json()["budget"]
    assert told.fingerprint() == study().fingerprint()
    other = study(TEXT.replace("rounds: 200}", "rounds: 200, asking: asynchronous}"))
    assert other.to_json()["budget"]["asking"] == "asynchronous"
    assert other.fingerprint() != study().fingerprint()
    assert Study.from_json(other.to_json()) == other


def test_objective_follows_the_task():
    text = TEXT.replace("objective: {quality: test_accuracy, cost: bytes}\n", "")
    assert study(text).objective == Objective(quality="test_accuracy")
    assert study(text.replace("name: digits,", "name: quadratic,")).objective.quality == "excess_loss"
    assert study(text.replace("name: digits,", "name: npz, model: {name: linear},")).objective.quality == "test_loss"
    assert study(TEXT.replace("cost: bytes", "optimize: speed")).objective.objectives == ("speed",)


def test_a_scale_is_optional_and_changes_no_other_study():
    assert "scale" not in study().to_json()["objective"]
    fixed = study(TEXT.replace("cost: bytes", "cost: bytes, scale: {start: 0.1, best: 1}"))
    assert fixed.to_json()["objective"]["scale"] == {"start": 0.1, "best": 1.0}
    assert Study.from_json(fixed.to_json()) == fixed
    assert fixed.fingerprint() != study().fingerprint()


def test_branches_need_a_schedule_to_search_and_change_the_fingerprint():
    assert "branches" not in study().to_json()["budget"]
    branching = study(TEXT.replace("rounds: 200", "rounds: 200, branches: 8"))
    assert branching.budget.branches == branching.to_json()["budget"]["branches"] == 8
    assert [branching.budget.trunk_of(number) for number in (0, 7, 8, 17)] == [0, 0, 8, 16]
    assert branching.fingerprint() != study().fingerprint()
    rule = "^budget.branches: needs an entry whose schedule has a space with more than one value$"
    with pytest.raises(InvalidSpec, match=rule):
        study(
            TEXT.replace("rounds: 200", "rounds: 200, branches: 8").replace("{window: {int: [5, 50]}}", "{window: 5}")
        )


def test_searches_have_trunks_of_their_own():
    budget = Budget(trials_per_method=16, rounds=1, searches=2, branches=4)
    assert [budget.trunk_of(number) for number in range(10)] == [0, 1, 0, 1, 0, 1, 0, 1, 8, 9]


def test_forecast_is_refused_where_only_speed_counts():
    text = TEXT.replace("cost: bytes", "optimize: speed").replace("rounds: 200", "rounds: 200, rungs: {rule: forecast}")
    with pytest.raises(InvalidSpec, match=r"budget\.rungs\.rule: must be halving or extrapolation with"):
        study(text)
    assert study(text.replace("optimize: speed", "optimize: quality")).budget.rung_rule == "forecast"


BAD = [
    (
        "cost: bytes",
        "cost: bytes, scale: {start: 0.1, best: 0.1}",
        "objective.scale.best: must differ from start, got best=0.1",
    ),
    (
        "trials_per_method: 64",
        "trials_per_methd: 64",
        "budget.trials_per_methd: unknown key: did you mean trials_per_method?",
    ),
    ("methods:", "method:", "method: unknown key: did you mean methods?"),
    ("rounds: 200", "rounds: 0", "budget.rounds: must be at least 1, got rounds=0"),
    ("rounds: 200", "rounds: true", "budget.rounds: must be a whole number, got true"),
    ("rounds: 200", "rounds: 1.5", "budget.rounds: must be a whole number, got 1.5"),
    (", rounds: 200", "", "budget.rounds: must be given"),
    (
        "rounds: 200",
        "rounds: 200, searches: 5",
        (
            "budget.trials_per_method: must be a multiple of searches, so that all searches are equal, "
            "got trials_per_method=64 and searches=5"
        ),
    ),
    (
        "rounds: 200",
        "rounds: 200, searches: 4, branches: 17",
        "budget.branches: must be at most 16, the configurations of a search, got branches=17",
    ),
    (
        "trials_per_method: 64, rounds: 200}",
        "trials_per_method: 6, rounds: 200, branches: 3}\nsampler: grid",
        (
            "budget.branches: with the sampler grid, needs a fixed value for all that is not of the schedule, "
            "got a range for client_lr of averaging"
        ),
    ),
    ("rounds: 200", "rounds: 200, seeds: -1", "budget.seeds: must be at least 0, got seeds=-1"),
    (
        "rounds: 200",
        "rounds: 200, rungs: [25, 20]",
        "budget.rungs: must be auto or a list of increasing rounds from 1 to rounds=200, got [25, 20]",
    ),
    ("rounds: 200", "rounds: 200, rungs: 3", "budget.rungs: must be auto or a list of increasing numbers, got 3"),
    (
        "rounds: 200",
        "rounds: 200, rungs: [a]",
        'budget.rungs: must be auto or a list of increasing numbers, got ["a"]',
    ),
    (
        "rounds: 200",
        "rounds: 200, rungs: {rule: best}",
        'budget.rungs.rule: must be halving, extrapolation or forecast, got rule="best"',
    ),
    ("rounds: 200", "rounds: 200, rungs: {att: auto}", "budget.rungs.att: unknown key: did you mean at?"),
    (
        "rounds: 200",
        "rounds: 200, rungs: {at: 3}",
        "budget.rungs.at: must be auto or a list of increasing numbers",
    ),
    ("rounds: 200", "rounds: 200, rungs: []", "budget.rungs: must be auto or a list of increasing rounds from 1"),
    ("label: averaging", "label: fedprox", 'methods[1].label: must be unique, got "fedprox", which methods[0] has'),
    ("label: averaging", "label: a.b", "methods[0].label: must be 1 to 50 letters"),
    ("label: averaging", "label: 3", "methods[0].label: must be a string, got label=3"),
    ("name: fedprox", "name: fedpro", 'methods[1].name: no method "fedpro": did you mean fedprox?'),
    ("name: fedavg", "nam: fedavg", "methods[0].nam: unknown key: did you mean name?"),
    (
        "space: default",
        "space: 3",
        "methods[1].space: must be a mapping of hyperparameters to their search spaces, or default",
    ),
    ("[1e-3, 1.0]", "[1, 1e-3]", "methods[0].space.client_lr: low must be below high, got float=[1.0, 0.001]"),
    ("log: true", "lg: true", "methods[0].space.client_lr.lg: unknown key: did you mean log?"),
    ("{int: [5, 50]}", "{int: 5}", "methods[0].schedule.space.window.int: must be a list, got 5"),
    ("{int: [5, 50]}", "[5, 50]", "methods[0].schedule.space.window: write {choice: [5, 50]}"),
    (
        "space: {momentum",
        "momentum: 0.9, space: {momentum",
        "methods[0].server.momentum: unknown key: use name and space",
    ),
    ("{name: plateau, ", "{", "methods[0].schedule.name: must be given"),
    (
        "cost: bytes",
        "cost: euros",
        "objective.cost: must be rounds, bytes, client_gradients, examples, tokens or seconds, got cost=",
    ),
    ("gpu: auto", "gpu: some", 'resources.gpu: must be auto or a number of at least 0, got "some"'),
    ("packs: 4", "packs: 0", "resources.packs: must be auto or a whole number of at least 1, got 0"),
    ("packs: 4", "cpus: 0", "resources.cpus: must be above 0, got cpus=0"),
    ("packs: 4", "pool: a b", "resources.pool: must be 1 to 100 letters, digits, '.', '_' or '-'"),
    ("clients_per_round: 10", "seed: -1", "seed: must be at least 0, got seed=-1"),
    ("clients_per_round: 10", "sampler: tpee", 'sampler: no sampler "tpee": did you mean tpe?'),
    ("clients_per_round: 10", "sampler: 3", "sampler: must be the name of a sampler, or a mapping of its name and"),
    ("clients_per_round: 10", "sampler: {startup: 3}", "sampler.name: must be given: one of tpe, "),
    ("clients_per_round: 10", "sampler: {name: gpp}", 'sampler.name: no sampler "gpp": did you mean gp?'),
    ("clients_per_round: 10", "sampler: {name: tpe, startp: 3}", "sampler.startp: unknown key: did you mean startup?"),
    ("clients_per_round: 10", "sampler: {name: gp, startup: 3}", "sampler.startup: unknown key: known are cap, name"),
    ("clients_per_round: 10", "sampler: {name: random, cap: 3}", "sampler.cap: unknown key: "),
    ("clients_per_round: 10", "sampler: {name: tpe, startup: 0}", "sampler.startup: must be at least 1, got startup=0"),
    (
        "clients_per_round: 10",
        "sampler: {name: nsga2, population_size: 3}",
        "sampler.population_size: must be at least 4, got population_size=3",
    ),
    (
        "clients_per_round: 10",
        "sampler: {name: nsga2, population_size: many}",
        'sampler.population_size: must be a whole number, got "many"',
    ),
    ("clients_per_round: 10", "sampler: {name: gp, cap: 15}", "sampler.cap: must be at least 16, got cap=15"),
    ("{window: {int: [5, 50]}}}", "{window: {int: [5, 50]}}}\n    start: 3", "methods[0].start: must be a list, got"),
    (
        "space: default",
        "space: default, start: [{prox: 0.1}, {client_lr: 0.1, server_lr: 1e6}]",
        'methods[1].start[1].server_lr: must lie in its space {"float": [',
    ),
    (
        "space: default",
        "space: default, start: [{client_lr: 0.1}, {clent_lr: 0.1}]",
        "methods[1].start[1].clent_lr: not in the entry's search space: did you mean client_lr?",
    ),
    ("space: default", "space: default, start: [{}]", "methods[1].start[0]: must be a mapping of hyperparameters to"),
    ("space: default", "space: default, start: [0.1]", "methods[1].start[0]: must be a mapping of hyperparameters to"),
    (
        "space: default",
        "space: default, start: [{server: {momentum: 0.9}}]",
        "methods[1].start[0].server: write its settings with a dot: server.momentum",
    ),
    ("clients_per_round: 10", "eval_every: 0", "eval_every: must be auto or a whole number of at least 1, got 0"),
    ("clients_per_round: 10", "rungs: 3", "rungs: unknown key: "),
    ("name: digits-", "name: /tmp/", "name: must be 1 to 100 letters"),
    ("name: digits,", "nam: digits,", "task.name: must be given"),
    ("{name: digits, clients: 50, partition: {dirichlet: 0.3}}", "3", "task: must be a mapping, got task=3"),
    ("- {name: fedprox, space: default}", "- 3", "methods[1]: must be a mapping, got 3"),
    (
        "- {name: fedprox, space: default}",
        "- fedpro",
        'methods[1].name: no method "fedpro": did you mean fedprox?',
    ),
    (
        "objective: {quality: test_accuracy, cost: bytes}",
        "objective: 1",
        "objective: must be a mapping, got objective=1",
    ),
    ("clients_per_round: 10", "name: b", 'line 13, column 1: key "name" is given twice (first in line 1): keep one'),
    ("gpu: auto", "gpu: auto, gpu: 1", 'line 12, column 24: key "gpu" is given twice'),
    ("gpu: auto", "gpu: [auto", "line 12, column 33: "),
    ("clients_per_round: 10", "3: 4", "3: keys must be strings"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_bad_input_names_key_value_and_remedy(old, new, message):
    assert old in TEXT
    with pytest.raises(InvalidSpec) as error:
        study(TEXT.replace(old, new, 1))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert error.value.path in message


def test_all_errors_are_reported_at_once():
    wrong = [
        ("cost: bytes", "cost: euros"),
        ("rounds: 200", "rounds: 0"),
        ("[1e-3, 1.0]", "[1, 1e-3]"),
        ("{choice: [1, 5]}", "[1, 5]"),
        ("{int: [5, 50]}", "{int: 5}"),
        ("name: fedprox", "nam: fedprox"),
        ("clients_per_round", "clients_per_rund"),
        ("trials_per_method: 64, ", ""),
    ]
    text = TEXT
    for old, new in wrong:
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(InvalidSpec) as error:
        study(text)
    lines = str(error.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "clients_per_rund",  # unknown keys first
        "methods[0].space.client_lr",
        "methods[0].space.local_steps",
        "methods[0].schedule.space.window.int",
        "methods[1].nam",  # and the name is not also reported as missing
        "objective.cost",
        "budget.trials_per_method",
        "budget.rounds",
    ]
    assert [f"{path}: {problem}" for path, problem in error.value.errors] == lines
    assert (error.value.path, error.value.problem) == error.value.errors[0]


def test_labels_and_starts_are_reported_together():
    entries = "methods: [fedavg, {name: fedavg, start: [{client_lr: 0.1}, {client_lr: 0.2}]}, fedavg]\n"
    with pytest.raises(InvalidSpec) as error:
        study(f"name: a\ntask: digits\n{entries}budget: {{trials_per_method: 1, rounds: 1}}\n")
    assert [path for path, _ in error.value.errors] == ["methods[1].label", "methods[1].start", "methods[2].label"]


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


def test_the_json_schema_can_be_made():
    schema = Study.model_json_schema()
    assert set(schema["required"]) >= {"name", "task", "methods", "budget"}


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("rounds", 1e23, 10**9),
        ("trials_per_method", 10**400, 10**6),
        ("seeds", "1e9", 10**4),
        ("confirm", 2**31, 10**6),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(key, value, limit):
    document = study().to_json()
    document["budget"] = document["budget"] | {key: value}
    with pytest.raises(InvalidSpec, match=f"budget.{key}: must be at most {limit}, got"):
        Study.from_json(document)


@pytest.mark.parametrize(
    ("trials", "confirm", "seeds", "expected"),
    [(64, 8, 3, (8, 24, 88)), (5, 8, 3, (5, 15, 20)), (64, 8, 0, (0, 0, 64)), (1, 1, 1, (1, 1, 2))],
)
def test_a_budget_says_how_many_trials_an_entry_has(
    trials: int, confirm: int, seeds: int, expected: tuple[int, int, int]
) -> None:
    budget = Budget(trials_per_method=trials, rounds=10, confirm=confirm, seeds=seeds)
    assert (budget.confirmed, budget.confirmation_trials, budget.trials) == expected
