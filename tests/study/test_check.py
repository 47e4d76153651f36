"""Study.check: what only the trainers know is wrong is found before anything starts, under the study's own keys."""

import pytest

import trainers
from driftline.errors import InvalidSpec
from driftline.study.check import _readable
from driftline.study.search_check import corners
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from driftline.study.yaml_files import read
from trainers.errors import SpecError
from trainers.registry import methods, tasks

from .documents import at, changed, mistake

TEXT = """\
name: check
task: {name: quadratic, problem: random, clients: 20}
methods:
  - name: fedavg
    space: {client_lr: {float: [1e-3, 1.0], log: true, also: [0]}, server_lr: 0.1, local_steps: {choice: [1, 5, 10]}}
    server: {name: sgd, space: {momentum: {choice: [0.0, 0.9]}}}
    schedule: {name: plateau, space: {window: {int: [5, 50]}, client_decay: {choice: [0.1, 0.5]}}}
budget: {trials_per_method: 16, rounds: 20}
"""
DOCUMENT = read(TEXT)


def test_a_good_study_passes():
    assert Study.from_yaml(TEXT).check() == []


ENTRY = {"name": "fedavg", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}}
BAD = [  # a place, what is written there, and what is said of it or of a place below
    ("clients_per_round", 21, "must be at most 20, the clients of the task"),
    ("dtype", "int8", 'must be one of float32, float64, tf32, bfloat16, got dtype="int8"'),
    (
        "methods[0]",
        {"name": "maml", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 1, "clip_norm": 1}},
        ".space.clip_norm: must be left out for maml: the adaptation steps are differentiated",
    ),
    ("methods[0].client.name", "adan", 'no optimizer "adan"'),
    ("methods[0].name", "fedavgg", 'no method "fedavgg": did you mean fedavg?'),
    ("methods[0].schedule.name", "plateu", 'no schedule "plateu": did you mean plateau?'),
    ("methods[0].schedule.space.client_decay", {"choice": [0.1, 0]}, "must be in (0, 1], got client_decay=0"),
    ("methods[0].schedule.space.window", {"int": [0, 50]}, "must be in [1, 1000000], got window=0"),
    ("methods[0].schedule.space.windw", 3, "unknown hyperparameter of plateau: did you mean window?"),
    ("methods[0].server.name", "sdg", 'no optimizer "sdg": did you mean sgd?'),
    ("methods[0].server.space.moment", 3, "unknown hyperparameter of sgd: did you mean momentum?"),
    (
        "methods[0].space",
        {"client_lr": {"choice": [0, 0.1]}, "delta_lr": 1, "local_steps": 1},
        ".delta_lr: must come with a client_lr above 0, got client_lr=0",
    ),
    ("methods[0].space.clent_lr", 3, "unknown hyperparameter of fedavg: did you mean client_lr?"),
    ("methods[0].space.client_lr", {"float": [-1, 1]}, "must be at least 0, got client_lr=-1"),
    ("methods[0].space.delta_lr", 1, "must not be given beside server_lr"),
    ("methods[0].space.local_steps", {"choice": [5, 0]}, "must be at least 1, got local_steps=0"),
    ("methods[0].space.server_lr", 0, "must be above 0, got server_lr=0"),
    ("methods[0].space.server_lr", ..., "must be given"),
    ("objective.cost", "tokens", "must be a cost of task quadratic (rounds, bytes, client_gradients, "),
    ("objective.quality", "los", "must be a metric of task quadratic (loss, "),
    ("task.clints", 20, "unknown key: did you mean clients?"),
    ("task.name", "quadric", 'no task "quadric": did you mean quadratic?'),
]


def started(points, text=TEXT):
    return Study.from_yaml(text.replace("    server:", f"    start: {points}\n    server:"))


def test_start_is_read_as_trials_are():
    assert started("[{client_lr: 0, server.momentum: 0.9}, {client_lr: 1}]").check() == []
    text = TEXT.replace("server_lr: 0.1", "delta_lr: 1").replace(", also: [0]", "")
    assert started("[{client_lr: 1}]", text).check() == []
    text = TEXT.replace("window: {int: [5, 50]}", "window: {int: [5, 50]}, cooldown: {int: [0, 9]}")
    assert started("[{schedule.cooldown: 3}, {schedule.cooldown: 3}]", text).check() == [
        "methods[0].start[1]: the same as start[0]: one of them could be left out"
    ]


def test_an_entry_has_a_limited_number_of_starting_points():
    points = [f"{{client_lr: {number / 1000}}}" for number in range(1001)]
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.start: must have fewer items"):
        started(f"[{', '.join(points)}]")


def test_a_wrong_mix_of_values_is_found_under_start(monkeypatch):
    real = trainers.parse

    def refuse(document):
        if document["members"][0]["local_steps"] == 10 and document["members"][0]["client_lr"] == 0.5:
            raise SpecError("members.0.server.momentum must not be so", "members.0.server.momentum")
        return real(document)

    monkeypatch.setattr(trainers, "parse", refuse)
    with pytest.raises(InvalidSpec) as error:
        started("[{client_lr: 0.5}, {local_steps: 10, client_lr: 0.5}]").check()
    assert str(error.value) == "methods[0].start[1].server.momentum: must not be so"


def test_the_grid_is_wider_by_what_start_has_off_it():
    text = TEXT.replace("budget: {trials_per_method: 16", "sampler: grid\nbudget: {trials_per_method: 361")
    with pytest.raises(InvalidSpec, match=r"^budget\.trials_per_method: must be at most 360, "):
        started("[{client_lr: 0, local_steps: 5}]", text).check()
    assert started("[{client_lr: 0.123, local_steps: 5}]", text).check() == []


def test_each_search_has_a_grid_of_its_own():
    grid = TEXT.replace("budget: {trials_per_method: 16", "sampler: grid\nbudget: {searches: 2, trials_per_method: 720")
    assert Study.from_yaml(grid).check() == []
    with pytest.raises(InvalidSpec, match=r"must be at most 720, .*, once for each of 2 searches, got .*=722"):
        Study.from_yaml(grid.replace("720", "722")).check()


@pytest.mark.parametrize(("place", "value", "said"), BAD)
def test_bad_settings_are_found_at_the_corners(place, value, said):
    message = at(place, said)
    error = mistake(changed(DOCUMENT, place, value))
    assert str(error).startswith(message)
    assert message.startswith(error.path)


def test_errors_in_several_entries_are_reported_together():
    text = TEXT.replace("client_lr:", "clent_lr:").replace("momentum:", "moment:").replace("plateau", "plateu")
    text = text.replace(
        "budget:",
        "  - {name: fedavgg, space: {a: 1}}\n  - {label: other, name: fedavg, space: {local_steps: 0}}\nbudget:",
    )
    text = text.replace("budget:", "objective: {quality: los}\nbudget:")
    with pytest.raises(InvalidSpec) as error:
        Study.from_yaml(text).check()
    assert [path for path, _ in error.value.errors] == [
        "methods[0].space.clent_lr",
        "methods[0].server.space.moment",
        "methods[0].schedule.name",
        "methods[1].name",
        "methods[2].space.local_steps",
        "objective.quality",
        "methods[2].space.client_lr",
        "methods[2].space.server_lr",
    ]


def test_an_error_of_the_task_is_reported_once():
    text = TEXT.replace("clients: 20", "clients: 0").replace("methods:", "methods:\n  - fedprox")
    with pytest.raises(InvalidSpec) as error:
        Study.from_yaml(text).check()
    assert error.value.errors == (("task.clients", "must be in [1, 10000000], got clients=0"),)


@pytest.mark.parametrize(
    ("quality", "start", "best", "rule"),
    [
        ("test_accuracy", 0.1, 0.9, ""),
        ("test_loss", 2.3, 0.05, ""),
        ("test_accuracy", 0.9, 0.1, "above start, because test_accuracy rises as models get better"),
        ("test_loss", 0.05, 2.3, "below start, because test_loss falls as models get better"),
        ("test_loss", 2.3, 0, "above 0, because test_loss is compared on a logarithm"),
    ],
)
def test_a_scale_leads_from_worse_to_better(quality: str, start: float, best: float, rule: str) -> None:
    document = {"name": "s", "task": "digits", "methods": ["fedavg"], "budget": {"trials_per_method": 2, "rounds": 9}}
    study = Study(**document, objective={"quality": quality, "scale": {"start": start, "best": best}})
    if not rule:
        study.check()
        return
    with pytest.raises(InvalidSpec) as error:
        study.check()
    said, _, got = str(error.value).partition(", got ")
    assert said == f"objective.scale.best: must be {rule}"
    assert got == (f"start={start} and best={best}" if "start" in rule else f"best={best}")


def test_what_would_merely_diverge_is_fine():
    text = TEXT.replace("[1e-3, 1.0]", "[1e-3, 1e6]").replace("server_lr: 0.1", "server_lr: 1e6")
    assert Study.from_yaml(text).check() == []


def test_remarks():
    grid = Study.from_yaml(TEXT.replace("budget:", "sampler: grid\nbudget:")).check()
    assert grid == ["methods[0]: 16 of the 360 configurations on the grid of fedavg will be tried"]
    front = Study.from_yaml(TEXT.replace("rounds: 20", "rounds: 20, confirm: 17, seeds: 2")).check()
    assert front == [
        "budget.confirm: 17 configurations are to be confirmed, but only 16 are searched: all of them will be confirmed"
    ]
    (uneven,) = Study.from_yaml(TEXT.replace("rounds: 20", "rounds: 20, confirm: 9, seeds: 2, searches: 4")).check()
    assert uneven.startswith("budget.confirm: 9 configurations are to be confirmed, but there are 4 equal searches: ")
    assert uneven.endswith("2 of each will be confirmed, 8 in all")


def test_a_reported_extra_may_be_the_quality() -> None:
    document = {"name": "full", "task": {"name": "digits", "clients": 4}, "objective": {"quality": "full_loss"}}
    document |= {"methods": [{"name": "fedsgd", "space": {"server_lr": 0.1}}], "report": ["full_loss"]}
    document |= {"budget": {"trials_per_method": 1, "rounds": 2, "seeds": 0}}
    Study.from_json(document).check()
    assert Study.from_json(document).to_json()["report"] == ["full_loss"]
    with pytest.raises(InvalidSpec, match=r"objective\.quality: must be a metric of task digits .*full_loss"):
        Study.from_json({key: value for key, value in document.items() if key != "report"}).check()
    with pytest.raises(InvalidSpec, match="report"):
        Study.from_json(document | {"report": ["full_los"]}).check()


MIXED = """
name: mixed
task: {name: quadratic, problem: random, clients: 4, dimension: 2, central: {hessian: [[2, 0], [0, 1]], center: [1, 1]}}
methods:
  - {label: parallel, name: parallel_training, space: {client_lr: RATE, delta_lr: 1.0, local_steps: 2}}
objective: {quality: loss, cost: rounds}
budget: {trials_per_method: 8, rounds: 10}
"""


@pytest.mark.parametrize(
    ("rate", "where"),
    [
        ("{float: [1.0e-5, 1.0], log: true}", "methods[0], towards the high ends of its space: method.server_lr"),
        ("{float: [0.5, 1.0], log: true}", "methods[0], even at the low ends of its space: method.server_lr"),
        ("0.05", "methods[0], with its one configuration: method.server_lr"),
    ],
)
def test_step_sizes_beyond_the_theory_are_remarked(rate, where) -> None:
    remarks = Study.from_yaml(MIXED.replace("RATE", rate)).check()
    assert remarks[0].startswith(where)
    assert "the limit of theorem B.1" in remarks[0]
    assert any("unstable" in line for line in remarks) == (rate != "0.05")
    assert Study.from_yaml(MIXED.replace("RATE", "1.0e-4")).check() == []


def test_a_mixed_study_without_central_data_is_refused() -> None:
    bad = MIXED.replace("RATE", "0.1").replace(", central: {hessian: [[2, 0], [0, 1]], center: [1, 1]}", "")
    with pytest.raises(InvalidSpec, match=r"task.central: must be given for parallel_training, which trains on data"):
        Study.from_yaml(bad).check()


def read(study: Study, setting: dict[str, object]) -> bool:
    try:
        trainers.parse(trial_document(study, study.labels[0], [setting], study.seed))
    except (SpecError, ValueError):
        return False
    return True


def test_what_cannot_be_read_alone_cannot_be_read_among_others():
    """Corners are read together first: nothing wrong may pass in company."""
    tried = refused = 0
    task = {"name": "quadratic", "problem": "random", "clients": 5}
    for name in methods():
        entry = {"name": name, "space": "default"}
        budget = {"trials_per_method": 2, "rounds": 5}
        study = Study.from_json({"name": "x", "task": task, "methods": [entry], "budget": budget})
        low, *_ = corners(study.methods[0].parameters())
        if not read(study, low):
            continue  # it wants another task
        for key in low:
            for value in (-1, 0.5, "x"):
                alone = read(study, low | {key: value})
                assert alone or not _readable(study, study.labels[0], [low, low | {key: value}]), (name, key, value)
                tried, refused = tried + 1, refused + (not alone)
    assert refused > 20
    assert tried - refused > 20


def test_a_study_that_names_no_quality_compares_one_that_its_task_reports() -> None:
    budget = {"trials_per_method": 4, "rounds": 5}
    assert Study(name="a", task="linear_regression", methods=["fedavg"], budget=budget).check() == []
    for name, task in tasks().items():
        study = Study(name="a", task=name, methods=[ENTRY], budget=budget)
        assert study.objective.quality == task.QUALITY
        assert study.objective.quality in task.METRICS
