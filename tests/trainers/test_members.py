"""The contract of packs, over everything that a document may hold: its methods, optimizers, schedules, settings."""

import itertools

import pytest

from trainers.registry import methods, optimizers, schedules

from .documents import SERVERS
from .members import contract
from .methods.trials import document, member_settings, quadratic
from .test_checkpoint import NETWORKS
from .test_optimizers import SERVING, others
from .test_optimizers import document as served

# Server optimizers and schedules meet each other, and every method one pair of them: no method knows which it has.
PAIRS = list(itertools.product(SERVERS, schedules()))
DIGITS = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}}
CENTRAL = {**DIGITS, "central": {"fraction": 0.1}}
MLP = {**DIGITS, "model": {"name": "mlp", "hidden": [6]}}
WORK = {"client_lr": 0.05, "server_lr": 0.05, "local_steps": 3}
MEMBERS = [{}, {"client_lr": 0.02, "local_steps": 5}, {"server_lr": 0.02}]
BRANCHED = ("parallel_training", "two_way_transfer")
MIXED = ("one_way_transfer", *BRANCHED)
KEEPING = [name for name, module in optimizers().items() if "client" not in module.REFUSED and name != "sgd"]


def digits(name="fedavg", **changes):
    """A trial of a method on digits, whose clients come back after rounds away."""
    given = document(name, task=DIGITS, rounds=4, batch_size=5, report=["params"])
    settings = {**WORK, **changes.pop("method", {})}
    return {**given, "method": {"name": name, **settings}, "server": {"name": "sgd"}, **changes}


def every_method():
    for number, method in enumerate(methods()):
        server, schedule = PAIRS[number % len(PAIRS)]
        given = document(method, server, schedule, rounds=4)
        yield f"{method}, {server}, {schedule}", given, [{}, *(member_settings(given, one) for one in (1, 2))]
        given = document(method, task=DIGITS, batch_size=(5, None)[number % 2], rounds=3)
        yield f"{method} on digits", given, [{}, *(member_settings(given, one) for one in (1, 2))]


def every_optimizer():
    for role, name in SERVING:
        own = {f"{role}.{key}": value for key, value in others(role, name).items()}
        yield f"{role} {name}", served(role, name), [{}, {**own, "local_steps": 2}, {"client_lr": 0.02}]
    for name in KEEPING:
        kept = digits(client={"name": name, "state": "keep"})
        yield f"kept {name}", kept, [{}, {"local_steps": 5, "client_lr": 0.02}, {"clip_norm": 0.5}]


def every_setting():
    stored = {"variates": "stored"}
    from_batches = {**stored, "variate_update": "gradient", "displacement_source": "batch"}
    adam = {"name": "adam", "epsilon": 0.1, "state": "keep"}
    yield "stored variates", digits("scaffold", method=stored)
    yield "stored variates of batches", digits("scaffold", method=from_batches)
    yield "stored corrections", digits("feddyn", method={"prox": 0.4})
    yield "stored corrections and kept adam", digits("feddyn", method={"prox": 0.4}, client=adam)
    yield "stored variates and kept adam, with drift", digits("scaffold", method=stored, client=adam, report=["drift"])
    for name, model in NETWORKS.items():
        yield f"{name} with dropout", digits(task={**DIGITS, "model": model})
        yield (f"{name} in two branches", digits("two_way_transfer", task={**CENTRAL, "model": model}))
    muon = {"name": "muon", "state": "keep"}
    yield "muon", digits(task=MLP, client=muon, server={"name": "muon", "weight_decay": 0.05})
    for upload in ("int8", "int4"):
        yield f"upload {upload}", digits(task=MLP, upload=upload)
    for upload in (None, "int4"):
        given = digits(task=MLP, clients_per_round=None, fragments=3, client=adam)
        yield f"fragments, upload {upload}", {**given, **({"upload": upload} if upload else {})}
    slow = {"share": 0.6, "kept": True}
    for name, changes in {
        "": {},
        "of full batches": {"batch_size": None},
        "that are dropped": {"stragglers": {"share": 0.6, "kept": False}},
        "with kept adam": {"client": adam},
        "at rates of steps": {"schedule": {"name": "cosine"}},
        "of a network, with replacement": {"task": MLP, "batching": "with_replacement"},
    }.items():
        yield f"stragglers {name}".strip(), digits(**{"stragglers": slow, **changes})
    yield "stragglers with stored variates", digits("scaffold", method=stored, stragglers=slow)
    for method in MIXED:
        asked = {"task": CENTRAL, "report": ["drift", "dissimilarity"]}
        yield f"{method}, with drift", digits(method, **asked)
        yield f"{method}, with drift of adam", digits(method, client={"name": "adam"}, **asked)
        yield f"{method}, with drift and clipping", digits(method, method={"clip_norm": 0.5}, **asked)


def every_member():
    """Settings in which members differ in what is there for some of them only."""
    for optimizer in ("sgd", "adam"):
        for method in BRANCHED:
            given = digits(method, task=CENTRAL, central={"name": optimizer}, rounds=6)
            plateau = {"name": "plateau", "window": 1, "cooldown": 1, "min_delta": 100.0, "server_decay": 0.5}
            rates = [{"central_lr": 0.02}, {}, {"central_lr": 0.0}]
            yield f"{method}, a central rate, {optimizer}", {**given, "schedule": plateau}, rates
    for method in MIXED:
        weights = [{"federated_weight": 0.0}, {"federated_weight": 0.6, "local_steps": 2}]
        yield f"{method}, weights", digits(method, task=CENTRAL), weights
    passes = digits("fednova", method={"local_steps": None, "local_epochs": 2})
    yield "fednova, effective steps", passes, [{}, {"effective_steps": 3.0}, {"client_lr": 0.02, "prox": 0.2}]
    over = {"name": "cosine", "warmup": 0.05, "floor": 0.05, "rates": "both"}
    shapes = [{}, {"schedule.warmup": 0.0}, {"local_steps": 7}, {"schedule.rounds": 30}, {"schedule.floor": 1.0}]
    yield "a schedule over the rounds", digits(schedule=over, client={"name": "adamw", "state": "keep"}), shapes
    lists = {
        name: [low + 0.05 * client for client in range(12)]
        for name, low in {"rate_share_by_client": 0.4, "mixing_by_client": 0.2, "condition_by_client": 1.0}.items()
    }
    for sync in ("lyapunov", "momentum_half"):
        given = {**digits(), "method": {"name": "mass", "sync": sync, "client_lr": 0.05, "local_epochs": 1, **lists}}
        others = [{}, {"client_lr": 0.02}, {"mixing_by_client": [0.5] * 12}]
        yield f"mass by client, {sync}", given, others
    steady = [{}, {"client_lr": 0.02}, {"server_lr": 0.02}]
    for name, changes in {"": {}, "of stragglers": {"stragglers": {"share": 0.6, "kept": True}}}.items():
        yield f"epochs {name}".strip(), digits(batching="epochs", **changes), steady
    for name, model in NETWORKS.items():
        yield f"epochs of {name}", digits(batching="epochs", task={**DIGITS, "model": model}), steady
    diverging = [{}, {"server_lr": 1e9}, {"server_lr": 0.02}]
    yield "one diverges", digits(task=quadratic()), diverging
    yield (
        "one diverges beside stored variates",
        digits("scaffold", method={"variates": "stored"}, task=quadratic()),
        diverging,
    )


CASES = {
    name: (given, members)
    for name, given, members in (
        *every_method(),
        *every_optimizer(),
        *((name, given, MEMBERS) for name, given in every_setting()),
        *every_member(),
    )
}


@pytest.mark.parametrize("case", CASES)
def test_a_member_is_the_same_alone_packed_restored_split_and_joined(case):
    contract(*CASES[case])
