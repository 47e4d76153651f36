"""Statements of docs/diloco.md are decided rightly from outcomes that hold them, contradict them and show nothing."""

import json
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.diloco.__main__ import ESTIMATES
from benchmarks.diloco.cells import PARAMETERS, STUDY, TOKENS, Cell, cells
from benchmarks.diloco.finished import Finished, Piece, digest, finished, keep, pieces
from benchmarks.diloco.outcomes import Outcomes, Setting, slope
from benchmarks.diloco.page import minutes, page, planned
from benchmarks.diloco.statements import SAME, STATEMENTS, Claim, Statement, decide, judge
from driftline.results.curves import TrialCurve
from driftline.results.recorded_table import recorded_trial
from driftline.study.spec import Study

PAGE = Path(__file__).parents[2] / "docs" / "diloco.md"
SEEDS = range(7)  # the first one chooses
ABOVE = np.array([1.0, 1.2, 0.8, 1.1, 0.9, 1.3])


@dataclass(frozen=True)
class World:
    """Final log losses by a formula; every published statement but S7 holds, which contradicts S3.

    Attributes:
        rate: Log2 of the best outer rate of one worker with the smallest model.
        rate_workers, rate_steps, rate_inner, rate_size: By how much it grows with a doubling of each.
        workers: By how much the log loss grows with a doubling of the workers.
        shrinks: Share by which that is less with each doubling of the model's size.
        gain, gain_batch: How much better one worker is than data-parallel training, more with a doubling of the batch.
        momentum: How much better Nesterov momentum is than averaging with several workers.
        one_step: What a single local step loses.
        steps, steps_workers: Growth with a doubling of the local steps, and more of it with several workers.
        batch_workers: By how much the best batch grows with a doubling of the workers.
        noise: Standard deviation of the log loss.
    """

    rate: float = -0.7
    rate_workers: float = 0.15
    rate_steps: float = 0.1
    rate_inner: float = -0.2
    rate_size: float = 0.0
    workers: float = 0.02
    shrinks: float = 0.1
    gain: float = 0.01
    gain_batch: float = 0.005
    momentum: float = 0.02
    one_step: float = 0.3
    steps: float = 0.01
    steps_workers: float = 0.01
    batch_workers: float = 0.3
    noise: float = 1e-5

    def loss(self, at: Setting, seed: int) -> float:
        """The log of a final loss."""
        several, doublings = at.workers > 1, np.log2(at.workers)
        size = np.log2(PARAMETERS[at.width] / PARAMETERS[36])
        loss = 0.6 + 0.003 * np.log2(at.client_lr / 0.01) ** 2
        loss += self.workers * doublings * (1 - self.shrinks * size)
        batch = np.log2(at.batch / 32)
        loss += 0.02 * (batch - self.batch_workers * (doublings - 1.5)) ** 2
        if at.label == "averaging":
            # one worker of both labels has the same batch term, so that their difference is the gain
            loss += self.momentum if several else self.gain + self.gain_batch * batch
        else:
            best = self.rate + self.rate_workers * doublings + self.rate_steps * np.log2(at.local_steps / 10)
            best += self.rate_inner * np.log2(at.client_lr / 0.01) + self.rate_size * size
            loss += 0.01 * (np.log2(at.delta_lr) - best) ** 2
        rise = self.steps + self.steps_workers * several
        loss += self.one_step if at.local_steps == 1 else rise * np.log2(at.local_steps)
        draw = np.random.default_rng([zlib.crc32(repr(at).encode()), seed])
        return float(loss + self.noise * draw.standard_normal())

    def outcomes(self, settings: list[Setting]) -> Outcomes:
        """The outcomes of these settings."""
        return Outcomes({at: {seed: trial(at, self.loss(at, seed), seed) for seed in SEEDS} for at in settings})


def trial_rounds(at: Setting) -> int:
    return at.tokens // (32 * at.batch * at.local_steps)


def trial(at: Setting, log_loss: float, seed: int, *, diverged: bool = False) -> TrialCurve:
    rounds = [0.0, trial_rounds(at)]
    columns = {"round": np.array(rounds), "test_loss": np.array([4.4, np.nan if diverged else np.exp(log_loss)])}
    return recorded_trial(at.label, 0, seed, {}, "DIVERGED" if diverged else "COMPLETE", columns)


@lru_cache(maxsize=1)
def plan() -> tuple[list[Cell], list[Setting]]:
    found = cells()
    return found, planned(found)


HOLDS = World()
SEVENTH = replace(HOLDS, rate=-0.3, rate_size=-0.15)  # best near 1.0 with 4 workers, and lower with larger models
KINDS = {
    "S1": (HOLDS, replace(HOLDS, gain=-0.01)),
    "S2": (HOLDS, replace(HOLDS, shrinks=-0.1)),
    "S3": (HOLDS, replace(HOLDS, rate_size=-0.25)),
    "S4": (HOLDS, replace(HOLDS, rate_steps=-0.1)),
    "S5": (HOLDS, replace(HOLDS, one_step=-0.1)),
    "S6": (HOLDS, replace(HOLDS, batch_workers=-0.3)),
    "S7": (SEVENTH, HOLDS),
    "S3 against S7": (HOLDS, replace(HOLDS, rate_size=-0.25)),
    "S9": (HOLDS, replace(HOLDS, rate_inner=0.2)),
}
"""Statement -> a world in which it holds, and one in which it does not."""


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.name)
def test_each_statement_is_decided_in_worlds_of_all_three_kinds(statement: Statement) -> None:
    settings = statement.needed(plan()[1])
    holds, fails = KINDS[statement.name]
    worlds = {"agrees": holds, "disagrees": fails, "undecided": replace(holds, noise=0.5)}
    found = {kind: decide(statement, world.outcomes(settings), plan()[1]) for kind, world in worlds.items()}
    assert {kind: decision.verdict for kind, decision in found.items()} == {kind: kind for kind in worlds}
    assert all(decision.seeds == 6 and decision.claims for decision in found.values())


def test_a_statement_needs_all_its_runs() -> None:
    first = STATEMENTS[0]
    settings = first.needed(plan()[1])
    whole = HOLDS.outcomes(settings)
    assert decide(first, Outcomes({}), plan()[1]).claims == ()
    one = {**whole.trials, settings[0]: {}}
    assert decide(first, Outcomes(one), plan()[1]).claims == ()
    five = {**whole.trials, settings[0]: {seed: whole.trials[settings[0]][seed] for seed in SEEDS if seed != 3}}
    decision = decide(first, Outcomes(five), plan()[1])
    assert (decision.verdict, decision.seeds) == ("undecided", 5)  # a verdict needs 6 pairs


def verdict(*claims: Claim) -> str:
    return judge(claims).verdict


def test_a_statement_agrees_if_all_claims_do_and_disagrees_if_one_does() -> None:
    agrees, disagrees = Claim("", ABOVE), Claim("", -ABOVE)
    open_ = Claim("", ABOVE - ABOVE.mean())
    assert verdict(agrees, agrees) == "agrees"
    assert verdict(agrees, open_) == "undecided"
    assert verdict(agrees, disagrees) == verdict(open_, disagrees) == "disagrees"
    assert verdict(Claim("", np.ones(6))) == "undecided"  # no spread is no evidence
    assert verdict(Claim("", ABOVE[:5])) == "undecided"


def test_one_of_many_claims_refutes_only_after_the_correction() -> None:
    weak = Claim("", -np.array([0.4, 0.5, 1.8, 0.6, 2.6, 0.7]))
    open_ = Claim("", ABOVE - ABOVE.mean())
    assert judge([weak]).claims[0].test.p == pytest.approx(0.029, abs=0.01)
    assert verdict(weak) == "disagrees"
    assert verdict(weak, open_, open_) == "undecided"


def test_what_does_not_matter_agrees_only_within_its_range() -> None:
    around = np.array([0.1, -0.1, 0.05, -0.05, 0.02, -0.03])
    assert verdict(Claim("", around, within=SAME)) == "agrees"
    assert verdict(Claim("", around + 0.2, within=SAME)) == "agrees"  # it matters, but less than a step
    assert verdict(Claim("", around + 0.6, within=SAME)) == "disagrees"
    assert verdict(Claim("", around - 0.6, within=SAME)) == "disagrees"
    assert verdict(Claim("", 20 * around, within=SAME)) == "undecided"


def test_best_rates_are_vertices_within_the_grid_and_its_ends_are_said() -> None:
    settings = [at for at in plan()[1] if (at.label, at.width, at.workers, at.local_steps) == ("diloco", 36, 4, 10)]
    settings = [at for at in settings if at.batch == 32 and at.tokens == TOKENS]
    assert len(settings) == 10
    exact = replace(HOLDS, noise=0.0, rate_inner=0.0)
    assert exact.outcomes(settings).whole(settings).best("delta_lr") == pytest.approx(np.full(6, -0.7 + 0.3))
    assert exact.outcomes(settings).whole(settings).at_edge("delta_lr") == 0
    assert replace(exact, rate=-5.0).outcomes(settings).whole(settings).best("delta_lr") == pytest.approx(
        np.full(6, np.log2(0.1))
    )
    assert replace(exact, rate=-5.0).outcomes(settings).whole(settings).at_edge("delta_lr") == 1


def test_rates_at_an_end_of_the_grid_are_not_called_equal() -> None:
    (statement,) = (each for each in STATEMENTS if each.name == "S3 against S7")
    settings = statement.needed(plan()[1])
    far = replace(HOLDS, rate=-6.0, noise=1e-3)
    assert decide(statement, far.outcomes(settings), plan()[1]).verdict == "undecided"


def test_the_seed_of_the_search_chooses_and_the_others_judge() -> None:
    one, other = [at for at in plan()[1] if at.label == "averaging"][:2]
    losses = {one: [0.8, *[1.0] * 6], other: [0.9, *[0.5] * 6]}
    trials = {at: {seed: trial(at, loss, seed) for seed, loss in enumerate(of)} for at, of in losses.items()}
    assert Outcomes(trials).whole([one, other]).least() == pytest.approx([1.0] * 6)
    without = {at: {seed: each for seed, each in of.items() if seed} for at, of in trials.items()}
    assert Outcomes(without).whole([one, other]).seeds == 0


def test_a_diverged_run_has_the_loss_of_the_untrained_model() -> None:
    at = plan()[1][0]
    outcomes = Outcomes({at: {seed: trial(at, 0.5, seed, diverged=seed == 2) for seed in SEEDS}})
    assert outcomes.whole([at]).loss()[at] == pytest.approx([0.5, np.log(4.4), 0.5, 0.5, 0.5, 0.5])


def test_slopes_are_by_doubling() -> None:
    assert slope({1: np.array([0.0]), 4: np.array([6.0]), 8: np.array([9.0])}) == pytest.approx([3.0])
    assert slope({1: np.array([4.0]), 4: np.array([4.0]), 8: np.array([4.0])}) == [0.0]


def test_the_plan_shares_runs_and_its_studies_are_valid() -> None:
    found, settings = plan()
    assert len(set(settings)) == len(settings)
    assert len({cell.name for cell in found}) == len(found)
    Study.from_yaml(STUDY)
    for cell in found:
        assert cell.study.budget.trials_per_method == len(cell.configurations())
        assert cell.study.batch_size == cell.batch // cell.workers
        assert len(cell.seeds) == 7
    for statement in STATEMENTS:
        assert statement.needed(settings), statement.name
    used = {setting for statement in STATEMENTS for setting in statement.needed(settings)}
    unused = {(at.label, at.workers, at.tokens) for at in settings if at not in used}
    assert {label for label, *_ in unused} == {"schedule_free", "diloco"}  # tables of the page alone
    assert {at.tokens for at in settings if at.label == "diloco" and at not in used} == {4 * TOKENS}


def made(piece: Piece, world: World = HOLDS) -> Finished:
    """The numbers of a piece in a world; its last configuration diverged after three rounds."""
    settings = [Setting.of(piece.cell, configuration) for configuration in piece.cell.configurations()]
    ends = [(trial_rounds(at), float(np.exp(world.loss(at, piece.seed)))) for at in settings]
    return Finished(piece.name, digest(piece.cell), "1", 60.0, 4.4, (*ends[:-1], (3, None)))


def test_pieces_of_a_file_and_of_a_folder_are_as_good_as_trials(tmp_path: Path) -> None:
    found, _ = plan()
    cell = found[1]
    every = pieces([cell])
    kept = tmp_path / "finished.jsonl"
    keep({piece.name: made(piece) for piece in every[:4]}, kept)
    for piece in every[3:]:
        piece.file(tmp_path).write_text(made(piece).to_json())
    there, others = finished(pieces(found), tmp_path, kept)
    assert (sorted(there), others) == (sorted(piece.name for piece in every), [])
    settings = planned([cell])
    wanted = {at: {seed: trial(at, HOLDS.loss(at, seed), seed) for seed in SEEDS} for at in settings}
    wanted[settings[-1]] = {seed: trial(settings[-1], 0.0, seed, diverged=True) for seed in SEEDS}
    read = Outcomes.of((cell, each) for piece in every for each in there[piece.name].trials(piece))
    for at in settings:
        assert read.whole([at]).loss()[at] == pytest.approx(Outcomes(wanted).whole([at]).loss()[at])
    assert read.whole(settings).diverged() == 6


def test_pieces_with_other_settings_are_named_and_not_used(tmp_path: Path) -> None:
    found, _ = plan()
    old, new, gone = pieces(found)[:3]
    kept = tmp_path / "finished.jsonl"
    keep({old.name: replace(made(old), settings="0"), gone.name: replace(made(gone), piece="gone")}, kept)
    new.file(tmp_path).write_text(made(new).to_json())
    assert finished(pieces(found), tmp_path, kept) == ({new.name: made(new)}, ["gone", old.name])
    old.file(tmp_path).write_text(made(old).to_json())  # run again
    assert finished(pieces(found), tmp_path, kept) == ({new.name: made(new), old.name: made(old)}, ["gone"])


def test_the_page_is_what_its_command_makes_of_the_kept_pieces(tmp_path: Path) -> None:
    found, _ = plan()
    there, others = finished(pieces(found), tmp_path)
    assert others == []
    outcomes = Outcomes.of(
        (piece.cell, each) for piece in pieces(found) if piece.name in there for each in there[piece.name].trials(piece)
    )
    times = minutes(found, there, json.loads(ESTIMATES.read_text()), processes=2)
    assert PAGE.read_text(encoding="utf-8") == page(found, outcomes, times)
