"""NSGA-II and Gaussian processes: better than chance, shy of what diverges, the same after any order of arrival."""

import copy
import random
from types import MethodType

import numpy as np
import optuna
import pytest
from optuna.samplers._tpe import sampler as optunas_tpe

from search_spaces.parameters import Choice, Float, Int
from service import known_versions
from service.samplers import gp, nsga2, tpe
from service.samplers.build import build
from service.samplers.optuna_parameters import encode
from tests.service.test_samplers import SPACE as ALL_KINDS
from tests.service.test_samplers_tpe import SPACE, smooth

OBJECTIVES = ("quality", "speed")


def test_genes_are_fixed_although_a_range_has_extra_points():
    assert [
        (key, value)
        for name, parameter, given in [
            ("a", Float(0.1, 10, log=True, also=(0, 100)), 0),
            ("a", Float(0.1, 10, log=True, also=(0, 100)), 100),
            ("b", Int(5, 50, also=(1,)), 7),
        ]
        for key, _, value in encode(name, parameter, given, fixed=True)
    ] == [("a?", "0"), ("a", 0.1), ("a?", "1"), ("a", 10.0), ("b?", "range"), ("b", 7)]
    assert [key for key, _, _ in encode("b", Int(5, 50, also=(1,)), 1, fixed=False)] == ["b?"]


@pytest.mark.parametrize("name", ["nsga2", "gp", "tpe"])
@pytest.mark.parametrize("everything", [True, False])
def test_it_goes_on_when_all_have_diverged_and_when_all_are_equal(name, everything):
    sampler = build(name, SPACE, OBJECTIVES, 0)
    for number in range(10):
        setting = sampler.ask(number)
        sampler.tell(number, setting, None if everything else {"quality": 1.0, "speed": 0.0}, diverged=everything)
    proposals = [sampler.ask(number) for number in (16, 17)]
    assert proposals[0] != proposals[1]
    assert all(SPACE[key].contains(value) for setting in proposals for key, value in setting.items())


def test_nsga2_breeds_from_earlier_generations_alone():
    """Generation 2 (16..23) hears nothing of trials 16 and up, and half a population is enough to begin."""
    one, other = (nsga2.Sampler(SPACE, OBJECTIVES, 1) for _ in range(2))
    quasi_random = build("quasi_random", SPACE, OBJECTIVES, 1)
    for number in range(16):
        setting = quasi_random.ask(number)
        for sampler in (one, other):
            sampler.tell(number, setting, smooth(setting))
    late = quasi_random.ask(40)
    other.tell(17, late, {"quality": 100.0, "speed": 100.0})
    assert one.ask(18) == other.ask(18)
    few = nsga2.Sampler(SPACE, OBJECTIVES, 1)
    for number in range(3):
        few.tell(number, quasi_random.ask(number), {"quality": 0.0, "speed": 0.0})
    assert few.ask(8) == quasi_random.ask(8)
    few.tell(3, quasi_random.ask(3), {"quality": 0.0, "speed": 0.0})
    assert few.ask(9) != quasi_random.ask(9)


def test_nsga2_survives_a_generation_that_failed_and_a_thousand_generations():
    sampler = nsga2.Sampler({"a": Float(0, 1)}, ("quality",), 0, population_size=4)
    for number in range(4):
        sampler.tell(number, {"a": number / 4}, {"quality": number})
    assert 0 <= sampler.ask(4400)["a"] <= 1


def test_gp_proposes_better_settings_than_it_has_heard_of():
    sampler = build("gp", SPACE, ("quality",), 0)
    heard = []
    for number in range(30):
        setting = build("quasi_random", SPACE, ("quality",), 3).ask(number)
        heard.append(smooth(setting)["quality"])
        sampler.tell(number, setting, smooth(setting))
    own = [smooth(sampler.ask(number))["quality"] for number in range(30, 33)]
    assert np.mean(own) > np.quantile(heard, 0.8)


def test_gp_hears_of_no_more_than_its_cap():
    sampler = gp.Sampler(SPACE, OBJECTIVES, 0, cap=16)
    points = build("quasi_random", SPACE, OBJECTIVES, 0)
    for number in range(100):
        setting = points.ask(number)
        values = None if number in (1, 2, 3, 4, 5) else smooth(setting)
        sampler.tell(number, setting, values, diverged=values is None)
    for number in range(100, 110):
        sampler.ask(number) if number == 100 else sampler.pending(number, points.ask(number))
    numbers = [trial.user_attrs["number"] for trial in sampler._history(110)]
    assert len(numbers) == 20
    assert numbers[-4:] == [106, 107, 108, 109]
    assert {2, 3, 4, 5, 96, 97, 98, 99} <= set(numbers)


@pytest.mark.parametrize("name", ["tpe", "gp", "nsga2"])
def test_trials_are_made_for_optuna_once(name):
    sampler, points = build(name, SPACE, OBJECTIVES, 0), build("quasi_random", SPACE, OBJECTIVES, 0)
    for number in range(12):
        sampler.tell(number, points.ask(number), {"quality": 10.0 + number, "speed": 1.0})
    sampler.tell(12, points.ask(12), None, diverged=True)
    before = sampler._history(20)
    sampler.ask(20)
    assert all(one is other for one, other in zip(before, sampler._history(21), strict=False))
    sampler.tell(13, points.ask(13), {"quality": 9.0, "speed": 0.5})  # now the worst of all
    after = sampler._history(20)
    assert [one is other for one, other in zip(before, after[:13], strict=True)] == [True] * 12 + [False]
    assert after[12].values == [9.0, 0.5]


@pytest.mark.parametrize("name", ["tpe", "gp", "nsga2"])
@pytest.mark.parametrize("objectives", [OBJECTIVES, OBJECTIVES[:1]], ids=["two objectives", "one objective"])
def test_shared_trials_propose_what_added_trials_propose(name, objectives):
    """`StartedStorage` instead of `Study.add_trials` changes no bit of a proposal, also after diverged trials."""
    sampler, added = build(name, SPACE, objectives, 0), build(name, SPACE, objectives, 0)

    def study(number: int, seed: int) -> optuna.Study:
        trials = [copy.copy(trial) for trial in added._history(number)]
        for trial in trials:
            trial.__class__ = optuna.trial.FrozenTrial
        made = optuna.create_study(directions=["maximize"] * len(objectives), sampler=added._optuna(number, seed))
        made.add_trials(trials)
        return made

    added._study = study
    points = build("quasi_random", SPACE, OBJECTIVES, 0)
    proposals = []
    for number in range(23):
        if number < 20:
            for each in (sampler, added):
                values = None if number in (5, 17) else smooth(points.ask(number))
                each.tell(number, points.ask(number), values, diverged=values is None)
        else:
            proposals.append(sampler.ask(number))  # the ones before stay running
            assert added.ask(number) == proposals[-1]
    assert len({str(one) for one in proposals}) == 3


def optunas_own(sampler):
    """Optuna's sampler with Optuna's own methods, where ours keep results from one proposal to the next."""
    if isinstance(sampler, tpe.DrawnCategories):
        sampler.shortcut = sampler._draw.shortcut = False  # as with an unknown version of Optuna
    else:
        own = optuna.samplers.NSGAIISampler.infer_relative_search_space
        sampler.infer_relative_search_space = MethodType(own, sampler)
    return sampler


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
@pytest.mark.parametrize("objectives", [OBJECTIVES, OBJECTIVES[:1]], ids=["two objectives", "one objective"])
@pytest.mark.parametrize(
    "space", [ALL_KINDS, {"a": Choice((1, 2, 4)), "b": Float(1, 2, also=(0, 9))}], ids=["all", "b"]
)
def test_what_is_kept_between_proposals_changes_none(name, objectives, space):
    """Trials end in random order, some diverge or fail, and others stay running among them."""
    kept, own = build(name, space, objectives, 0), build(name, space, objectives, 0)
    make = own._optuna

    def without(number, seed):
        if name == "nsga2":
            own._bred = own._bred[:1]
        return optunas_own(make(number, seed))

    own._optuna = without
    draw, running = random.Random(3), []
    for number in range(44):
        setting = kept.ask(number)
        assert own.ask(number) == setting, number
        running.append((number, setting))
        for _ in range(draw.choice((0, 1, 2))):
            if running:
                ended, its = running.pop(draw.randrange(len(running)))
                kind = draw.choice(("complete", "complete", "complete", "diverged", "failed"))
                values = {one: round(draw.gauss(), 1) for one in OBJECTIVES} if kind == "complete" else None
                for sampler in (kept, own):
                    sampler.tell(ended, its, values, diverged=kind == "diverged")


def test_an_unknown_version_of_optuna_proposes_without_shortcuts_and_says_so_once(monkeypatch, caplog):
    known_versions.known.cache_clear()
    monkeypatch.setattr(known_versions, "version", lambda library: "5.10.0")
    try:
        assert not any(tpe.DrawnCategories(seed).shortcut for seed in range(3))
    finally:
        known_versions.known.cache_clear()
    assert [record.message for record in caplog.records] == [
        "optuna 5.10.0 is not 5.0: it is used without shortcuts, slower"
    ]


def test_tpe_splits_the_trials_once_for_all_proposals_of_a_generation(monkeypatch):
    splits, split = [], optunas_tpe._split_trials
    monkeypatch.setattr(optunas_tpe, "_split_trials", lambda *arguments: splits.append(1) or split(*arguments))
    sampler, points = build("tpe", SPACE, OBJECTIVES, 0), build("quasi_random", SPACE, OBJECTIVES, 0)
    for generation in range(3):
        for number in range(20 * generation, 20 * generation + 20):
            sampler.tell(number, points.ask(number), smooth(points.ask(number)))
        for number in range(100, 108):
            sampler.ask(number)
        assert len(splits) == generation + 1


def test_nsga2_selects_the_parents_of_a_generation_once(monkeypatch):
    selected, select = [], nsga2.Generations.select_parent
    monkeypatch.setattr(
        nsga2.Generations, "select_parent", lambda *arguments: selected.append(arguments[2]) or select(*arguments)
    )
    sampler, points = build("nsga2", SPACE, OBJECTIVES, 0), build("quasi_random", SPACE, OBJECTIVES, 0)
    for number in range(24):
        sampler.tell(number, points.ask(number), smooth(points.ask(number)))
    for number in range(24, 32):
        sampler.ask(number)
    assert selected == [1, 2, 3]
    for number in range(24, 32):
        sampler.tell(number, points.ask(number), smooth(points.ask(number)))
    sampler.ask(32)
    assert selected == [1, 2, 3, 4]
    sampler.tell(9, points.ask(9), {"quality": 9.0, "speed": 9.0})  # another result of generation 1
    sampler.ask(33)
    assert selected == [1, 2, 3, 4, 2, 3, 4]


def test_gp_keeps_the_best_the_newest_and_some_that_diverged():
    heard = {number: ({}, (float(number % 7), float(-number % 5))) for number in range(40)}
    heard |= {number: ({}, None) for number in (3, 11, 30)}
    assert gp.chosen(heard, 40) == list(range(40))
    kept = gp.chosen(heard, 8)
    assert len(kept) == len(set(kept)) == 8
    assert {11, 30, 38, 39} <= set(kept)
    assert gp.chosen(dict(reversed(heard.items())), 8) == kept
    assert gp.chosen({number: ({}, None) for number in range(9)}, 4) == [5, 6, 7, 8]


def test_gp_raises_outliers_among_the_bad_values_only():
    heard = {number: ({}, (value, 1.0)) for number, value in enumerate((-1e9, 0.0, 1.0, 1.5, 2.0))} | {9: ({}, None)}
    raised = {number: values for number, (_, values) in gp.raised(heard).items()}
    assert raised == {0: (0.0, 1.0), 1: (0.0, 1.0), 2: (1.0, 1.0), 3: (1.5, 1.0), 4: (2.0, 1.0), 9: None}
    same = {0: ({}, (-1.0,)), 1: ({}, (2.0,)), 2: ({}, (2.0,))}
    assert gp.raised(same) == same
    assert gp.raised({0: ({}, None)}) == {0: ({}, None)}
