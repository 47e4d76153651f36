"""A study as users write it: task, methods with their spaces, objective, budget, resources.

Example::

    name: digits-fedavg-vs-fedprox
    task: {name: digits, clients: 50, partition: {dirichlet: 0.3}}
    methods:                                              # what is compared
      - label: fedavg                                     # the name by default; unique
        name: fedavg
        space: {client_lr: {float: [1e-3, 1.0], log: true, also: [0]}, local_steps: {choice: [1, 5, 10, 50]}, ...}
        server: {name: sgd, space: {momentum: {choice: [0.0, 0.9]}}}
        schedule: {name: plateau, space: default}
      - name: fedprox
        space: default
        constraints: ["client_lr * local_steps <= 2"]     # never tried otherwise
        start: [{client_lr: 0.1, server_lr: 1.0}]         # tried first; the sampler fills in the rest
    objective: {quality: test_accuracy, cost: rounds}
    budget: {trials_per_method: 64, rounds: 200, seeds: 3}
    resources: {gpu: auto, packs: auto}
    sampler: tpe                                          # or {name: tpe, startup: 20}

Forms of a space: `search_spaces.parameters`; of `constraints`: `search_spaces.constraints`; of a sampler:
`driftline.study.sampler`; of `start`: `driftline.study.starting_points`.
``space: default`` is the method's default space, which an entry without `space` also gets, ``space: theory`` one that
is derived from the task (`driftline.study.theory_spaces`); an optimizer or schedule without `space` keeps its default
settings. A task, an entry, an optimizer or a schedule can be a name alone:
``task: digits`` stands for ``task: {name: digits}``, ``methods: [fedavg]`` for ``methods: [{name: fedavg}]``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, JsonValue, model_validator
from pydantic import Field as Key

from driftline.errors import InvalidSpec
from driftline.extras import optional_packages
from driftline.study import yaml_files as loading
from driftline.study.budget import MOST_TRIALS, UNITS, Budget
from driftline.study.chance import nothing_random
from driftline.study.directions import Metric
from driftline.study.entries import MethodEntry
from driftline.study.notebook import study_html
from driftline.study.program import Program, ProgramCost, placed, program_entry, program_study
from driftline.study.sampler import Chosen, SamplerField, leading, name_of
from driftline.study.task_facts import default_quality, pinned
from driftline.study.trial_settings import LARGEST, OWN, SHARED, TrialSettings
from driftline.study.validation import Errors, Real, Section, Whole, auto_or_number
from search_spaces.spaces import free
from search_spaces.values import is_json
from trainers import REPORTED, Changes, Steps, hint, shown

MOST_NODES = 1000
"""Most nodes of a trial."""

MOST_ENTRIES = 200
"""Limit far above any real study, which every database and sampler can represent."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"must be 1 to 100 letters, digits, '.', '_' or '-', starting with a letter or digit, got {shown(value)}"
        )
    return value


def _cost(value: Any) -> Any:
    if isinstance(value, ProgramCost) or value in REPORTED:
        return value
    raise ValueError(f"must be {', '.join(REPORTED[:-1])} or {REPORTED[-1]}, got cost={shown(value)}")


class FixedScale(Section):
    """A fixed scale for areas, so that those of several studies can be compared.

    Attributes:
        start: Quality that counts as 0.
        best: Quality that counts as 1.
    """

    start: Real
    best: Real

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.start == self.best:
            raise InvalidSpec("best", f"must differ from start, got best={shown(self.best)}")
        return self


class Objective(Section):
    """What is traded against what.

    Attributes:
        quality: A metric that the task reports; the task's own by default, such as test_accuracy.
        cost: One of `trainers.COSTS` that trials report, such as "bytes", or one that the study's program counts.
        optimize: What the sampler maximises: "both", "quality" (at the end) or "speed" (on the way).
        scale: Scale of the areas; None takes the study's own.
    """

    quality: str
    cost: Annotated[str, BeforeValidator(_cost)] = "rounds"
    optimize: Literal["both", "quality", "speed"] = "both"
    scale: FixedScale | None = None

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the values that the sampler maximises."""
        return ("quality", "speed") if self.optimize == "both" else (self.optimize,)


class Resources(Section):
    """The resources of each pack of trials.

    Attributes:
        gpu: GPUs for each pack, or a share of one; "auto" uses a GPU if there is one.
        cpus: CPU cores for each pack.
        packs: Trials trained together in one pack; "auto" chooses.
        pool: Pool of workers on Kubernetes; None lets the service choose. Ignored where there are no pools.
        nodes: Nodes that each trial of a program spans, each with these GPUs and CPU cores.
    """

    gpu: Annotated[float | Literal["auto"], auto_or_number(least=0, most=1e6)] = "auto"
    cpus: Real = Key(default=1.0, gt=0, le=1e6)
    packs: Annotated[int | Literal["auto"], auto_or_number(least=1, most=MOST_TRIALS, whole=True)] = "auto"
    pool: Annotated[str, AfterValidator(_name)] | None = None
    nodes: Whole = Key(default=1, ge=1, le=MOST_NODES)


class Study(TrialSettings):
    """Several entries on one task, searched under equal budgets. Its trials have the settings of `TrialSettings`.

    A study with a program in place of a task has trials that this program trains; see `driftline.study.program`.

    Attributes:
        name: Also the name of its output folder.
        task: As in a trial: its name and settings, or its name alone; empty for a program.
        program: What trains the trials in place of Driftline's own engine; None for a task.
        methods: The entries to compare.
        objective: What is traded against what; by default the quality of the task against rounds.
        budget: Trials, rounds and seeds of every entry.
        resources: GPUs and CPU cores of each pack, and its size.
        sampler: "tpe", "nsga2", "gp", "cmaes", "random", "grid", "quasi_random" or "staged"; or its name and settings.
            An entry may have its own.
        seed: Seed of the search: of cohorts, batches and initial models of all its trials, and of the sampler.
        evaluation: Sample of held-out clients that evaluations of search trials measure, as in a trial; confirmation
            trials measure all of them.
    """

    name: Annotated[str, AfterValidator(_name)]
    task: dict[str, JsonValue]
    methods: list[MethodEntry] = Key(min_length=1, max_length=MOST_ENTRIES)
    objective: Objective
    budget: Budget
    program: Program | None = None
    resources: Resources = Resources()
    sampler: SamplerField = "tpe"
    seed: Whole = Key(default=0, ge=0, le=LARGEST)
    evaluation: dict[str, JsonValue] | None = None

    if TYPE_CHECKING:  # what users write: for type checkers, the fields say what it becomes

        def __init__(
            self,
            *,
            name: str,
            task: str | Mapping[str, Any] = ...,
            program: Mapping[str, Any] | Callable[..., Any] = ...,
            methods: Sequence[str | Mapping[str, Any] | MethodEntry],
            budget: Mapping[str, Any] | Budget,
            objective: Mapping[str, Any] | Objective = ...,
            resources: Mapping[str, Any] | Resources = ...,
            sampler: str | Mapping[str, Any] = "tpe",
            seed: int = 0,
            clients_per_round: int | None = None,
            batch_size: int | None = None,
            batching: str | None = None,
            drop_last: bool | None = None,
            weighting: str | None = None,
            upload: str | None = None,
            stragglers: Mapping[str, Any] | None = None,
            fragments: int | None = None,
            dtype: str | None = None,
            eval_every: int | str | None = None,
            loss_data: str | None = None,
            init: Any = None,
            report: Sequence[str] | None = None,
            adaptation: Mapping[str, Any] | None = None,
            evaluation: Mapping[str, Any] | None = None,
        ) -> None: ...

    @classmethod
    def _stand_ins(cls, document: Any, steps: Steps) -> tuple[Sequence[Changes], Sequence[Changes]]:
        """Replacements for an invalid value at a place; see `trainers.every_error`."""
        from driftline.study.stand_ins import stand_ins

        return stand_ins(document, steps)

    @model_validator(mode="before")
    @classmethod
    def _objective_of_the_task(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if values.get("program") is not None:
            return program_study(values)
        if isinstance(values.get("task"), str):
            values = values | {"task": {"name": values["task"]}}
        objective = values.get("objective", {})
        task = values.get("task")
        if isinstance(objective, dict):  # without a task, only the missing task is reported
            quality = default_quality(task if isinstance(task, dict) else {})
            values = values | {"objective": {"quality": quality, **objective}}
        return values

    @model_validator(mode="after")
    def _whole(self) -> Self:
        errors = Errors()
        if self.program is not None:
            errors.add_all(self._program_errors(self.program))
        elif self.resources.nodes > 1:
            problem = f"must be 1 without a program, got {self.resources.nodes}: a pack is trained on one node"
            errors.add(InvalidSpec("resources.nodes", problem))
        elif not isinstance(self.task.get("name"), str):
            errors.add(InvalidSpec("task.name", "must be given: the name of a task, such as digits"))
        seen: dict[str, int] = {}
        for index, entry in enumerate(self.methods):
            if entry.label in seen:
                twin = f"methods[{seen[entry.label]}]"
                problem = f"must be unique, got {shown(entry.label)}, which {twin} has: give one of them another label"
                errors.add(InvalidSpec(f"methods[{index}].label", problem))
            seen.setdefault(entry.label, index)
            most = self.budget.trials_per_search
            if len(entry.start) > most:
                detail = (
                    "the trials_per_method of the budget" if self.budget.searches == 1 else "the trials of a search"
                )
                problem = f"must hold at most {most} configurations, {detail}, got {len(entry.start)}"
                errors.add(InvalidSpec(f"methods[{index}].start", problem))
        if self.budget.rung_rule == "forecast" and "quality" not in self.objective.objectives:
            problem = 'must be halving or extrapolation with objective.optimize "speed", got rule="forecast"'
            errors.add(InvalidSpec("budget.rungs.rule", f"{problem}: it is for the final quality"))
        if self.budget.unit != "rounds":
            errors.add_all(self._spent_errors())
        for index, entry in enumerate(self.methods if self.budget.unit == "rounds" else ()):
            try:
                first, every = self.budget_of(entry).rung_rounds[0], self.settings_of(entry).eval_every
            except InvalidSpec as error:
                errors.add(InvalidSpec(f"methods[{index}].{error.path}", error.problem))
                continue
            if self.budget.rungs is not None and isinstance(every, int) and first < every:
                detail = "" if entry.rounds is None else f" of {entry.label}"
                problem = f"must not begin before the first evaluation, after round {every}, got {first}{detail}"
                errors.add(InvalidSpec("budget.rungs", problem))
        if self.budget.branches > 1:
            with errors.collected():
                self._check_branches()
        for key in ("task", "init"):
            if not is_json(getattr(self, key)):
                errors.add(InvalidSpec(key, f"must hold finite JSON values only, got {shown(getattr(self, key))}"))
        errors.raise_any()
        if self.program is not None:
            quality = Metric(self.objective.quality, self.program.metrics[self.objective.quality])
            self.__dict__["objective"] = self.objective.model_copy(update={"quality": quality})
        return self

    def _program_errors(self, program: Program) -> Iterator[InvalidSpec]:
        quality, cost = self.objective.quality, self.objective.cost
        if quality not in program.metrics:
            problem = f"must be one of program.metrics, got {shown(quality)}: {hint(quality, program.metrics)}"
            yield InvalidSpec("objective.quality", problem)
        if cost not in program.counted:
            counted = ", ".join(program.counted)
            yield InvalidSpec("objective.cost", f"must be {counted} (program.costs adds others), got {shown(cost)}")
        if self.budget.rungs is not None and not program.checkpoints and self.budget.asking == "generations":
            rule = "must be left out, or have program.checkpoints: true, or budget.asking: asynchronous"
            yield InvalidSpec("budget.rungs", f"{rule}: a trial goes on from its checkpoint, or waits for a decision")
        if self.resources.nodes > 1 and program.reuse:
            yield InvalidSpec("program.reuse", f"must be false with resources.nodes, got {self.resources.nodes} nodes")

    def _spent_errors(self) -> Iterator[InvalidSpec]:
        """Errors of a budget in another unit than rounds."""
        unit = self.budget.unit
        if self.program is not None:
            yield InvalidSpec(f"budget.{unit}", "must be left out for a program: give budget.rounds")
        for index, entry in enumerate(self.methods):
            if entry.rounds is not None:
                problem = f"must be left out with budget.{unit}, which says how many rounds each trial has"
                yield InvalidSpec(f"methods[{index}].rounds", problem)

    def _check_branches(self) -> None:
        branching = [entry for entry in self.methods if entry.branching]
        if not branching:
            raise InvalidSpec("budget.branches", "needs an entry whose schedule has a space with more than one value")
        for entry in branching:
            tuned = [name for name in free(entry.parameters()) if not name.startswith("schedule.")]
            if name_of(self.sampler_of(entry)) == "grid" and tuned:
                rule = "with the sampler grid, needs a fixed value for all that is not of the schedule"
                raise InvalidSpec("budget.branches", f"{rule}, got a range for {tuned[0]} of {entry.label}")

    @model_validator(mode="after")
    def _seeds_where_something_is_random(self) -> Self:
        if "seeds" not in self.budget.model_fields_set and nothing_random(self):
            self.__dict__["budget"] = Budget(**{**self.budget.model_dump(), "seeds": 0})
        return self

    def metric(self, name: str) -> str:
        """The name of a metric, with its direction if the program declares one."""
        declared = self.program.metrics.get(name) if self.program is not None else None
        return name if declared is None else Metric(name, declared)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the entries."""
        return tuple(entry.label for entry in self.methods)

    def entry(self, label: str) -> MethodEntry:
        """The entry of a label.

        Raises:
            InvalidSpec: No such label.
        """
        for entry in self.methods:
            if entry.label == label:
                return entry
        raise InvalidSpec("label", f"no entry {shown(label)} in study {self.name}: {hint(label, self.labels)}")

    def budget_of(self, entry: MethodEntry) -> Budget:
        """The budget of an entry, with the rounds and rungs of its trials; the study's if that is in another unit."""
        return self.budget.of_rounds(entry.rounds)

    def sampler_of(self, entry: MethodEntry) -> Chosen:
        """The sampler of an entry: its own, otherwise the study's."""
        return self.sampler if entry.sampler is None else entry.sampler

    @property
    def leading_sampler(self) -> Chosen:
        """The sampler that decides the study's plan."""
        return leading(map(self.sampler_of, self.methods))

    @property
    def rungs(self) -> dict[str, tuple[int, ...]]:
        """Label -> the rungs of its trials, in the unit of the budget; the whole amount included."""
        return {entry.label: self.budget_of(entry).rung_amounts for entry in self.methods}

    def settings_of(self, entry: MethodEntry, hyperparameters: Mapping[str, Any] | None = None) -> TrialSettings:
        """The settings of an entry's trials: its own, otherwise the study's. All metrics have the study's weighting.

        Args:
            entry: The entry.
            hyperparameters: A configuration, whose sizes are those of its trials if the entry searches them.
        """
        settings = {name: value for name in OWN if name != "weighting" and (value := getattr(entry, name)) is not None}
        values = hyperparameters or {}
        settings |= {name: values[name] for name in entry.sizes if name in values}
        return TrialSettings.model_construct(**{name: getattr(self, name) for name in SHARED} | settings)

    def sizes_of(self, entry: MethodEntry, name: str) -> tuple[int | None, ...]:
        """The smallest and the largest value, or all options, that one of `SIZES` has in an entry's trials."""
        searched = entry.space[name].ends() if name in entry.sizes else (getattr(self.settings_of(entry), name),)
        return tuple(searched)

    @classmethod
    def from_yaml(cls, source: str | Path) -> Self:
        """Reads a study from a YAML file or a YAML string.

        Args:
            source: A path, or a YAML string, which must have a line break.

        Raises:
            InvalidSpec: A line for each error, with the key, what must hold, and what was given.
            NotFound: There is no such file.
        """
        document = loading.read(source)
        if not isinstance(document, dict) and not (isinstance(source, str) and "\n" in source):
            came = "nothing in it" if document is None else shown(document)
            raise InvalidSpec("", f"{Path(source).name}: must hold a study, a mapping of keys to values, got {came}")
        is_text = isinstance(source, str) and "\n" in source
        if "task" in document and not is_text:
            document["task"] = pinned(document["task"], Path(source).parent)
        return cls.from_json(placed(document, Path.cwd() if is_text else Path(source).resolve().parent))

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON form: default spaces are written out, unset keys are left out."""
        document = _settings_last(self.model_dump(mode="json", exclude_none=False))
        optional = [
            name for name, key in type(self).model_fields.items() if not key.is_required() and key.default is None
        ]
        for name in optional:
            if document[name] is None:
                del document[name]
        for name in (*UNITS, "rungs"):
            if document["budget"][name] is None:
                del document["budget"][name]
        if self.objective.scale is None:
            del document["objective"]["scale"]
        if self.resources.pool is None:
            del document["resources"]["pool"]
        if self.resources.nodes == 1:
            del document["resources"]["nodes"]
        for name, default in (("asking", "generations"), ("searches", 1), ("branches", 1)):
            if document["budget"][name] == default:
                del document["budget"][name]
        document["methods"] = [_settings_last(entry) for entry in document["methods"]]
        unset = ("sampler", "rounds", "constraints", "start", "prior", "client", "central", "merge", "theory")
        for entry in document["methods"]:
            for key in (*OWN, *unset):
                if entry[key] in (None, []):
                    del entry[key]
        if self.program is not None:
            del document["task"]
            document = {"name": document.pop("name"), "program": self.program.to_json()} | {
                key: value for key, value in document.items() if key != "program"
            }
            pairs = zip(document["methods"], self.methods, strict=True)
            document["methods"] = [program_entry(written, entry.space) for written, entry in pairs]
        return document

    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON text (keys sorted, no spaces), in hexadecimal.

        `resources` change no result and are left out.
        """
        document = {key: value for key, value in self.to_json().items() if key != "resources"}
        document |= {} if self.program is None else {"program": self.program.identity()}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def _repr_html_(self) -> str:
        """HTML for notebooks: task, budget, and the tuned hyperparameters of each entry."""
        return study_html(self)

    def check(self) -> list[str]:
        """Checks everything that can be checked before anything runs, see `driftline.study.check.check`.

        Returns:
            Warnings about what is valid but probably unintended, one line each.

        Raises:
            InvalidSpec: A line for each error, with the key, what must hold, and what was given.
            DriftlineError: PyTorch is not installed.
        """
        with optional_packages("let a service check it: Client(url, token).validate(study)"):
            from driftline.study.check import check  # imports the trainers, and with them torch

            return check(self)

    def outlook(self) -> list[str]:
        """What the study will do and what it can claim, one line each, see `driftline.study.outlook.outlook`."""
        from driftline.study.outlook import outlook

        return outlook(self)


def _settings_last(document: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(document.items(), key=lambda item: item[0] in SHARED))
