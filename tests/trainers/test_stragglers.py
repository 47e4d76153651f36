"""Stragglers: plain loops in float64, every method, packs and checkpoints, counters, entries, and what is refused."""

import math

import numpy as np
import pytest

from driftline.errors import InvalidSpec
from driftline.results.own_settings import own_settings, setting_notes
from driftline.study.chance import nothing_random
from driftline.study.spec import Study
from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.registry import methods
from trainers.trial.document import parse
from trainers.trial.spend import UncountedSpend, spend

from .documents import wrong
from .methods.trials import document
from .plain_loops import CLASSES, INPUTS, LOOPS, RATE, ROUNDS, SIZES, Plain, lines, trial

ABLE = sorted(name for name in methods() if methods().constant(name, "PARTIAL_WORK"))
LOW, HIGH = 0.2, 0.9


def shares(seed, round_index, clients, count):
    """(client -> share of the work, stragglers) as the page of studies defines them."""
    words = randomness.hashed(
        randomness.key(seed, round_index, randomness.Purpose.STRAGGLERS), np.array(clients)[:, None], np.arange(2)
    )
    slow = {clients[place] for place in np.argsort(words[:, 0])[:count]}
    uniform = (words[:, 1] >> 11).astype(float) * 2.0**-53
    return {
        client: LOW + (HIGH - LOW) * u if client in slow else 1.0 for client, u in zip(clients, uniform, strict=True)
    }, slow


def taken(batches, work, passes):
    """The first batches of a client that takes this part of its work."""
    return batches[: max(1, math.ceil(passes * (work * (len(batches) // passes))))]


@pytest.mark.parametrize("work", ["passes", "steps", "full"])
@pytest.mark.parametrize(
    "name", ["fedavg", "fedavg dropped", "fedprox", "fednova", "fednova dropped", "scaffold stored"]
)
def test_stragglers_train_as_in_a_plain_loop(name, work, unequal_clients):
    kept = not name.endswith("dropped")
    settings, loop = LOOPS[name.removesuffix(" dropped")]
    steps = {"local_epochs": 3} if work == "passes" else {"local_steps": 5}
    size = None if work == "full" else 8
    method = {"name": name.split()[0], **settings, **steps}
    found = lines(
        trial(
            unequal_clients,
            method=method,
            batch_size=size,
            stragglers={"share": 0.5, "work": [LOW, HIGH], "kept": kept},
        )
    )
    plainly = {"epochs": 3} if work == "passes" else {"steps": 5}
    plain, w, memory = Plain(unequal_clients, 3, size or max(SIZES), **plainly), np.zeros((CLASSES, INPUTS + 1)), {}
    gradients = examples = slowest = 0
    for number in range(ROUNDS):
        work_of, slow = shares(3, number, list(range(len(SIZES))), 3)
        own = [taken(plain.batches(number, c), work_of[c], 3 if work == "passes" else 1) for c in range(len(SIZES))]
        assert any(len(held) < len(plain.batches(number, c)) for c, held in enumerate(own))
        counting = [held for c, held in enumerate(own) if kept or c not in slow]
        w = w - RATE * loop(plain, w, memory, counting)
        np.testing.assert_allclose(found[number + 1]["params"], w.ravel(), rtol=0, atol=1e-10)
        gradients += sum(map(len, own))
        used = [sum(map(len, held)) for held in own]
        examples, slowest = examples + sum(used), slowest + max(used)
        line = found[number + 1]
        assert (line["client_gradients"], line["examples"], line["slowest_examples"]) == (gradients, examples, slowest)
    usual = lines(trial(unequal_clients, method=method, batch_size=size))[-1]
    assert found[-1]["bytes_down"] == usual["bytes_down"]
    assert found[-1]["bytes_up"] == usual["bytes_up"] * (1 if kept else 0.5)


def test_stragglers_take_the_first_steps_of_their_passes_at_the_rates_of_all():
    """Passes over full batches are steps, at the rates of a schedule over local steps, and nobody takes all of them."""
    task = {"name": "digits", "clients": 6, "partition": {"dirichlet": 0.3}}
    given = {"task": task, "schedule": {"name": "cosine"}, "rounds": 3, "dtype": "float64", "report": ["params"]}
    given["stragglers"] = {"share": 1.0, "kept": True, "work": [0.0, 0.6]}
    rates = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1}
    steps, passes = (
        lines({**given, "method": {**rates, key: 5}})[-1]["params"] for key in ("local_steps", "local_epochs")
    )
    np.testing.assert_allclose(passes, steps, rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", methods())
def test_every_method_takes_stragglers_or_says_why_not(method):
    given = document(method, rounds=2, stragglers={"share": 0.5, "kept": True})
    if method in ABLE:
        Pack.from_spec(parse(given)).advance()
        return
    with pytest.raises(SpecError, match=f"stragglers must be left out for {method}, .*given for {', '.join(ABLE)}$"):
        parse(given)


def test_modelled_time_knows_who_sends():
    given = {"task": {"name": "quadratic", "problem": "random", "clients": 5}, "rounds": 1}
    given["method"] = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    packs = [Pack.from_spec(parse({**given, "stragglers": {"share": 0.6, "kept": kept}})) for kept in (True, False)]
    assert [pack.work.get("senders_per_round") for pack in packs] == [None, 2]


def digits(**changes):
    return {
        "task": {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}},
        "method": {"name": "fedavg", "local_steps": 3, "client_lr": 0.1, "server_lr": 0.1, **changes.pop("method", {})},
        "clients_per_round": 6,
        "batch_size": 10,
        "rounds": 6,
        "seed": 4,
        "stragglers": {"share": 0.6, "kept": True},
        **changes,
    }


def test_who_straggles_depends_on_seed_round_and_client_alone():
    spec = parse(digits())
    draws = [Pack.from_spec(spec)._setting.draw(number).batches for number in range(3)]
    for number, batches in enumerate(draws):
        work = dict(zip(batches.clients.tolist(), batches.work, strict=True))
        _, slow = shares(4, number, sorted(work), 4)
        assert {client for client, share in work.items() if share < 1} == slow
    assert len({tuple(sorted(zip(b.clients.tolist(), b.work.tolist(), strict=True))) for b in draws}) == 3


WRONG = {
    "half": ({"stragglers": 0.5}, 'stragglers must be like {"share": 0.5, "kept": true}, got stragglers=0.5'),
    "unkept": ({"stragglers": {"share": 0.5}}, "stragglers.kept must be given"),
    "too few": ({"stragglers": {"share": 0.01, "kept": True}}, "stragglers.share must be at least 0.0833, for one of"),
    "all": ({"stragglers": {"share": 1, "kept": False}}, "stragglers.share must be less with kept=false: all 6"),
    "order": ({"stragglers": {"share": 1, "kept": True, "work": [1, 0.5]}}, "stragglers.work must be two shares"),
    "one": ({"stragglers": {"share": 1, "kept": True, "work": [0.5]}}, "stragglers.work must be two shares"),
    "above": ({"stragglers": {"share": 1, "kept": True, "work": [0.5, 2]}}, "stragglers.work.1 must be in [0, 1]"),
    "uploads": (
        {"stragglers": {"share": 0.5, "kept": False}, "method": {"name": "scaffold"}},
        "stragglers.kept must be true for scaffold",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_in_a_line(name):
    changes, message = WRONG[name]
    assert str(wrong(digits(**changes))).startswith(message)


def test_a_study_with_stragglers_is_random_and_says_whose_they_are():
    entry = {"name": "fedavg", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 4}}
    slow = {**entry, "label": "slow", "stragglers": {"share": 0.5, "kept": False}}
    task = {"name": "quadratic", "problem": "random", "clients": 4, "dimension": 3}
    whole = {"name": "slow", "task": task, "budget": {"trials_per_method": 1, "rounds": 5}}
    both, one = (Study.model_validate({**whole, "methods": entries}) for entries in ([entry, slow], [entry]))
    assert (nothing_random(both), nothing_random(one)) == (False, True)
    assert setting_notes({"slow": {"settings": own_settings(both)["slow"]}}) == [
        "slow has stragglers (share 0.5, kept false) (its own)."
    ]


def test_a_budget_of_examples_is_refused_because_parts_of_work_are_drawn():
    with pytest.raises(UncountedSpend, match="stragglers must be left out with a budget of examples: give budget"):
        spend(parse(digits()), "examples")
    slow = {"stragglers": {"share": 0.5, "kept": True}}
    entry = {"name": "fedavg", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}}
    study = {"name": "slow", "task": {"name": "digits"}, "budget": {"trials_per_method": 1, "examples": 1_000_000}}
    for methods_given, shared, place in (([{**entry, **slow}], {}, r"methods\[0\]\."), ([entry], slow, "")):
        with pytest.raises(InvalidSpec, match=f"^{place}stragglers: must be left out with a budget of examples: give"):
            Study.model_validate({**study, "methods": methods_given, **shared}).check()
