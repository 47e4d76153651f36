"""The trial documents of a study: what all trials share, and what stands in the members."""

import re

import numpy as np
import pytest

import trainers
from driftline.errors import InvalidSpec
from driftline.results.own_settings import own_settings
from driftline.sdk.frontier import Recommendation
from driftline.study.pack_families import families
from driftline.study.spec import Study
from driftline.study.trial_document import structure, trial_document
from trainers.engine.packs.pack import Pack

from .documents import at, changed
from .test_check import TEXT


def test_trial_document_is_the_contracts():
    one = Study.from_yaml(TEXT.replace("budget:", "clients_per_round: 4\neval_every: auto\nbudget:"))
    settings = [
        {"client_lr": 0.0, "server_lr": 0.1, "local_steps": 5, "server.momentum": 0.9, "schedule.window": 7},
        {"client_lr": 0.5, "server_lr": 0.1, "local_steps": 1, "server.momentum": 0.0, "schedule.window": 9},
    ]
    document = trial_document(one, "fedavg", settings, seed=3)
    assert document == {
        "task": {"name": "quadratic", "problem": "random", "clients": 20},
        "method": {"name": "fedavg"},
        "server": {"name": "sgd"},
        "schedule": {"name": "plateau"},
        "clients_per_round": 4,
        "eval_every": "auto",
        "rounds": 20,
        "seed": 3,
        "members": settings,
    }
    parsed = trainers.parse(document)
    assert parsed.members == 2
    assert parsed.optimizers["server"].values["momentum"] == (0.9, 0.0)


def test_structural_values_stand_outside_the_members():
    one = Study.from_yaml(
        TEXT.replace("client_decay: {choice: [0.1, 0.5]}", "decay_mode: {choice: [paper, reference]}")
    )
    assert one.check() == []
    setting = {"client_lr": 0.0, "server_lr": 0.1, "local_steps": 5, "schedule.decay_mode": "reference"}
    document = trial_document(one, "fedavg", [setting, setting], seed=0)
    assert document["schedule"] == {"name": "plateau", "decay_mode": "reference"}
    assert document["members"] == [{"client_lr": 0.0, "server_lr": 0.1, "local_steps": 5}] * 2
    other = setting | {"schedule.decay_mode": "paper"}
    assert structure(one, "fedavg", setting) == structure(one, "fedavg", setting | {"client_lr": 1.0})
    assert structure(one, "fedavg", setting) != structure(one, "fedavg", other)
    with pytest.raises(ValueError, match=r"configurations of one pack must share schedule\.decay_mode"):
        trial_document(one, "fedavg", [setting, other], seed=0)
    with pytest.raises(ValueError, match="at least one configuration"):
        trial_document(one, "fedavg", [], seed=0)


def test_the_state_of_client_optimizers_stands_beside_their_space_and_in_it():
    def study(client):
        return Study.from_yaml(TEXT.replace("    schedule:", f"    client: {client}\n    schedule:", 1))

    one = study("{name: adam, state: keep, space: {beta1: 0.8}}")
    assert one.check() == []
    assert one == study("{name: adam, space: {beta1: 0.8, state: keep}}") == Study.from_json(one.to_json())
    setting = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 5, "client.beta1": 0.8, "client.state": "keep"}
    document = trial_document(one, "fedavg", [setting], seed=0)
    assert document["client"] == {"name": "adam", "state": "keep"}
    assert trainers.parse(document).optimizers["client"].keeps
    both = study("{name: adam, state: {choice: [reset, keep]}, space: default}")
    assert both.check() == []
    assert set(both.entry("fedavg").client.space) == {"state", "beta1", "epsilon"}
    with pytest.raises(InvalidSpec, match=r"client\.state: must not be given beside space\.state, got both"):
        study("{name: adam, state: keep, space: {state: reset}}")
    with pytest.raises(InvalidSpec, match=r"server\.state: unknown key: use name and space"):
        Study.from_yaml(TEXT.replace("server: {name: sgd,", "server: {name: sgd, state: keep,"))
    with pytest.raises(InvalidSpec, match=r"client\.space\.state.*one of reset, keep"):
        study("{name: adam, state: kept}").check()


def test_optimizers_of_an_entry_reach_the_trial_in_their_roles():
    central = {"hessian": [[1.0]], "center": [0.0]}
    study = Study.from_json(
        {
            "name": "roles",
            "task": {"name": "quadratic", "problem": "two_clients", "central": central},
            "methods": [
                {
                    "name": "parallel_training",
                    "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2, "merge_by": "mean"},
                    "client": {"name": "adam", "space": {"beta1": {"choice": [0.0, 0.9]}, "bias_correction": False}},
                    "central": {"name": "adam", "space": "default"},
                    "merge": {"name": "momentum"},
                },
                {"name": "fedsgd"},
            ],
            "objective": {"quality": "loss", "cost": "rounds"},
            "budget": {"trials_per_method": 2, "rounds": 2, "seeds": 0},
        }
    )
    study.check()
    space = study.entry("parallel_training").parameters()
    assert {"client.beta1", "client.bias_correction", "central.beta1", "central.epsilon"} <= set(space)
    shared = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2, "merge_by": "mean", "client.bias_correction": False}
    settings = [shared | {"client.beta1": beta1, "central.epsilon": 0.1} for beta1 in (0.0, 0.9)]
    document = trial_document(study, "parallel_training", settings, 0)
    assert document["client"] == {"name": "adam", "bias_correction": False}
    assert (document["central"], document["merge"]) == ({"name": "adam"}, {"name": "momentum"})
    assert document["members"][1] == {
        "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2, "client.beta1": 0.9, "central.epsilon": 0.1
    }  # fmt: skip
    assert trainers.parse(document).optimizers["client"].values["beta1"] == (0.0, 0.9)
    assert "client" not in study.to_json()["methods"][1]
    assert Study.from_json(study.to_json()).fingerprint() == study.fingerprint()


WRITERS = {
    "name": "noisy",
    "task": {"name": "mnist_by_writer", "writers": 5, "test_writers": 6},
    "methods": [{"name": "fedsgd", "space": {"server_lr": {"float": [0.1, 1]}}}],
    "budget": {"trials_per_method": 2, "rounds": 2, "seeds": 2},
}


ENTRY = {"name": "fedsgd", "space": {"server_lr": 0.5}}


def digits(*methods, **changes):
    """A study of these entries on digits of three clients."""
    return Study.from_json(WRITERS | {"task": {"name": "digits", "clients": 3}, "methods": list(methods)} | changes)


def test_only_search_trials_measure_a_sample_of_the_held_out_clients():
    study, plain = Study.from_json(WRITERS | {"evaluation": {"clients": 2}}), Study.from_json(WRITERS)
    assert "evaluation" not in plain.to_json()
    assert study.fingerprint() != plain.fingerprint()
    given = ("fedsgd", [{"server_lr": 0.5}], 1)
    search = trial_document(study, *given)
    assert search["evaluation"] == {"clients": 2}
    confirmation = trial_document(study, *given, phase="confirmation")
    assert confirmation == trial_document(plain, *given) == {k: v for k, v in search.items() if k != "evaluation"}
    chosen = Recommendation("fedsgd", 0, {"server_lr": 0.5}, 2, 2.0, 0.5, 0.5, 0.5, "confirmation")
    assert "evaluation" not in chosen.trial(study, seed=1)


def test_validate_says_that_the_search_is_noisy():
    def remarks(clients, **budget):
        changes = {"evaluation": {"clients": clients}, "budget": WRITERS["budget"] | budget, "eval_every": 2}
        return [line for line in Study.from_json(WRITERS | changes).check() if line.startswith("evaluation: ")]

    measured = "evaluation: search trials are measured on 2 of 6 held-out clients, drawn anew for each round, so "
    assert remarks(2) == [f"{measured}their test metrics are noisy; confirmation measures all clients"]
    assert remarks(2, seeds=0) == [f"{measured}their test metrics are noisy; with seeds: 0 so are the results"]
    assert remarks(6) == []
    with pytest.raises(InvalidSpec, match=r"^evaluation\.clients: must be at most 6, the held-out clients of the task"):
        remarks(7)


def test_an_entry_with_a_weighting_of_its_own_keeps_the_studys_metrics_and_validate_says_so():
    def weighted(own, **study):
        return digits(ENTRY | {"weighting": own}, **study)

    study = weighted("uniform", weighting="examples")
    assert Study.from_json(study.to_json()) == study
    assert study.fingerprint() != weighted(None, weighting="examples").fingerprint()
    assert "weighting" not in weighted(None).to_json()["methods"][0]
    trial = trainers.parse(trial_document(study, "fedsgd", [{"server_lr": 0.5}], 1))
    assert (trial.training_weighting, trial.weighting) == ("uniform", "examples")
    said = (
        "methods[0].weighting: this entry trains with the weighting uniform, and all metrics have the study's, examples"
    )
    for one in (study, weighted("uniform")):
        assert [line.partition(": leave")[0] for line in one.check() if "weighting" in line] == [said]
    assert not any("weighting" in line for line in weighted("examples").check())
    with pytest.raises(InvalidSpec, match=r'^methods\[0\]\.weighting: must be one of uniform, examples, got .*"size"'):
        weighted("size").check()


def test_an_entry_trains_with_its_own_settings_and_others_with_the_studys():
    own = {"clients_per_round": 2, "batch_size": 8, "eval_every": 5}
    study = digits(ENTRY, ENTRY | own | {"label": "own"}, clients_per_round=3, batch_size=20)
    assert Study.from_json(study.to_json()) == study
    assert {key: study.to_json()["methods"][1][key] for key in own} == own
    assert not own.keys() & study.to_json()["methods"][0].keys()
    assert list(study.to_json())[:3] == ["name", "task", "methods"]
    trials = [trainers.parse(trial_document(study, label, [{"server_lr": 0.5}], 1)) for label in study.labels]
    assert [(trial.clients_per_round, trial.batch_size) for trial in trials] == [(3, 20), (2, 8)]
    assert [trial.eval_every for trial in trials] == ["auto", 5]
    assert own_settings(study) == {"own": own}


SIZED = {"server_lr": 0.5, "clients_per_round": {"choice": [2, None, 1]}, "batch_size": {"int": [4, 9]}}


@pytest.mark.parametrize(
    ("setting", "value", "other", "said"),
    [
        ("upload", "int4", "int2", "must be one of int8, int4"),
        ("fragments", 2, 9, "must be at most 4, the tensors of the model"),
        ("stragglers", {"share": 0.5, "kept": False}, {"share": 2, "kept": False}, ".share: must be in (0, 1], got"),
    ],
)
def test_what_clients_send_may_be_an_entrys_own(setting, value, other, said):
    entry = {"name": "fedavg", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}}
    task = {"name": "digits", "clients": 4, "model": {"name": "mlp", "hidden": [4]}}
    budget = {"trials_per_method": 1, "rounds": 5}
    methods = [{"label": "plain", **entry}, {"label": "own", **entry, setting: value}]
    document = {"name": "sent", "task": task, "methods": methods, "budget": budget}
    one = Study.from_json(document)
    one.check()
    assert [trial_document(one, label, [{}], 0).get(setting) for label in ("plain", "own")] == [None, value]
    place = f"methods[1].{setting}"
    with pytest.raises(InvalidSpec, match="^" + re.escape(at(place, said))):
        Study.from_json(changed(document, place, other)).check()


def test_sizes_in_a_space_are_those_of_each_configurations_trial():
    entry = {"name": "fedsgd", "space": SIZED, "start": [{"clients_per_round": 1}], "constraints": ["batch_size <= 8"]}
    study = digits(entry, {"name": "fedsgd", "label": "studys"}, clients_per_round=3, batch_size=20)
    study.check()
    assert Study.from_json(study.to_json()) == study
    assert own_settings(study) == {}
    setting = {"server_lr": 0.5, "clients_per_round": 2, "batch_size": 4}
    document = trial_document(study, "fedsgd", [setting, setting], 1)
    assert (document["clients_per_round"], document["batch_size"]) == (2, 4)
    assert document["members"] == [{"server_lr": 0.5}] * 2
    everybody = trial_document(study, "fedsgd", [setting | {"clients_per_round": None}], 1)
    assert trainers.parse(everybody).clients_per_round is None
    assert structure(study, "fedsgd", setting) == structure(study, "fedsgd", setting | {"server_lr": 0.1})
    for name in ("clients_per_round", "batch_size"):
        other = setting | {name: 1}
        assert structure(study, "fedsgd", setting) != structure(study, "fedsgd", other)
        with pytest.raises(ValueError, match=f"configurations of one pack must share {name}, got "):
            trial_document(study, "fedsgd", [setting, other], 1)
    others = trainers.parse(trial_document(study, "studys", [{"server_lr": 0.5}], 1))
    assert (others.clients_per_round, others.batch_size) == (3, 20)
    best = Recommendation("fedsgd", 0, setting, 2, 2.0, 0.5, 0.5, 0.5, "confirmation").trial(study)
    assert (best["clients_per_round"], best["batch_size"]) == (2, 4)


@pytest.mark.parametrize(
    ("space", "own", "problem"),
    [
        ({"clients_per_round": {"choice": [1, 4]}}, {}, "space.clients_per_round: must be at most 3, the clients of"),
        ({"batch_size": {"float": [1, 4]}}, {}, "space.batch_size: batch_size is a whole number; use int"),
        ({"batchsize": 5}, {}, "space.batchsize: unknown hyperparameter of fedsgd: did you mean batch_size?"),
        ({"batch_size": 5}, {"batch_size": 5}, "batch_size: must not be given beside space.batch_size, got both"),
        ({"batch_size": 5}, {"start": [{"batch_size": 6}]}, "start[0].batch_size: must lie in its space 5, got 6"),
    ],
)
def test_sizes_in_a_space_are_checked_where_they_are_given(space, own, problem):
    entry = {"name": "fedsgd", "space": {"server_lr": 0.5} | space} | own
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\." + re.escape(problem)):
        digits(entry).check()


def test_an_entry_has_rounds_of_its_own():
    entry = ENTRY | {"schedule": "cosine"}
    budget = {"trials_per_method": 2, "rounds": 20, "rungs": {"at": [5, 10], "rule": "extrapolation"}}

    def study(rounds, **own):
        return digits(entry, entry | {"label": "own", "rounds": rounds} | own, budget=budget)

    one = study(1000)
    assert Study.from_json(one.to_json()) == one
    assert "rounds" not in one.to_json()["methods"][0]
    documents = [trial_document(one, label, [{"server_lr": 0.5}], 1) for label in one.labels]
    assert [(each["rounds"], each["schedule"]["rounds"]) for each in documents] == [(20, 20), (1000, 1000)]
    assert one.rungs == {"fedsgd": (5, 10, 20), "own": (250, 500, 1000)}
    assert one.budget_of(one.entry("own")).rung_rule == "extrapolation"
    assert own_settings(one) == {"own": {"rounds": 1000}}
    assert own_settings(study(20)) == {}
    evaluated, compared, *_ = one.outlook()
    assert evaluated.startswith(
        "Each trial is evaluated after every round (fedsgd); 112 times, after every round to 40"
    )
    assert compared.startswith("Search trials are compared after rounds 5 and 10 (fedsgd); 250 and 500 (own), and at")
    auto = one.to_json() | {"budget": budget | {"rungs": "auto"}}
    assert Study.from_json(auto).rungs == {"fedsgd": (2, 6, 20), "own": (111, 333, 1000)}
    with pytest.raises(InvalidSpec, match=r"^methods\[1\]\.rounds: must be at least 1, got rounds=0"):
        study(0)
    with pytest.raises(InvalidSpec, match=r"^methods\[1\]\.rounds: must be enough for the rungs .* got rounds=2"):
        study(2)
    with pytest.raises(InvalidSpec, match=r"^budget\.rungs: must not begin before the first .* got 10 of own"):
        study(40, eval_every=11)


def test_the_largest_cohort_of_a_space_decides_whether_packs_fit():
    def study(clients):
        entry = {"name": "fedsgd", "space": {"server_lr": 0.5, "clients_per_round": clients}}
        task = {"name": "digits", "clients": 300, "model": {"name": "mlp", "hidden": [10_000]}}
        budget = {"trials_per_method": 1000, "rounds": 2}
        whole = {"task": task, "methods": [entry], "budget": budget, "resources": {"packs": 500}}
        return Study.from_json(WRITERS | whole)

    study(1).check()
    for clients in ({"choice": [1, 3, 200]}, {"choice": [1, None]}):
        with pytest.raises(InvalidSpec, match=r"^resources\.packs: must be smaller"):
            study(clients).check()


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"clients_per_round": 4}, "methods[1].clients_per_round: must be at most 3, the clients of the task, got"),
        ({"dtype": "float32"}, "methods[1].dtype: unknown key: known are "),
    ],
)
def test_each_entry_is_checked_with_its_own_settings(own, problem):
    budget = {"trials_per_method": 4, "rounds": 20, "rungs": [2, 8]}
    with pytest.raises(InvalidSpec, match="^" + re.escape(problem)):
        digits(ENTRY, ENTRY | own | {"label": "own"}, clients_per_round=3, budget=budget).check()


def test_a_batch_size_that_is_too_large_is_named_where_it_is_given():
    for first, second, places in ((None, 5000, ["methods[1].batch_size"]), (5000, None, ["methods[0].batch_size"])):
        methods = [ENTRY | {"batch_size": first}, ENTRY | {"batch_size": second, "label": "own"}]
        remarks = digits(*methods, batch_size=9).check()
        assert [line.partition(" is ")[0] for line in remarks if "more than most clients have" in line] == places
    space = {"server_lr": 0.5, "batch_size": {"choice": [9, 5000, 10]}}
    remarks = digits(ENTRY | {"space": space}).check()
    assert [line.partition(", more")[0] for line in remarks if "more than most" in line] == [
        "methods[0].space.batch_size is 5000"
    ]


def test_a_schedule_over_the_rounds_of_the_study_keeps_its_rates_where_fewer_are_trained():
    """As what to run for a cost is, and the models that are logged."""
    text = TEXT.replace(
        "{name: plateau, space: {window: {int: [5, 50]}, client_decay: {choice: [0.1, 0.5]}}}", "cosine"
    )
    one = Study.from_yaml(text)
    setting = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 5, "server.momentum": 0.0}
    document = trial_document(one, "fedavg", [setting], seed=0)
    assert document["schedule"] == {"name": "cosine", "rounds": 20}
    whole, part = (
        Pack.from_spec(trainers.parse(given)).advance()
        for given in (document, document | {"rounds": 7, "eval_every": 1})
    )
    assert [line["client_lr"] for line in part] == [line["client_lr"] for line in whole][:8]
    longer = Study.from_yaml(text.replace("cosine", "{name: cosine, space: {rounds: 50}}"))
    document = trial_document(longer, "fedavg", [{**setting, "schedule.rounds": 50}], seed=0)
    assert document["schedule"] == {"name": "cosine"}
    assert trainers.parse(document).schedule.values["rounds"] == (50,)


def test_labels_of_a_family_have_documents_that_differ_in_their_members_alone():
    space = {"client_lr": {"float": [0.01, 1.0], "log": True}, "server_lr": 1.0, "local_steps": {"choice": [1, 5]}}
    entries = [
        {"label": "a", "name": "fedavg", "space": space},
        {"label": "b", "name": "fedavg", "space": space | {"local_steps": 2}, "start": [{"client_lr": 0.1}]},
        {"label": "c", "name": "fedavg", "space": space, "schedule": {"name": "cosine", "space": {"warmup": 0.1}}},
        {"label": "d", "name": "fedavg", "space": space, "schedule": {"name": "cosine", "space": {"warmup": 0.2}}},
        {"label": "momentum", "name": "fedavg", "space": space, "server": {"name": "sgd", "space": {"momentum": 0.9}}},
        {"label": "longer", "name": "fedavg", "space": space, "rounds": 30},
        {"label": "weighted", "name": "fedavg", "space": space, "weighting": "uniform"},
        {"label": "prox", "name": "fedprox", "space": space | {"prox": 0.1}},
    ]
    shared = {"name": "families", "task": {"name": "quadratic", "problem": "two_clients"}, "methods": entries}
    objective = {"quality": "loss", "cost": "rounds"}
    one = Study.from_json({**shared, "objective": objective, "budget": {"trials_per_method": 4, "rounds": 20}})
    together = families(one.to_json(), one.budget)
    assert [family for family in together if len(family) > 1] == [("a", "b"), ("c", "d")]
    for family in together:
        values = [
            {
                name: parameter.sample(np.random.default_rng(0))
                for name, parameter in one.entry(own).parameters().items()
            }
            for own in family
        ]
        documents = [trial_document(one, own, [value], 0) for own, value in zip(family, values, strict=True)]
        assert {str({**document, "members": []}) for document in documents} == {str({**documents[0], "members": []})}
        assert trainers.parse(trial_document(one, family[0], values, 0)).members == len(family)
    for change in ({"rungs": "auto"}, {"branches": 2}, {"asking": "asynchronous"}):
        other = one.budget.model_copy(update=change)
        assert all(len(family) == 1 for family in families(one.to_json(), other)), change


def test_members_of_a_pack_leave_out_the_same_values():
    one = Study.from_yaml(TEXT)
    setting = {"client_lr": 0.5, "server_lr": 0.1, "local_steps": 1, "server.momentum": 0.9}
    assert structure(one, "fedavg", setting) != structure(one, "fedavg", setting | {"server_lr": None})


def test_a_pack_of_epochs_has_equally_many_batches_in_a_round():
    entries = [{"name": name, "label": name} for name in ("fedavg", "minibatch_sgd")]
    study, usual = (
        digits(*entries, batching=batching, batch_size=20, clients_per_round=3) for batching in ("epochs", None)
    )
    assert Study.from_json(study.to_json()) == study
    five, six = ({"client_lr": 0.1, "server_lr": 0.1, "local_steps": steps} for steps in (5, 6))
    assert structure(study, "fedavg", five) == structure(study, "fedavg", five | {"client_lr": 0.5})
    assert structure(study, "fedavg", five) != structure(study, "fedavg", six)
    assert structure(usual, "fedavg", five) == structure(usual, "fedavg", six)
    rate = {"server_lr": 0.1}
    assert structure(study, "minibatch_sgd", rate) == structure(study, "minibatch_sgd", {"server_lr": 0.5})
    assert trainers.parse(trial_document(study, "fedavg", [five, five], 1)).round_batches == 5
