"""The sampler key of a study, in its canonical form."""

from pathlib import Path

import pytest

from driftline.errors import InvalidSpec
from driftline.study import sampler as samplers
from driftline.study.budget import Budget
from driftline.study.chance import independent_draws
from driftline.study.pack_families import families
from driftline.study.spec import Study
from service.api.study_estimate import estimate
from service.samplers.build import NAMES

from .test_spec import TEXT, study


def test_the_sampler_names_are_those_of_the_samplers():
    folder = Path(__file__).parents[2] / "service" / "samplers"
    modules = {path.stem for path in folder.glob("*.py") if "\nclass Sampler" in path.read_text(encoding="utf-8")}
    assert modules - {"sampler"} == set(samplers.NAMES) == set(NAMES)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("tpe", "tpe"),
        ("{name: tpe}", "tpe"),
        ("{name: tpe, startup: null}", "tpe"),
        ("{name: tpe, startup: '20'}", {"name": "tpe", "startup": 20}),
        ("{name: nsga2, population_size: 24.0}", {"name": "nsga2", "population_size": 24}),
        ("{cap: 100, name: gp}", {"name": "gp", "cap": 100}),
    ],
)
def test_a_sampler_is_a_name_or_a_name_with_settings(written, canonical):
    one = study(f"{TEXT}sampler: {written}\n")
    assert one.to_json()["sampler"] == canonical
    assert Study.from_json(one.to_json()) == one
    assert (one.fingerprint() == study().fingerprint()) == (canonical == "tpe")


def test_an_entry_may_have_a_sampler_of_its_own():
    one = study(
        TEXT.replace("{name: fedprox,", "{name: fedprox, sampler: {name: gp, cap: '64'},") + "sampler: random\n"
    )
    assert [one.sampler_of(entry) for entry in one.methods] == ["random", {"name": "gp", "cap": 64}]
    assert [entry.get("sampler") for entry in one.to_json()["methods"]] == [None, {"name": "gp", "cap": 64}]
    assert Study.from_json(one.to_json()) == one
    assert (one.leading_sampler, independent_draws(one)) == ({"name": "gp", "cap": 64}, ("averaging",))
    assert study(TEXT.replace("{name: fedprox,", "{name: fedprox, sampler: null,")) == study()
    with pytest.raises(InvalidSpec, match=r'^methods\[1\]\.sampler: no sampler "tpee": did you mean tpe\?$'):
        study(TEXT.replace("{name: fedprox,", "{name: fedprox, sampler: tpee,"))


def test_the_sampler_of_an_entry_is_checked_for_this_entry():
    one = study(TEXT.replace("{name: fedprox,", "{name: fedprox, sampler: grid,"))
    small = one.model_copy(update={"budget": Budget(trials_per_method=2000, rounds=3)})
    with pytest.raises(InvalidSpec, match=r"must be at most 1620, the configurations on the grid of fedprox"):
        small.check()


STAGED = """\
name: stages
task: {name: quadratic, problem: two_clients}
methods:
  - &entry
    label: joint
    name: fedga
    space:
      client_lr: {choice: [0.01, 0.1, 0.2]}
      server_lr: 0.1
      local_steps: {choice: [1, 2]}
      displacement: {choice: [0, 0.1, 0.2]}
  - <<: *entry
    label: staged
    sampler: {name: staged, stages: [[client_lr, local_steps], displacement]}
objective: {quality: loss, optimize: quality}
budget: {trials_per_method: 11, rounds: 5}
sampler: random
"""


def test_a_study_tuned_in_stages_says_them():
    one = study(STAGED)
    assert one.check() == []
    lines = [line for line in one.outlook() if line.startswith("Stages")]
    stages = "client_lr, local_steps (6 trials); displacement (2 trials); client_lr, local_steps (3 trials)"
    assert lines == [f"Stages of staged: {stages}."]
    assert one.to_json()["methods"][1]["sampler"]["stages"] == [["client_lr", "local_steps"], ["displacement"]]
    assert families(one.to_json(), one.budget) == (("joint",), ("staged",))
    assert estimate(one.to_json()).packs == (2 + 2 + 1) + (2 + 1 + 1)
    few = study(STAGED.replace("11", "7"))
    assert few.check() == ["methods[1]: the last stage needs 8 trials of a search, and there are 7: give more"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("optimize: quality", "optimize: both", "objective.optimize: must be quality or speed for sampler staged"),
        ("displacement]", "prox]", r"methods\[1\].sampler.stages: must name displacement, which has several"),
        ("sampler: random", "sampler: {name: staged, stages: [client_lr]}", "sampler.stages: must name displacement"),
        ("rounds: 5", "rounds: 5, asking: asynchronous", "budget.asking: must be generations for sampler staged"),
        ("label: staged", "label: staged\n    prior: [{client_lr: 0.1}]", r"methods\[1\].prior: must be left out for"),
        ("trials_per_method: 11", "trials_per_method: 19", "budget.trials_per_method: must be at most 18, the config"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_in_stages_is_refused_with_its_place(old, new, line):
    with pytest.raises(InvalidSpec, match=rf"(?m)^{line}"):
        study(STAGED.replace(old, new)).check()
