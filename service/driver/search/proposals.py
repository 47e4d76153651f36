"""The samplers of a study, one for each search of each label: what they have proposed and what they have been told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from driftline.study.spec import Study
from driftline.wire.records import Hyperparameters, StudyPlan, TrialRecord
from search_spaces.constraints import all_hold
from search_spaces.spaces import dimensions
from service.driver.search.actions import Ask, SearchPlan
from service.driver.search.state import StudyTable
from service.driver.search.study_plan import rounded, sampler_seed
from service.samplers.by_rung import ByRung, enough
from service.samplers.sampler import Sampler


class Proposals:
    """Asks the samplers, and tells them results in the order of the trials' numbers.

    Args:
        study: The study.
        plan: Its plan.
        table: Its trials.
        build_sampler: Builds a sampler; see `service.samplers.build.build`.
    """

    def __init__(self, study: Study, plan: StudyPlan, table: StudyTable, build_sampler: Callable[..., Sampler]) -> None:
        self._table = table
        self._budget = study.budget
        self._entries = {entry.label: entry for entry in study.methods}
        self._untold: set[str] = set()  # search trials of which the samplers have heard no result
        self._samplers: dict[tuple[str, int], ByRung] = {}
        names, self._rungs = study.objective.objectives, study.rungs
        shared = dimensions(entry.parameters() for entry in study.methods)
        for entry in study.methods:
            space, sampler = entry.parameters(), study.sampler_of(entry)
            for search in range(study.budget.searches):
                seed = sampler_seed(study.seed, search)
                options: dict[str, Any] = {
                    "start": entry.start,
                    "prior": entry.prior,
                    "constraints": entry.constraints,
                    "dimensions": shared,
                }
                samplers = [build_sampler(sampler, space, names, seed, **options) for _ in self._rungs[entry.label]]
                self._samplers[entry.label, search] = ByRung(samplers, enough(sampler, space))

    def ask(self, ask: Ask, plan: SearchPlan) -> list[Hyperparameters]:
        """The configurations that are asked for, after the results that the plan lets the samplers learn from."""
        self._tell(ask.label, before=plan.learned_from(ask.first, ask.label))
        tried = self._table.configurations(ask.label, range(ask.first))
        for number in range(ask.first, ask.first + ask.count):
            sampler, in_search = self._sampler(ask.label, number)
            proposed = sampler.ask(in_search)
            tried.append(self._branch(ask.label, number, proposed, tried))
            if tried[number] != proposed:
                sampler.pending(in_search, tried[number])
        return tried[ask.first :]

    def created(self, records: Iterable[TrialRecord]) -> None:
        """Remembers new search trials, which their samplers have proposed."""
        self._untold |= {record.id for record in records}

    def restore(self, record: TrialRecord) -> None:
        """Tells its sampler of a search trial that an earlier driver has created."""
        sampler, in_search = self._sampler(record.label, record.number)
        sampler.pending(in_search, record.hyperparameters)
        self._untold.add(record.id)

    def _tell(self, label: str, before: int) -> None:
        """Tells a label's samplers, in the order of their numbers, the new results of trials before this number."""
        untold = [self._table.trials[trial] for trial in self._untold]
        due = [record for record in untold if record.label == label and record.number < before and record.finished]
        for record in sorted(due, key=lambda record: record.number):
            values = self._table.reached.get(record.id, [])
            if record.values is not None and len(self._rungs[label]) == 1:
                values = [rounded(record.values)]
            sampler, in_search = self._sampler(label, record.number)
            sampler.tell(in_search, record.hyperparameters, values, record.state)
            self._untold.remove(record.id)
            self._table.change([record.id], values=None)

    def _branch(
        self, label: str, number: int, proposed: Hyperparameters, tried: Sequence[Hyperparameters]
    ) -> Hyperparameters:
        """The proposed schedule with all else from the trunk that configuration `number` belongs to, if it has one.

        Starting points are tried as they are, and so is a proposal that with the trunk's values breaks a constraint or
        is one of the configurations `tried` before.
        """
        entry, trunk = self._entries[label], self._budget.trunk_of(number)
        if trunk == number or not entry.branching or number // self._budget.searches < len(entry.start):
            return proposed
        first = tried[trunk]
        joined = {name: value if name.startswith("schedule.") else first[name] for name, value in proposed.items()}
        return joined if joined not in tried and all_hold(entry.constraints, joined) else proposed

    def _sampler(self, label: str, number: int) -> tuple[ByRung, int]:
        """The sampler that proposes this search trial of a label, and the number of the trial in its search."""
        return self._samplers[label, self._budget.search_of(number)], number // self._budget.searches
