"""Studies with values of any kind, size and depth: refused in one short line, before anything starts."""

import json
import math
import random
import time

import pytest

from driftline.errors import DriftlineError, InvalidSpec
from driftline.study.spec import Study
from trainers.errors import SpecError
from trainers.trial.document import parse

from .documents import changed

STUDY = {
    "name": "bounds",
    "task": {"name": "quadratic", "problem": "random", "clients": 4},
    "methods": [
        {
            "name": "fedavg",
            "space": {"client_lr": {"float": [0.001, 1.0], "log": True}, "server_lr": 0.1, "local_steps": 2},
            "server": {"name": "sgd", "space": {"momentum": {"choice": [0.0, 0.9]}}},
            "schedule": {"name": "plateau", "space": {"window": {"int": [5, 50]}}},
            "start": [{"client_lr": 0.1}],
        }
    ],
    "budget": {"trials_per_method": 16, "rounds": 20},
    "resources": {"packs": "auto"},
    "sampler": {"name": "tpe", "startup": 4},
}
TRIAL = {
    "task": {"name": "digits", "clients": 10, "partition": {"dirichlet": 0.3}, "model": {"name": "mlp", "hidden": [8]}},
    "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2},
    "server": {"name": "sgd", "momentum": 0.9, "nesterov": False},
    "schedule": {"name": "plateau", "window": 3},
    "members": [{"client_lr": 0.1}, {"client_lr": 0.2, "server.momentum": 0.5}],
    "adaptation": {"steps": [1], "client_lr": 0.1},
    "batch_size": 4,
    "clients_per_round": 2,
    "rounds": 5,
    "report": ["params"],
}


def refused(document):
    with pytest.raises(InvalidSpec) as caught:
        Study.from_json(document).check()
    assert "\n" not in str(caught.value)
    return str(caught.value)


WRONG_KINDS = [
    ("space", "local_steps", {"float": [1, 5]}, "local_steps is a whole number; use int"),
    ("space", "local_steps", {"choice": [1, 2, 2.5, 4]}, "must be a whole number, got local_steps=2.5"),
    ("space", "local_steps", {"int": [1, 5], "also": [0]}, "must be at least 1, got local_steps=0"),
    ("space", "local_steps", {"int": [1, 10**11]}, "must mean at most 100000000 local steps a round, got 100000000000"),
    ("space", "local_steps", {"int": [1, 10**30]}, "high must be at most 9223372036854775807, got high=1000000"),
    ("space", "client_lr", {"choice": [0.1, True, 0.3]}, "must be a number, got client_lr=true"),
    ("space", "client_lr", {"float": [0.1, 1], "also": [-1]}, "must be at least 0, got client_lr=-1"),
    ("schedule.space", "decay_mode", {"float": [0, 1]}, "decay_mode is one of "),
    ("schedule.space", "decay_mode", {"choice": ["paper", 3]}, "must be a string, got decay_mode=3"),
    ("schedule.space", "decay_mode", {"choice": ["decay_moed"]}, "must be one of "),
    ("server.space", "momentum", {"int": [0, 1]}, "must be in [0, 1), got momentum=1"),
    ("space", "tied", {"int": [0, 1]}, "tied is true or false; use choice"),
    ("server.space", "nesterov", {"choice": [True, 0]}, "must be true or false, got nesterov=0"),
]


@pytest.mark.parametrize(("part", "key", "form", "message"), WRONG_KINDS)
def test_a_space_of_another_kind_than_its_hyperparameter(part, key, form, message):
    document = changed(STUDY, f"methods[0].{part}.{key}", form)
    assert refused(document).startswith(f"methods[0].{part}.{key}: {message}")


def test_a_space_of_lists_is_a_choice():
    space = {"client_lr": 0.1, "server_lr": 0.1, "gradient_weights": {"float": [1, 5]}}
    document = changed(STUDY, "methods[0]", {"name": "local_update", "space": space})
    message = "methods[0].space.gradient_weights: gradient_weights is a list of numbers; use choice"
    assert refused(document) == message


def test_whole_numbers_may_be_tried_where_real_ones_may():
    document = changed(STUDY, "methods[0].space.server_lr", {"int": [1, 5], "also": [10]})
    assert Study.from_json(document).check() == []


TOO_LARGE = [
    ("budget.rounds", 10**5000, "budget.rounds: must be at most 1000000000, got rounds=a number of about 5001 dig"),
    ("budget.rounds", 1e23, "budget.rounds: must be at most 1000000000, got"),
    ("budget.trials_per_method", 10**400, "budget.trials_per_method: must be at most 1000000, got"),
    ("budget.seeds", "1e9", "budget.seeds: must be at most 10000, got"),
    ("budget.confirm", 2**31, "budget.confirm: must be at most 1000000, got"),
    ("seed", 10**30, "seed: must be at most 9007199254740992, got seed=1000000000000000000000000000000"),
    ("eval_every", 10**30, "eval_every: must be auto or a whole number of at most 9007199254740992, got 1000000"),
    ("sampler.startup", 10**30, "sampler.startup: must be at most 1000000, got startup=1000000000000000000"),
    ("resources.packs", 1e30, "resources.packs: must be auto or a whole number of at most 1000000, got 1e+30"),
    ("task.dimension", 10**7, "task.dimension: must be small enough that clients x dimension^2 is at most 100000000"),
    ("task.clients", 10**400, "task.clients: must be in [1, 10000000], got clients=a number of about 401 digits"),
    (("x" * 10**6,), 1, f"{'x' * 55} ...: unknown key: known are adaptation, "),
    (("methods", 0, "space", "x" * 10**6), 1, f"methods[0].space.{'x' * 55}"),
    ("methods[0].name", "fedavg" * 170_000, "methods[0].label: must be 1 to 50 letters, digits, '_' or '-', "),
    ("sampler", "tpe" * 300_000, 'sampler: no sampler "tpetpetpetpetpetpetpetpetpetpetpetpetpetpetpetpetpetpet'),
    ("task.name", "x" * 10**6, 'task.name: no task "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ...'),
    ("objective", {"quality": "x" * 10**6}, "objective.quality: must be a metric of task quadratic (loss, "),
    (("9" * 5000,), {3: 1}, "9999999999999999999999999999999999999999999999999999999 ....3: keys must be strings"),
    (("task", "\ud800"), 1, 'task: must not hold half a character (\\ud800 to \\udfff), got "\\ud800"'),
    (("task", "x"), json.loads("[" * 70 + "]" * 70), "task: must be nested at most 64 deep, got more"),
]


@pytest.mark.parametrize(("path", "value", "message"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_what_is_too_large_is_refused_by_its_key(path, value, message):
    start = time.thread_time()
    said = refused(changed(STUDY, path, value))
    assert said.startswith(message)
    assert len(said) < 600
    assert time.thread_time() - start < 3  # milliseconds, but for the first import of torch


def test_a_pack_too_wide_for_any_machine():
    task = {"name": "digits", "clients": 10, "model": {"name": "mlp", "hidden": [3_000_000]}}
    document = STUDY | {"task": task, "objective": {"quality": "test_loss"}}
    said = refused(document | {"resources": {"packs": 64}})
    assert said.startswith("resources.packs: must be smaller: parameters x clients of a round x trials of a pack must")
    assert said.endswith("got 225000010 x 10 x 16")
    assert Study.from_json(document | {"resources": {"packs": 8}}).check() == []


def number(source):
    power = source.choice([0, 1, 3, 6, 9, 12, 18, 19, 30, 308, 400, 5000])
    values = [source.choice([1, -1]) * 10**power, source.choice([1, -1]) * 10.0 ** source.randint(-300, 300)]
    return source.choice([*values, math.nan, math.inf, -0.0, 2.5, 2**63, 5e-324])


def word(source):
    letters = source.choice(["fedavg", "client_lr", "\n\x1b\"'.[]", "é\x00", "\ud800", "9"])
    return letters * source.choice([1, 1, 60, 5000])


def nested(source):
    value = 1
    for _ in range(source.choice([3, 300, 3000])):
        value = [value] if source.random() < 0.5 else {"a": value}
    return value


def anything(source):
    return source.choice(
        [
            number,
            number,
            word,
            nested,
            lambda _: source.choice([None, True, [], {}, b"x", 1j]),
            lambda _: [number(source)] * source.choice([1, 3, 300]),
            lambda _: {"float": [number(source), number(source)], "also": [number(source)]},
            lambda _: {"int": [number(source), number(source)], "log": True},
            lambda _: {"choice": [number(source), word(source), True]},
            lambda _: {word(source): number(source)},
            lambda _: {"name": word(source), "fraction": number(source)},
        ]
    )(source)


def places(document, prefix=()):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from places(value, (*prefix, key))


def check(document):
    Study.from_json(document).check()


@pytest.mark.parametrize(
    ("read", "document", "count"), [(check, STUDY, 150), (parse, TRIAL, 400)], ids=["study", "trial"]
)
def test_whatever_stands_anywhere_is_read_or_refused_in_a_line_for_each_error(read, document, count):
    """Seeded, so that it takes the same time everywhere; each document takes milliseconds."""
    spots = list(places(document))
    source = random.Random(20261122)
    read(document)  # the first time imports torch
    for _ in range(count):
        *place, key = source.choice(spots)
        if isinstance(key, str) and source.random() < 0.2:
            key = word(source)
        strange = changed(document, (*place, key), anything(source))
        lines, errors = [], []
        start = time.thread_time()
        try:
            read(strange)
        except (SpecError, DriftlineError) as error:
            lines = str(error).split("\n")
            errors = getattr(error, "errors", [error])
        assert time.thread_time() - start < 3, (place, key)
        assert all(0 < len(line) < 1000 for line in lines)
        assert len(lines) == len(errors) <= 21
