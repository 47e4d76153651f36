"""Trial documents: defaults, alternatives, members, warnings, and what makes two of them the same."""

import json
from typing import Any

import pytest

from tests.trainers.documents import DESIGN, METHOD, with_, wrong
from trainers.trial.document import parse, structure_of


def test_the_document_of_the_design() -> None:
    spec = parse(DESIGN)
    assert spec.method.values["client_lr"] == (0.05,)
    assert spec.method.values["local_steps"] == (10,)
    assert spec.optimizers["server"].values == {"momentum": (0.0,), "nesterov": (False,)}
    assert (spec.members, spec.listed) == (1, False)
    assert spec.init == (0.0, 0.0)
    assert (spec.clients_per_round, spec.batch_size) == (None, None)
    assert (spec.rounds, spec.seed, spec.dtype, spec.eval_every, spec.report) == (200, 0, "float64", 1, ("params",))
    assert (spec.batching, spec.weighting, spec.loss_data) == ("with_replacement", "uniform", "batches")
    assert spec.task.clients == 2
    assert spec.warnings == ()


def test_only_task_method_and_rounds_must_be_given() -> None:
    spec = parse({"task": {"name": "quadratic", "problem": "two_clients"}, "method": METHOD, "rounds": "1e2"})
    assert (spec.rounds, spec.seed, spec.dtype, spec.eval_every, spec.report) == (100, 0, "float64", "auto", ())
    assert (spec.optimizers["server"].name, spec.schedule.name, spec.init) == ("sgd", "constant", None)


def test_numbers_written_as_text_are_numbers() -> None:
    document = with_("method.client_lr", "1e-3")
    document["method"]["local_steps"] = 10.0
    assert parse(document).method.member(0)["client_lr"] == 0.001
    assert parse(document).canonical == parse(with_("method.client_lr", 0.001)).canonical


def test_plateau_takes_the_loss_on_all_data_and_the_window_for_patience_and_cooldown() -> None:
    spec = parse(with_("schedule", {"name": "plateau", "window": 7}))
    assert (spec.loss_data, spec.monitored_data) == ("batches", "full")
    assert parse(spec.canonical).monitored_data == "full"
    both = parse({**with_("schedule", {"name": "plateau", "window": 7}), "loss_data": "batches"})
    assert parse(both.canonical).monitored_data == both.monitored_data == "batches"
    assert spec.schedule.member(0)["patience"] == spec.schedule.member(0)["cooldown"] == 7
    document = with_("schedule", {"name": "plateau", "window": 7})
    document["members"] = [{"schedule.window": 3}, {"schedule.cooldown": 0}]
    spec = parse(document)
    assert spec.schedule.values["patience"] == (3, 7)
    assert spec.schedule.values["cooldown"] == (3, 0)


class TestAlternatives:
    def test_delta_lr_in_place_of_server_lr(self) -> None:
        document = with_("method", {"name": "fedavg", "client_lr": 0.05, "delta_lr": 2, "local_steps": 10})
        spec = parse(document)
        assert spec.method.values["server_lr"] == (0.1,)
        assert spec.canonical == parse(DESIGN).canonical
        assert "delta_lr" not in spec.method.values

    def test_a_member_replaces_the_alternative_of_the_document(self) -> None:
        document = with_("members", [{"delta_lr": 1}, {"client_lr": 0.2}, {"delta_lr": 4, "client_lr": 0.5}])
        assert parse(document).method.values["server_lr"] == (0.05, 0.1, 2.0)

    @pytest.mark.parametrize("name", ["fedavg", "reptile"])
    def test_epochs_leave_the_steps_out(self, name: str) -> None:
        method = {"name": name, "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 2}
        document = {"task": {"name": "digits"}, "method": method, "rounds": 1}
        spec = parse(document)
        assert spec.method.values["local_epochs"] == (2,)
        assert spec.method.values["local_steps"] == (None,)
        assert (spec.dtype, spec.batching) == ("float32", "shuffled")
        assert parse(spec.canonical).method == spec.method
        assert "both" in str(wrong({**document, "method": {**method, "local_steps": 3}}))

    def test_null_leaves_an_alternative_out(self) -> None:
        document = with_("method", {**METHOD, "server_lr": None, "delta_lr": 2, "local_epochs": None})
        assert parse(document).canonical == parse(DESIGN).canonical

    def test_gradient_weights_say_the_number_of_steps(self) -> None:
        method = {"name": "local_update", "client_lr": 0.1, "server_lr": 0.1, "gradient_weights": [0, "1e0", 2]}
        spec = parse(with_("method", method))
        assert spec.method.values["gradient_weights"] == ((0.0, 1.0, 2.0),)
        assert spec.method.values["local_steps"] == (3,)
        members = with_("members", [{"gradient_weights": [1]}, {"gradient_weights": [0, 1]}])
        members["method"] = {"name": "local_update", "client_lr": 0.1, "server_lr": 0.1}
        assert parse(members).method.values["local_steps"] == (1, 2)
        assert parse(parse(members).canonical).method == parse(members).method


class TestMembers:
    def test_values_of_each_member(self) -> None:
        document = with_("members", [{"client_lr": 0.1, "server.momentum": 0.9}, {"local_steps": 3}])
        spec = parse(document)
        assert (spec.members, spec.listed) == (2, True)
        assert spec.method.values["client_lr"] == (0.1, 0.05)
        assert spec.method.values["local_steps"] == (10, 3)
        assert spec.optimizers["server"].values["momentum"] == (0.9, 0.0)
        assert spec.canonical["members"] == [
            {"client_lr": 0.1, "local_steps": 10, "server.momentum": 0.9},
            {"client_lr": 0.05, "local_steps": 3, "server.momentum": 0.0},
        ]

    def test_what_all_members_give_may_be_left_out_above(self) -> None:
        document = with_("method", {"name": "fedavg", "local_steps": 2})
        document["members"] = [{"client_lr": 0.1, "server_lr": 0.2}, {"client_lr": 0, "server_lr": 0.3}]
        assert parse(document).method.values["server_lr"] == (0.2, 0.3)
        del document["members"][1]["server_lr"]
        assert str(wrong(document)) == (
            "method.server_lr must be given (above 0, or delta_lr in its place): member 1 has none"
        )


@pytest.mark.parametrize(
    "document",
    [
        DESIGN,
        with_("members", [{"client_lr": 0.1, "server.momentum": 0.9}, {"delta_lr": 3}]),
        with_("members", [{}]),
        with_("schedule", {"name": "plateau", "window": 5, "decay_mode": "reference"}),
        with_("method", {"name": "fedavg", "client_lr": 0, "server_lr": 1, "local_steps": 1}),
    ],
)
def test_the_canonical_document_means_the_same_trial(document: dict[str, Any]) -> None:
    spec = parse(document)
    again = parse(json.loads(json.dumps(spec.canonical)))
    assert again.canonical == spec.canonical
    assert (again.method, again.optimizers, again.schedule) == (spec.method, spec.optimizers, spec.schedule)
    assert again.members == spec.members


def test_trials_may_share_a_pack_that_differ_in_traced_hyperparameters_only() -> None:
    key = structure_of(parse(DESIGN))
    same = [
        with_("method.client_lr", 0.5),
        with_("method.local_steps", 3),
        with_("server.momentum", 0.5),
        with_("members", [{"client_lr": 1}]),
        with_("eval_every", "1"),
        with_("task.gradient_noise", ...),
        with_("task.client_weights", [0.5, 0.5]),
    ]
    other = [
        with_("server.nesterov", True),
        with_("schedule", {"name": "plateau"}),
        with_("batch_size", 3),
        with_("rounds", 3),
        with_("seed", 3),
        with_("dtype", "float32"),
        with_("task.gradient_noise", 1),
        with_("clients_per_round", 1),
    ]
    assert [structure_of(parse(document)) for document in same] == [key] * len(same)
    assert key not in [structure_of(parse(document)) for document in other]
    plateau = [structure_of(parse(with_("schedule", {"name": "plateau", "window": w}))) for w in (3, 9)]
    assert plateau[0] == plateau[1]


class TestWarnings:
    def test_a_large_ratio_of_the_rates_warns(self) -> None:
        assert parse(with_("method.server_lr", 0.49)).warnings == ()
        assert len(parse(with_("method.server_lr", 0.5)).warnings) == 1
        assert parse(with_("method.server_lr", 0.61723)).warnings == ()  # found by a search
        one = with_("method.server_lr", 0.6)
        one["method"]["local_steps"] = 1
        assert parse(one).warnings == ()  # client_lr is not used
        assert parse(with_("server", {"name": "adam"}) | {"method": one["method"] | {"local_steps": 9}}).warnings == ()
        (warning,) = parse(with_("method.server_lr", 0.6)).warnings
        assert warning.startswith("method.server_lr is 12 times client_lr, at least 10")
        members = with_("members", [{"client_lr": 0.1}, {"client_lr": 0.001}, {"client_lr": 0}])
        assert parse(members).warnings[0].startswith("method.server_lr is 100 times client_lr")
        assert parse(with_("method.client_lr", 0)).warnings == ()

    def test_overshooting_on_one_client_warns(self) -> None:
        assert parse(with_("method.client_lr", 0.33)).warnings == ()
        (warning,) = parse(with_("method.client_lr", 0.4)).warnings
        assert warning.startswith("method.client_lr times the largest curvature of a client is 1.2:")
