"""Members that differ only in their schedules are trained once until their rates part, and no bit tells.

The contract of schedules and plans: a member is the same alone, in a pack and shared.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.engine.packs import checkpoint
from trainers.engine.packs.build import build_model
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.registry import methods, optimizers, schedules
from trainers.trial.document import parse

from .members import curves, timeless
from .methods.trials import part, same
from .test_checkpoint import DIGITS, document

ROUNDS = 14
CPU = torch.device("cpu")
QUADRATIC = {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 5, "gradient_noise": 0.3}
PLATEAU = {"name": "plateau", "window": 1, "patience": 1, "cooldown": 0, "min_delta": 0.05}
FEDAVG = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3}


def quadratic(members, **changes):
    trial = {
        "task": QUADRATIC,
        "method": FEDAVG,
        "schedule": PLATEAU,
        "clients_per_round": 3,
        "rounds": ROUNDS,
        "eval_every": 2,
        "seed": 3,
        "report": ["params"],
    }
    return {**trial, **changes, "members": members}


def pack_of(trial, chosen=None, width=8):
    """A pack of some members of a trial under a separate plan."""
    members = trial["members"]
    spec = parse({**trial, "members": [members[one] for one in (range(len(members)) if chosen is None else chosen)]})
    oracle = next(name for name, found in build_model(spec, CPU)[1].oracles.items() if not found.reference)
    plan = Plan(oracle, width, torch.get_num_threads(), "cpu", spec.dtype, spec.eval_every, separate=True)
    return Pack.from_spec(spec, device="cpu", plan=plan)


def totals(lines, column):
    """Member -> last value of a counter."""
    return {line["member"]: line[column] for line in lines}


def computed(lines):
    """Client gradients that were really computed."""
    return sum(totals(lines, "client_gradients").values()) - sum(totals(lines, "shared_gradients").values())


def law(trial, stops=(5,)):
    """In one pack, with interruptions, every member is what it is alone; returns the lines of the whole pack."""
    chosen = list(range(len(trial["members"])))
    whole = pack_of(trial).advance()
    pack, resumed = pack_of(trial), []
    for stop in stops:
        resumed += pack.advance(stop)
        pack = Pack.restore(pack.spec, pack.to_bytes(), device="cpu")
    resumed += pack.advance()
    assert timeless(resumed) == timeless(whole)
    found = curves(whole, chosen)
    for one in chosen:
        alone = pack_of(trial, [one]).advance()
        assert found[one] == curves(alone, [one])[one]
        assert {line["shared_gradients"] for line in alone} == {0}
    return whole


def packed_as_alone(trial):
    """A member is the same alone and in a pack of any plan."""
    packed = Pack.from_spec(parse(trial)).advance()
    for one, member in enumerate(trial["members"]):
        alone = Pack.from_spec(parse({**trial, "members": [member]})).advance()
        same([line for line in packed if line["member"] == one], alone)


WORK = {
    "steps": {"method": FEDAVG, "task": QUADRATIC},
    "passes": {"method": {**FEDAVG, "local_steps": None, "local_epochs": 1}, "task": DIGITS},
    "adamw": {"method": FEDAVG, "task": DIGITS, "client": {"name": "adamw"}},
    "network": {"method": FEDAVG, "task": {**DIGITS, "model": {"name": "mlp", "hidden": [6]}}},
}
RISING = [
    {"schedule.warmup": 0.5},
    {"schedule.warmup": 0.5, "schedule.floor": 0.5},
    {"schedule.warmup": 0.1},
    {"schedule.warmup": 0.5},
]
APART = {
    "constant": [{}, {}],
    "cosine": RISING,
    "linear": RISING,
    "plateau": [{"schedule.window": 1}, {"schedule.window": 1, "schedule.client_decay": 0.5}, {"schedule.window": 3}],
    "theory_1_over_t": [{}, {"schedule.strong_convexity": 0.5}, {}],
    "by_steps": [
        {"schedule.warmup": 6},
        {"schedule.warmup": 6, "schedule.length": 50},
        {"schedule.warmup": 2},
        {"schedule.warmup": 6},
    ],
}


# Rates of steps meet every kind of work, rates of rounds one kind each.
OTHERS = [name for name in schedules() if name != "cosine"]
CASES = [*itertools.product(("cosine", "by_steps"), WORK), *zip(OTHERS, itertools.cycle(WORK), strict=False)]


@pytest.mark.parametrize(("schedule", "work"), CASES)
def test_a_member_is_the_same_alone_packed_and_shared_under_every_schedule(schedule, work, by_steps):
    settings = {**part(schedules()[schedule], schedule), **(PLATEAU if schedule == "plateau" else {})}
    settings |= {"local_steps": 3} if schedule == "theory_1_over_t" else {}
    trial = quadratic(APART[schedule], schedule=settings, batch_size=6, rounds=5, dtype="float64", **WORK[work])
    packed_as_alone(trial)
    lines = law(trial, stops=(2,))
    assert computed(lines) < sum(totals(lines, "client_gradients").values())


def test_a_trunk_is_shared_until_the_rates_of_a_step_differ(by_steps):
    lines = law(quadratic(APART["by_steps"], schedule={"name": by_steps}, rounds=6))
    per_round = 3 * 3
    # The members of warmup 6 share two rounds of three steps; the two that are equal share all.
    assert computed(lines) == per_round * (2 + 2 * 4 + 6)


@pytest.mark.parametrize("method", methods())
def test_every_method_takes_rates_of_steps_of_each_member(method, by_steps):
    members = [{"schedule.warmup": 6}, {"schedule.warmup": 1, "schedule.length": 9}]
    trial = document(method, rounds=3, members=members, dtype="float64")
    packed_as_alone({**trial, "schedule": {"name": by_steps}})


def windows(*numbers, **more):
    return [{"schedule.window": number, **more} for number in numbers]


def test_a_trunk_is_trained_once_and_its_branches_alone():
    members = [
        {"schedule.patience": patience, "schedule.client_decay": decay} for patience in (3, 9) for decay in (0.1, 0.5)
    ]
    lines = law(quadratic(members, schedule={**PLATEAU, "min_delta": 1e9}))  # decays every `patience` rounds
    per_round = 3 * 3
    assert set(totals(lines, "client_gradients").values()) == {ROUNDS * per_round}
    # The first round always improves. All share four rounds, then the patient ones six more.
    assert computed(lines) == per_round * (4 + 2 * (ROUNDS - 4) + (10 - 4) + 2 * (ROUNDS - 10))
    assert totals(lines, "shared_gradients") == {0: 0, 1: 4 * per_round, 2: 4 * per_round, 3: 10 * per_round}


def test_equal_members_never_part_and_other_settings_never_meet():
    same = [{}, {}, {"client_lr": 0.2}, {"client_lr": 0.2}, {"server.momentum": 0.9}]
    lines = law(quadratic(same))
    assert computed(lines) == 3 * totals(lines, "client_gradients")[0]
    assert totals(lines, "shared_gradients")[1] == totals(lines, "client_gradients")[1]


def test_a_trunk_diverges_for_all_that_share_it():
    unstable = {"client_lr": 1e4, "server_lr": 1e9}
    lines = law(quadratic([*windows(1, 2, 3, **unstable), {}]))
    ends = {line["member"]: line["round"] for line in lines if line["diverged"]}
    assert set(ends) == {0, 1, 2}
    assert len(set(ends.values())) == 1


def test_a_branch_diverges_alone():
    members = [{"schedule.patience": 2, "schedule.server_decay": 0.01}, {"schedule.patience": 99}]
    growing = {**FEDAVG, "server_lr": 0.5}
    lines = law(quadratic(members, schedule={**PLATEAU, "min_delta": 1e9}, method=growing, rounds=20))
    assert {line["member"] for line in lines if line["diverged"]} == {1}


def test_rates_that_differ_from_the_start_are_not_shared():
    theory = {"name": "theory_1_over_t", "strong_convexity": 1.0, "smoothness": 3.0}
    lines = law(quadratic([{"schedule.smoothness": 3.0}, {"schedule.smoothness": 4.0}], schedule=theory))
    assert computed(lines) == sum(totals(lines, "client_gradients").values())


def test_without_a_separate_plan_nothing_is_shared():
    spec = parse(quadratic(windows(1, 2)))
    lines = Pack.from_spec(spec).advance()
    assert not any("shared_gradients" in line for line in lines)


MANY = [
    {"schedule.window": 1},
    {"schedule.window": 1, "schedule.client_decay": 0.5},
    {"schedule.window": 3, "schedule.server_decay": 0.5},
    {"schedule.window": 2, "schedule.patience": 4},
]


METHODS = [(method, ("float32", "float64")[number % 2]) for number, method in enumerate(methods())]


@pytest.mark.parametrize(("method", "dtype"), METHODS)
def test_no_bit_changes_for_any_method(method, dtype):
    given = {**document(method, rounds=5, members=MANY[:3]), "schedule": {**PLATEAU, "min_delta": 0.2}}
    lines = law({**given, "dtype": dtype, "eval_every": 2}, stops=(2,))
    assert computed(lines) < sum(totals(lines, "client_gradients").values())


OPTIMIZERS = [  # those that average models have no schedule
    (role, name)
    for role in ("server", "client")
    for name, module in optimizers().items()
    if role not in module.REFUSED and module.averaged is None
]


@pytest.mark.parametrize(("role", "optimizer"), OPTIMIZERS)
def test_no_bit_changes_for_any_optimizer(role, optimizer):
    lines = law(quadratic(MANY, **{role: {"name": optimizer}}), stops=(2, 3))
    assert 0 < computed(lines) < sum(totals(lines, "client_gradients").values())


settings_of_plateau = st.fixed_dictionaries(
    {
        "schedule.window": st.integers(1, 4),
        "schedule.patience": st.integers(1, 6),
        "schedule.cooldown": st.integers(0, 5),
        "schedule.client_decay": st.sampled_from([0.1, 0.5, 1.0]),
        "schedule.server_decay": st.sampled_from([0.5, 1.0]),
        "client_lr": st.sampled_from([0.1, 0.1, 0.3, 1e6]),
    }
)


@settings(max_examples=10, deadline=None)
@given(
    members=st.lists(settings_of_plateau, min_size=2, max_size=6),
    method=st.sampled_from(["fedavg", "scaffold", "feddyn"]),
    server=st.sampled_from(["sgd", "adam"]),
    dtype=st.sampled_from(["float32", "float64"]),
    stops=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_no_bit_changes_whatever_the_schedules_do(members, method, server, dtype, stops):
    trial = quadratic(
        members,
        method=part(methods()[method], method) | {"local_steps": 2, "server_lr": 0.3},
        server={"name": server},
        dtype=dtype,
    )
    lines = law(trial, stops)
    for column in ("client_gradients", "shared_gradients"):
        assert all(value >= 0 for value in totals(lines, column).values())


@settings(max_examples=6, deadline=None)
@given(
    members=st.lists(settings_of_plateau, min_size=6, max_size=6),
    rungs=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    orders=st.lists(st.permutations(range(6)), min_size=3, max_size=3),
    cut=st.integers(1, 5),
)
def test_no_bit_changes_for_members_that_are_packed_again_at_rungs(members, rungs, orders, cut):
    trial = quadratic([{**member, "client_lr": min(0.3, member["client_lr"])} for member in members])
    found = {one: [] for one in range(6)}
    parts = {}
    for turn, (rung, order) in enumerate(zip([*rungs, None], orders, strict=False)):
        for chosen in (order[:cut], order[cut:]):
            pack = pack_of(trial, chosen)
            if turn:
                pack = Pack.restore(pack.spec, checkpoint.joined([parts[one] for one in chosen]), device="cpu")
            for one, lines in curves(pack.advance(rung), chosen).items():
                found[one] += lines
            parts |= dict(zip(chosen, checkpoint.members(pack.to_bytes()), strict=True))
    for one in range(6):
        assert found[one] == curves(pack_of(trial, [one]).advance(), [one])[one]


def test_members_of_different_packs_share_again_from_a_rung():
    trial = quadratic(windows(1, 2, 3, 4), schedule={**PLATEAU, "patience": 9})
    packs = [pack_of(trial, chosen) for chosen in ([0, 1], [2, 3])]
    before = [computed(pack.advance(4)) for pack in packs]
    together = parse(trial)
    pack = Pack.restore(together, checkpoint.joined([pack.to_bytes() for pack in packs]), device="cpu")
    lines = pack.advance(4)
    assert computed(lines) - sum(before) == before[0]  # four more rounds of one trunk instead of two
