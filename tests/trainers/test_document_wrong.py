"""Trial documents: every way of being wrong, each in one line with its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.documents import DESIGN, with_, wrong
from trainers.errors import SpecError
from trainers.trial.document import parse
from trainers.trial.document_errors import trial_errors

WEIGHTED = {"name": "local_update", "client_lr": 0.1, "server_lr": 0.1}
WRONG = [
    ("rounds", 0, "rounds must be at least 1, got rounds=0"),
    ("seed", -1, "seed must be in [0, 9223372036854775807], got seed=-1"),
    ("dtype", "float16", 'dtype must be one of float32, float64, tf32, bfloat16, got dtype="float16"'),
    ("batch_size", 0, "batch_size must be at least 1, got batch_size=0"),
    (
        "batching",
        "shufled",
        'batching must be one of with_replacement, shuffled, epochs, by_class, got batching="shufled"',
    ),
    ("weighting", "sizes", 'weighting must be one of uniform, examples, got weighting="sizes"'),
    (
        "weighting",
        "examples",
        (
            'weighting must be uniform for a task without countable examples, got weighting="examples": '
            "give task.client_weights instead"
        ),
    ),
    ("loss_data", "all", 'loss_data must be one of full, batches, got loss_data="all"'),
    ("clients_per_round", 0, "clients_per_round must be at least 1, got clients_per_round=0"),
    ("clients_per_round", 3, "clients_per_round must be at most 2, the clients of the task, got clients_per_round=3"),
    ("init", [0.0], "init must have 2 numbers, one for each parameter of the task, got 1"),
    ("init", [0.0, None], "init.1 must be a number, got init.1=null"),
    ("eval_every", 0, "eval_every must be at least 1, got eval_every=0"),
    ("eval_every", "often", 'eval_every must be "auto" or at least 1, got eval_every="often"'),
    ("report", "params", 'report must be a list of names, got report="params"'),
    ("report", ["param"], 'report.0: no report "param": did you mean params?'),
    ("task", ..., "task must be given"),
    ("method", ..., "method must be given"),
    ("rounds", ..., "rounds must be given (at least 1)"),
    ("round", 3, 'unknown key "round": did you mean rounds?'),
    ("task", "quadratic", 'task must be an object like {"name": "digits"}, got task="quadratic"'),
    ("task.name", "quadratics", 'task.name: no task "quadratics": did you mean quadratic?'),
    ("task.hessian", [], 'unknown key "hessian" in task: did you mean hessians?'),
    ("method", "fedavg", 'method must be an object like {"name": ...}, got method="fedavg"'),
    ("method.name", "FedAverage", 'method.name: no method "FedAverage": did you mean fedavg?'),
    ("method.client_rl", 1, 'unknown key "client_rl" in method: did you mean client_lr?'),
    ("method.delta_lr", 1, "method.delta_lr must not be given beside server_lr, got both: leave one out"),
    ("method.server_lr", ..., "method.server_lr must be given (above 0, or delta_lr in its place)"),
    ("method.server_lr", None, "method.server_lr must be given (above 0, or delta_lr in its place)"),
    ("method.local_epochs", 1, "method.local_epochs must not be given beside local_steps, got both: leave one out"),
    ("method.local_steps", ..., "method.local_steps must be given (at least 1, or local_epochs in its place)"),
    (
        "method",
        {"name": "fedavg", "client_lr": 0, "delta_lr": 1, "local_steps": 1},
        "method.delta_lr must come with a client_lr above 0, got client_lr=0: give server_lr instead",
    ),
    (
        "method",
        {"name": "fedavg", "client_lr": 0.1, "server_lr": 1, "local_epochs": 1},
        "method.local_epochs must be left out for a task without countable examples: give local_steps",
    ),
    ("method", WEIGHTED, "method.gradient_weights must be given (numbers at least 0)"),
    (
        "method",
        {**WEIGHTED, "gradient_weights": [1, 0]},
        "method.gradient_weights must end with a weight above 0, got gradient_weights=[1.0, 0.0]",
    ),
    (
        "method",
        {**WEIGHTED, "gradient_weights": [0, 1, 2], "local_steps": 2},
        "method.gradient_weights must have one weight for each local step, got 3 weights and local_steps=2",
    ),
    ("members", [], "members must be a list of at least one object, got members=[]"),
    ("members", [3], "members.0 must be an object, got 3"),
    ("members", [{"client_rl": 1}], 'unknown key "client_rl" in members.0: did you mean client_lr?'),
    ("members", [{"server_momentum": 0}], 'unknown key "server_momentum" in members.0: did you mean server.momentum?'),
    ("members", [{}, {"client_lr": -1}], "members.1.client_lr must be at least 0, got client_lr=-1"),
    ("members", [{"server.momentum": 1}], "members.0.server.momentum must be in [0, 1), got momentum=1"),
    (
        "members",
        [{"server.nesterov": True}],
        "members.0.server.nesterov must be the same for all members: give it once, outside members",
    ),
    (
        "members",
        [{}, {"delta_lr": 1, "server_lr": 1}],
        "members.1.delta_lr must not be given beside server_lr, got both: leave one out",
    ),
    ("server", 3, 'server must be an object like {"name": ...}, got server=3'),
    ("server.momentum", 1, "server.momentum must be in [0, 1), got momentum=1"),
    ("server.moment", 0.9, 'unknown key "moment" in server: did you mean momentum?'),
    ("schedule.window", 3, 'unknown key "window" in schedule: known are name'),
    (
        "schedule",
        {"name": "plateau", "monitor": "accuracy"},
        'schedule.monitor must be "loss": the task has no accuracy',
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_wrong_documents(path: str, value: Any, message: str) -> None:
    error = wrong(with_(path, value))
    assert str(error) == message
    assert [str(one) for one in trial_errors(with_(path, value))] == [message]
    assert error.path.split(".")[0] == path.split(".")[0]


def test_a_model_of_examples_has_its_own_number_of_parameters() -> None:
    """Digits' softmax has 64 x 10 weights and 10 biases; this is known before anything is trained."""
    error = wrong({**DESIGN, "task": {"name": "digits", "clients": 3}, "init": [0.0, 1.0]})
    assert str(error) == "init must have 650 numbers, one for each parameter of the task, got 2"


@pytest.mark.parametrize("document", [None, [], "trial", 3])
def test_a_trial_is_an_object(document: Any) -> None:
    assert str(wrong(document)).startswith('the trial must be an object like {"task": ...}, got ')


def test_names_must_be_given() -> None:
    assert str(wrong(with_("task", {}))).startswith("task.name must be given: one of ")
    assert str(wrong(with_("method", {}))).startswith("method.name must be given: one of ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    path=st.sampled_from(
        [
            *DESIGN,
            *(f"{k}.{key}" for k in ("task", "method", "server", "schedule") for key in DESIGN[k]),
            "members",
            "x",
        ]
    ),
    value=JSON,
)
def test_whatever_stands_anywhere_is_accepted_or_refused_in_one_line(path: str, value: Any) -> None:
    refused = ""
    try:
        json.dumps(parse(with_(path, value)).canonical, allow_nan=False)
    except SpecError as error:
        refused = str(error)
    assert "\n" not in refused
    assert len(refused) < 400


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"rounds": 0, "seed": -1, "dtype": "float16"}, "rounds seed dtype"),
        (
            {"method": {"name": "fedprox", "client_lr": -1, "local_steps": 0}, "rounds": 0},
            "rounds method.client_lr method.local_steps method.prox method.server_lr",
        ),
        ({"method": {"name": "fedpox", "client_lr": -1}, "seed": -1, "server": {"name": "adm"}}, "seed method server"),
        ({"task": {"name": "digits", "clients": 0}, "clients_per_round": 900, "rounds": 0}, "rounds task.clients init"),
        (
            {"method": {"name": "fedavg", "client_lrr": -1, "server_lr": 1, "local_steps": 1}, "rouns": 3},
            "rouns method.client_lrr method.client_lr",
        ),
        (
            {"members": [{"client_lr": -1}, {"server.momentum": 3}], "batch_size": 0},
            "batch_size members.0.client_lr members.1.server.momentum",
        ),
        ({"task": 7, "method": 3, "rounds": "x"}, "rounds task method"),
    ],
)
def test_all_errors_are_named(changes: dict[str, Any], places: str) -> None:
    document = {**DESIGN, **changes}
    found = trial_errors(document)
    assert " ".join(one.path.removesuffix(".name") for one in found) == places
