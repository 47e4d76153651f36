"""The search, without Ray: hands out packs, takes their reports, and talks to the API and the samplers.

Every decision is written to the API before the driver acts on it, so that the next driver can continue from the rows,
wherever this one dies.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from driftline.client.driver_client import DriverClient
from driftline.errors import DriftlineError
from driftline.study.pack_families import families
from driftline.study.spec import Study
from driftline.study.stages import study_sizes
from driftline.study.trial_document import structure, trial_document
from driftline.study.trial_rounds import trial_budget
from driftline.wire.curve_codec import Columns, decode, upsert
from driftline.wire.driver_messages import Desired, NewTrial, Released, Report, TrialResult
from driftline.wire.ids import pack_id
from driftline.wire.records import StudyPlan, TrialRecord
from service.code_digest import code_digest
from service.driver import checkpoints
from service.driver.job import PackJob
from service.driver.search.actions import Action, Ask, Finish, LaunchPack, Repeat, SearchPlan, StopTrials
from service.driver.search.archive_copy import archive_copy
from service.driver.search.chosen import Chosen
from service.driver.search.ladder import Ladder
from service.driver.search.outcome import needed, outcome, trial_result
from service.driver.search.policy import after_death, deaths_in_a_row, decide, goal_of
from service.driver.search.proposals import Proposals
from service.driver.search.state import RunningPack, StudyTable
from service.driver.search.study_plan import decided, halved
from service.driver.search.study_rows import Row
from service.samplers.build import build
from service.samplers.sampler import Sampler
from trainers import urls_of

_LOG = logging.getLogger(__name__)
HOPELESS = 3
"""A study fails after this many packs have failed for good while no trial has done a single round."""


class Search:
    """One study's search under one attempt.

    Args:
        client: Connection to the API.
        study_id: Id of the study.
        study: Its specification.
        attempt: The attempt under which the driver holds it.
        folder: Path or URL of the folder for checkpoints.
        slots: Gives how many packs may run at once; called before every decision.
        gpus: GPUs for each pack, below 1 a share of one.
        build_sampler: Builds a label's sampler.
        options: Further fields of `PackJob`: chunk_seconds, checkpoint_seconds, files, urls.
        trials: Folder for the logs and working files of programs; "" as in `PackJob.place`.

    Attributes:
        study_plan: How trials are asked for and packed; None before `load`.
        plan: What the study asks for, as `decide` sees it.
        table: The study's trials, curves and packs.
        folder: Folder of its checkpoints.
        desired: What the study's owner wants, according to the last answer to a report.
        further: Pack id -> round until which a pack waiting at a rung continues; whoever tells its worker removes it.
        finished: Whether `next_job` found that nothing is left to do.
    """

    def __init__(
        self,
        client: DriverClient,
        study_id: str,
        study: Study,
        attempt: int,
        *,
        folder: str,
        slots: Callable[[], int],
        gpus: float = 0.0,
        build_sampler: Callable[..., Sampler] = build,
        options: Mapping[str, Any] | None = None,
        trials: str = "",
    ) -> None:
        self._client = client
        self._study_id = study_id
        self._study = study
        self._attempt = attempt
        self._slots = slots
        self._gpus = gpus
        self._options = dict(options or {})
        self._trials = trials
        self.folder = checkpoints.join(folder, study_id)
        self.table = StudyTable()
        self._chosen = Chosen(client, study_id, study, self.table)
        self._ladder = Ladder(client, study_id, study, self.table, self.folder)
        self._needed = needed(study)
        self._families = families(study.to_json(), study.budget)
        self._build_sampler = build_sampler
        self._packs_started = 0
        self._failed_packs = 0
        self._waiting_at: tuple[int, int] | None = None  # (slots, packs) when there was nothing to hand out
        self.desired: Desired = "run"
        self.further: dict[str, int] = {}
        program = study.program
        self._waits_at_rungs = program is not None and not program.checkpoints
        self.finished = False

    def load(self) -> None:
        """Reads all trials, and the curves of unfinished ones, from the API; decides the plan if the study has none.

        Raises:
            StaleDriver: Another driver has taken over.
        """
        program = self._study.program
        if program is not None and not self._trials:
            self._options |= archive_copy(self._client, self._study_id, program, self.folder, self._attempt)
        records = self._client.trials(self._study_id)
        self.table.put(records)
        begun = [record.id for record in records if not record.finished and record.pack]
        self.table.curves = self._client.curves(self._study_id, begun) if begun else {}
        self._adopt(self._client.study(self._study_id).plan or self._first_plan())
        self._complete_plan(records)
        self._ladder.load(records)
        self._proposals = Proposals(self._study, self.study_plan, self.table, self._build_sampler)
        for record in sorted(records, key=lambda record: record.number):
            if not record.finished:
                self._classify(record.id)
            if record.phase == "search":
                self._proposals.restore(record)

    def next_job(self) -> PackJob | None:
        """The next pack to run; None if there is none now. Sets `finished` if nothing is left to do.

        Raises:
            StaleDriver: Another driver has taken over.
            DriftlineError: The API or a sampler failed.
        """
        slots = self._slots()
        if self.study_plan.engine is None:
            slots = min(slots, 1)  # the first pack decides how all others are computed
        if self.finished or self._waiting_at == (slots, len(self.table.packs)):
            return None
        while actions := self._decide(slots):
            for action in actions:
                match action:
                    case Ask():
                        self._ask(action)
                    case Repeat():
                        self._repeat(action)
                    case StopTrials():
                        self._record([self._ladder.result(trial) for trial in action.trials])
                    case LaunchPack():
                        return self._launch(action)
                    case Finish():
                        self.finished = True
                        return None
        self._waiting_at = (slots, len(self.table.packs))
        return None

    def report(self, report: Mapping[str, Any]) -> None:
        """Stores a pack's report (see `Worker.step`) and, if the pack has ended, the results of its trials.

        Raises:
            StaleDriver: Another driver has taken over.
            InvalidSpec: The trials do not report what the objective asks for.
            DriftlineError: `HOPELESS` packs have failed and nothing was trained; or no other trial could be trained.
        """
        pack = self.table.packs.get(report["pack"])
        if pack is None:
            return
        pack.pid, pack.host = report["pid"], report["host"]
        if report["remark"]:
            _LOG.warning("pack %s: %s", pack.id, report["remark"])
        if report["rounds_done"] is not None:
            self._store(pack, report)
        if report["error"] and report["ends"]:
            raise DriftlineError(report["error"])
        if report["error"] and report["out_of_memory"] and len(pack.trials) > 1:
            self._narrow(pack, report["error"])
        elif report["error"]:
            self._retry(pack, report["error"], final=report["final"])
        elif report["done"]:
            self._finish(pack)
        elif report["stopped"]:
            self._end(pack, [TrialResult(trial=trial, state="WAITING") for trial in pack.trials])
        elif pack.rung and self._waits_at_rungs:
            self._decide_here(pack)

    def lost(self, pack: str, reason: str = "its worker died") -> None:
        """Records that a pack ended without a last report: its trials run again, or fail (see `policy.ATTEMPTS`)."""
        record = self.table.packs.get(pack)
        if record is not None:
            self._retry(record, reason)

    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self._decide(1) == [Finish()]

    def left(self) -> int:
        """Number of unfinished trials, including those that do not exist yet; 0 if all of them are training now.

        Busy nodes stay without a request, but a request could make Ray's autoscaler keep an idle one, hence the 0.
        """
        trials = len(self.plan.labels) * self.plan.budget.trials
        left = trials - len(self.table.trials) + len(self.table.trials.unfinished)
        return left if left > sum(len(trials) for trials in self.table.running().values()) else 0

    def outcome(self) -> tuple[Released, str]:
        """Final state and reason of a complete study."""
        return outcome(self.table.trials.values())

    # ---- creating trials

    def _decide(self, slots: int) -> list[Action]:
        return decide(self.plan, self.table.trials, self.table.running(), slots, self._chosen)

    def _ask(self, ask: Ask) -> None:
        numbers = range(ask.first, ask.first + ask.count)
        configurations = self._proposals.ask(ask, self.plan)
        created = self._create(
            [
                NewTrial(
                    label=ask.label,
                    phase="search",
                    number=number,
                    seed=self.plan.search_seed(number),
                    configuration=number,
                    hyperparameters=hyperparameters,
                )
                for number, hyperparameters in zip(numbers, configurations, strict=True)
            ]
        )
        self._proposals.created(created)

    def _repeat(self, repeat: Repeat) -> None:
        configurations = self.table.configurations(repeat.label, [number for number, _ in repeat.repeats])
        fresh = [
            NewTrial(
                label=repeat.label,
                phase="confirmation",
                number=repeat.first + position,
                seed=seed,
                configuration=number,
                hyperparameters=hyperparameters,
            )
            for position, ((number, seed), hyperparameters) in enumerate(
                zip(repeat.repeats, configurations, strict=True)
            )
        ]
        self._create(fresh)

    def _create(self, fresh: list[NewTrial]) -> list[TrialRecord]:
        records = self._client.create_trials(self._study_id, self._attempt, fresh)
        self.table.put(records)
        for record in records:
            self._classify(record.id)
        return records

    def _classify(self, trial: str) -> None:
        row = self.table.trials[trial]
        kind, rungs = structure(self._study, row.label, row.hyperparameters), row.rungs
        if self._study.budget.unit != "rounds":
            rungs = trial_budget(self._study, self._study.entry(row.label), row.hyperparameters).rung_rounds
        self.table.change([trial], structure=kind, rungs=rungs)

    # ---- the plan

    def _first_plan(self) -> StudyPlan:
        """Decides and stores the plan of a study that has none."""
        study = self._study
        arguments = study.budget, study.resources, study.leading_sampler
        plan = decided(*arguments, self._gpus, self._families, study_sizes(study))
        if urls_of(study.task):
            plan = plan.model_copy(update={"data": study.task.get("sha256")})
        return self._client.store_plan(self._study_id, self._attempt, plan)

    def _complete_plan(self, records: list[TrialRecord]) -> None:
        """Takes the engine's plan from trials whose driver died before it stored it; follows `resources.cpus`.

        Finished trials are left out, because their plans are not needed.
        """
        plans = (record.plan for record in records if record.plan and not record.finished)
        engine = self.study_plan.engine or next(plans, None)
        if engine is None:
            return
        threads = max(1, int(self._study.resources.cpus))
        was, reason = engine.get("threads", threads), ""
        if was != threads:
            reason = f"packs compute with {threads} threads instead of {was}: resources.cpus was changed"
        plan = self.study_plan.model_copy(update={"engine": {**engine, "threads": threads}})
        if plan != self.study_plan:
            self._replan(plan, reason)

    def _adopt(self, plan: StudyPlan) -> None:
        """Uses this plan from now on."""
        self.study_plan = plan
        study = self._study
        self.plan = SearchPlan.of(study.labels, study.budget, plan, study.seed, study.rungs, self._families)
        self._waiting_at = None

    def _replan(self, plan: StudyPlan, reason: str = "") -> None:
        """Stores another plan, and uses it from now on."""
        self._adopt(self._client.store_plan(self._study_id, self._attempt, plan, reason))

    # ---- packs

    def _launch(self, launch: LaunchPack) -> PackJob:
        self._packs_started += 1
        name = pack_id(self._study_id, self._attempt, self._packs_started)
        rows = [self.table.trials[trial] for trial in launch.trials]
        configurations, seeds = [row.hyperparameters for row in rows], [row.seed for row in rows]
        first = rows[0]
        prefix = checkpoints.join(self.folder, f"pack.{_digest(' '.join(launch.trials))}")
        job = PackJob(
            pack=name,
            document=trial_document(self._study, first.label, configurations, seeds, phase=first.phase),
            prefix=prefix,
            code=code_digest(),
            start=(self._attempt, self._packs_started),
            resume=launch.resume,
            rounds_known=min(self.table.trials[trial].rounds_done for trial in launch.trials),
            plan=first.plan if launch.resume else self._engine_plan(launch),
            **self._ladder.job(launch),
            width=self._width(launch) if self._separate(launch) else 0,
            cpus=self._study.resources.cpus,
            gpus=self._gpus,
            nodes=self._study.resources.nodes,
            place=self._trials and checkpoints.join(self._trials, f"{first.label}-{first.phase}-{first.number}"),
            **self._options,
        )
        gpus = self._gpus * self._study.resources.nodes
        self.table.put(self._client.start_pack(self._study_id, self._attempt, name, launch.trials, gpus))
        self.table.packs[name] = RunningPack(name, launch.trials, prefix, rung=self._ladder.ends_at_rung(launch))
        self._waiting_at = None
        return job

    def _engine_plan(self, launch: LaunchPack) -> dict[str, Any] | None:
        """How a new pack is computed: as the study's first pack; None leaves it to the pack.

        With rungs, packs of the search have one width, also after a lack of memory, so that their trials' checkpoints
        fit together when they are packed again.
        """
        engine = self.study_plan.engine
        if engine is None:
            return None
        if launch.rung is None:
            return {**engine, "width": self._width(launch), "separate": self._separate(launch)}
        return engine

    def _width(self, launch: LaunchPack) -> int:
        """Width of a pack's plan: that of the search with rungs, otherwise its number of trials."""
        return len(launch.trials) if launch.rung is None else self.plan.width

    def _separate(self, launch: LaunchPack) -> bool:
        """Whether a pack is computed trial by trial, so that no trial's bits depend on the others.

        Trials then keep their bits when they are packed again after a rung, and trials that do not differ yet are
        computed once.
        """
        entry = self._study.entry(self.table.trials[launch.trials[0]].label)
        return launch.rung is not None or (self._study.budget.branches > 1 and entry.branching)

    def _store(self, pack: RunningPack, report: Mapping[str, Any]) -> None:
        body = Report(
            attempt=self._attempt,
            pack=pack.id,
            reports={trial: blocks for trial, blocks in zip(pack.trials, report["reports"], strict=False) if blocks},
            rounds_done=report["rounds_done"],
            checkpoint=report["checkpoint"],
            plan=report["plan"],
            after=None if self._study.program is None else self.table.trials[pack.trials[0]].rounds_done,
        )
        answer = self._client.report(self._study_id, body)
        self.desired = answer.desired
        changes = {name: report[name] for name in ("checkpoint", "plan") if report[name] is not None}
        self.table.change(pack.trials, rounds_done=report["rounds_done"], **changes)
        if self.study_plan.engine is None and report["plan"] is not None:
            self._replan(self.study_plan.model_copy(update={"engine": report["plan"]}))
        for trial, blocks in body.reports.items():
            curve = self.table.curves.setdefault(trial, {})
            for block in blocks:
                upsert(curve, self._decoded(block))
        if self._ladder.is_rung(pack.trials[0], report["rounds_done"]):
            self._ladder.arrive(pack.trials)

    def _decoded(self, block: bytes) -> Columns:
        """The columns of a block that a result needs; all if the study's metric is missing, for the error message."""
        columns = decode(block, self._needed)
        return columns if self._study.objective.quality in columns else decode(block)

    def _decide_here(self, pack: RunningPack) -> None:
        """Decides how far a program that waits at a rung continues; without a decision, it ends there."""
        (trial,) = pack.trials
        row = self.table.trials[trial]
        rounds_done, rungs = row.rounds_done, self.plan.rungs_of_trial(row)
        if self._ladder.is_rung(trial, rounds_done) and rounds_done < rungs[-1]:
            goal = goal_of(self.plan, self.table.trials, trial)
            pack.stopped = goal.stopped and rungs[goal.rung] == rounds_done
            if pack.stopped or rungs[goal.rung] > rounds_done:
                self.further[pack.id] = rungs[goal.rung]

    def _finish(self, pack: RunningPack) -> None:
        trials, curves = self.table.trials, self.table.curves
        rows = [trials[trial] for trial in pack.trials]
        whole = all(row.rounds_done >= self.plan.rungs_of_trial(row)[-1] for row in rows)
        if pack.rung and not (self._waits_at_rungs and whole):
            results = [self._ladder.result(trial) for trial in pack.trials]
            waiting = {} if pack.stopped else {"state": "WAITING"}  # until all that are compared have arrived
            results = [result.model_copy(update=waiting) if result.state == "STOPPED" else result for result in results]
        else:
            results = [trial_result(self._study, trials[trial], curves.get(trial, {})) for trial in pack.trials]
        self._end(pack, results)
        try:
            checkpoints.remove(pack.prefix)
        except OSError as error:
            _LOG.warning("checkpoints %s could not be removed: %s", pack.prefix, error)

    def _narrow(self, pack: RunningPack, error: str) -> None:
        """Halves the width of packs after one ran out of memory; its trials start again."""
        trials = len(pack.trials)
        _LOG.warning("pack %s of %d trials: %s", pack.id, trials, error)
        plan = halved(self.study_plan, trials)
        if plan != self.study_plan:
            self._replan(plan, f"a pack of {trials} trials ran out of memory: since then packs are half as wide")
        self._end(pack, [TrialResult(trial=trial, state="WAITING") for trial in pack.trials])

    def _retry(self, pack: RunningPack, reason: str, *, final: bool = False) -> None:
        """Puts trials back to WAITING, or fails them, after their worker died or their training raised an error."""
        _LOG.warning("pack %s of %d trials: %s", pack.id, len(pack.trials), reason)
        results = [self._after_death(self.table.trials[trial], reason, final) for trial in pack.trials]
        self._end(pack, results)
        failed = [result.trial for result in results if result.state == "FAILED"]
        if failed:
            self._failed_packs += 1
            nothing = not any(record.rounds_done for record in self.table.trials.values())
            if self._failed_packs >= HOPELESS and nothing:
                raise DriftlineError(f"nothing could be trained; the last error: {reason}")

    def _after_death(self, row: Row, reason: str, final: bool) -> TrialResult:
        newest = checkpoints.round_of(row.checkpoint)
        deaths = deaths_in_a_row(row.deaths, row.death_round, newest)
        furthest = max(newest, row.death_round or 0)
        state, error = ("FAILED", reason) if final else (after_death(deaths), None)
        if state == "FAILED" and not final:
            error = f"given up after {deaths} attempts without a checkpoint after round {furthest}: {reason}"
        return TrialResult(trial=row.id, state=state, error=error, deaths=deaths, death_round=furthest)

    def _end(self, pack: RunningPack, results: list[TrialResult]) -> None:
        self._record(results)
        del self.table.packs[pack.id]
        self.further.pop(pack.id, None)
        self._waiting_at = None

    def _record(self, results: list[TrialResult]) -> None:
        """Stores results; what finished trials leave behind is removed."""
        trials = self.table.trials
        results = [result.model_copy(update={"rounds_done": trials[result.trial].rounds_done}) for result in results]
        self.desired = self._client.finish(self._study_id, self._attempt, results).desired
        for result in results:
            changes = result.model_dump(include={"deaths", "death_round"}, exclude_none=True)
            values = result.values.model_dump() if result.values else None
            changes |= {"state": result.state, "values": values, "error": result.error}
            self.table.change([result.trial], **changes)
            if result.state != "WAITING":
                self.table.curves.pop(result.trial, None)
                self._ladder.remove(result.trial)


def _digest(text: str) -> str:
    """A short hash. The hash of a pack's trials names its checkpoints, so that the next worker finds them."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
