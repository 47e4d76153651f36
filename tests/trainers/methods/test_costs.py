"""Exchanges, bytes and gradients that a round costs, and gradients and examples as they are known before training."""

import pytest

from trainers import SpecError, offered, parse
from trainers.registry import methods
from trainers.trial.spend import spend

from .trials import cohort_size, document, train

COUNTED = {
    # per round with 4 clients, 3 parameters, 8 bytes: exchanges, bytes down, bytes up, client gradients
    "fedavg": (1, 96, 96, 12),
    "fedprox": (1, 96, 96, 12),
    "reptile": (1, 96, 96, 12),
    "fomaml": (1, 96, 96, 12),
    "local_update": (1, 96, 96, 12),
    "fedsgd": (1, 96, 96, 12),
    "minibatch_sgd": (1, 96, 96, 4),
    "minibatch_prox": (1, 96, 96, 12),
    "local_sgd": (1, 96, 96, 12),
    "fednova": (1, 96, 96, 12),
    "mass": (1, 96, 96, 12),
    "lookahead": (1, 24, 24, 3),
    # gradients first: the model down and a gradient up, then their mean down and a pseudo-gradient up
    "scaffold": (2, 192, 192, 16),
    "fedga": (2, 192, 192, 16),
    "gradalign": (2, 192, 192, 8),
    "linear_scaling": (1, 96, 96, 4),
    "aligned_linear_scaling": (2, 192, 192, 8),
    # a gradient and a product of it, which counts as two; the model and the mean gradient down
    "regularized_gd": (2, 192, 192, 12),
    "feddyn": (1, 96, 96, 12),
    "aligned_feddyn": (2, 192, 192, 16),
    "fedexp": (1, 96, 96, 12),
    # the momentum goes down beside the model, gradients at the model come up beside the work; in mime two a step
    "mimelite": (1, 192, 192, 16),
    "mime": (2, 288, 192, 28),
    # three steps, the gradient after them, and three Hessian products that count as two gradients
    "maml": (1, 96, 96, 40),
    # what the server does with its own data costs no client anything; a correction goes down beside the model
    "parallel_training": (1, 96, 96, 12),
    "one_way_transfer": (1, 192, 96, 12),
    "two_way_transfer": (1, 192, 96, 12),
    # an exchange for every step; and clients that take two gradients a step
    "pooled_training": (3, 288, 288, 12),
    "all_on_client": (1, 96, 96, 24),
}


STORED = {"variates": "stored"}
BY_GRADIENTS = {**STORED, "variate_update": "gradient"}
COSTS = [
    *((method, {}, costs) for method, costs in COUNTED.items()),
    ("scaffold", STORED, (1, 192, 192, 12)),
    ("scaffold", BY_GRADIENTS, (1, 192, 192, 16)),
    ("scaffold", {**BY_GRADIENTS, "displacement_source": "batch"}, (1, 192, 192, 16)),
    *(("mass", {"sync": sync}, (1, 192, 192, 12)) for sync in ("momentum_wu", "avg_v")),
    ("mass", {"sync": "momentum_half"}, (1, 96, 96, 12)),
    ("fedga", {"reuse_mean_gradient": True}, (1, 192, 96, 16)),
    ("regularized_gd", {"displacement_source": "full"}, (2, 192, 192, 12)),
]


@pytest.mark.parametrize(("method", "settings", "costs"), COSTS)
def test_costs_of_a_round(method, settings, costs):
    given = document(method, rounds=5)
    line = train({**given, "method": given["method"] | settings})[-1]
    found = tuple(line[name] for name in ("exchanges", "bytes_down", "bytes_up", "client_gradients"))
    assert found == tuple(5 * amount for amount in costs)


UNEQUAL = {"name": "digits", "clients": 6, "partition": {"dirichlet": 0.5}, "model": "softmax"}
COUNTS = ("client_gradients", "examples")
CHOICES = {  # settings on which a method's gradients depend
    "scaffold": [
        {"displacement_source": "batch"},
        STORED,
        BY_GRADIENTS,
        {**BY_GRADIENTS, "displacement_source": "batch"},
    ],
    "fedga": [{"displacement_source": "batch"}, {"reuse_mean_gradient": True}, {"displacement_form": "each_step"}],
    "gradalign": [{"displacement_source": "full"}],
    "regularized_gd": [{"displacement_source": "full"}],
    "mime": [{"gradient_source": "batch"}],
    "mimelite": [{"gradient_source": "batch"}],
    "maml": [{"unbiased": True}],
    "two_way_transfer": [{"warm_start": True}],
    "all_on_client": [{"central_batch_size": 11}],
    "local_update": [{"gradient_weights": [0.0, 1.0]}],
}
SERVERS_WORK = {  # with local_epochs
    "all_on_client": {"central_batch_size": 11},
    "one_way_transfer": {"central_batch_size": 11},
    "parallel_training": {"central_steps": 2},
    "two_way_transfer": {"central_steps": 2},
}
DRAWN = [
    {"batch_size": 7, "batching": "shuffled"},
    {"batch_size": None},
    {"batch_size": 10, "batching": "by_class"},
    {"batch_size": 400, "batching": "with_replacement"},
]
PASSES = [{"batch_size": 7}, {"batch_size": 7, "drop_last": True}, {"batch_size": 400, "drop_last": True}]


def counted_and_known(given):
    """What a trial's last line counts, and what was known of it before training."""
    line, spec = train(given)[-1], parse(given)
    known = {unit: spend(spec, unit) for unit in COUNTS}
    return {unit: line[unit] for unit in COUNTS}, {
        unit: spent.once + given["rounds"] * spent.each for unit, spent in known.items()
    }


@pytest.mark.parametrize("method", methods())
def test_what_a_round_spends_is_known_before_training(method):
    in_passes = any(item.name == "local_epochs" for item in offered(methods()[method]))
    task = {**UNEQUAL, "clients": cohort_size(method)}
    for choice in [{}, *CHOICES.get(method, [])]:
        cases = [{}, *({"task": task, **changes} for changes in (DRAWN, DRAWN[:1])[bool(choice)])]
        for changes in [*cases, *({"task": task, "drop_last": False, **changes} for changes in PASSES if in_passes)]:
            given = document(method, **{"rounds": 2, "eval_every": 2, **changes})
            given["method"] |= choice
            if "drop_last" in changes:
                del given["method"]["local_steps"]
                given["method"] |= {"local_epochs": 2, **SERVERS_WORK.get(method, {})}
            counted, known = counted_and_known(given)
            assert counted == known, (choice, changes)


def test_a_cohort_spends_what_the_mean_client_spends_times_its_size():
    whole, half = (parse(document("mime", task=UNEQUAL, clients_per_round=size)) for size in (6, 3))
    for unit in COUNTS:
        assert spend(half, unit).each * 2 == spend(whole, unit).each
    equal = document("mime", task={**UNEQUAL, "clients": 10, "partition": "iid"}, clients_per_round=3, batch_size=9)
    counted, known = counted_and_known(equal | {"eval_every": 6})
    assert counted == pytest.approx({unit: float(amount) for unit, amount in known.items()}, rel=0.01)


def test_rounds_within_an_amount():
    begun = parse(document("two_way_transfer") | {"clients_per_round": 4})
    begun.method.values["warm_start"] = (True,) * begun.members
    assert [spend(begun, "client_gradients").rounds_within(amount) for amount in (15, 16, 27, 28)] == [0, 1, 1, 2]


def test_tokens_are_refused_where_there_are_none():
    with pytest.raises(SpecError, match="task must be a task of tokens for a budget of tokens, got quadratic"):
        spend(parse(document("fedavg")), "tokens")


def test_single_precision_halves_the_bytes():
    line = train(document("fedavg", rounds=1, dtype="float32"))[-1]
    assert (line["bytes_down"], line["bytes_up"]) == (48, 48)
