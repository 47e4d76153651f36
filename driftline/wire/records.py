"""Studies, trials and events as they are stored and sent, and pages of them.

The store, the API, the clients, the driver and the SDK all use these records. Times are in UTC.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from driftline.study.spec import Study

StudyState = Literal[
    "PENDING", "QUEUED", "RUNNING", "PAUSING", "PAUSED", "CANCELLING", "CANCELLED", "SUCCEEDED", "FAILED"
]
TrialState = Literal["WAITING", "RUNNING", "COMPLETE", "STOPPED", "DIVERGED", "FAILED", "CANCELLED"]
Phase = Literal["search", "confirmation"]
Hyperparameters = dict[str, JsonValue]
"""One value for every hyperparameter, by dotted name: client_lr, server.momentum, schedule.window."""

STUDY_FINISHED: frozenset[str] = frozenset({"CANCELLED", "SUCCEEDED", "FAILED"})
STUDY_DELETABLE = STUDY_FINISHED | {"PAUSED"}
TRIAL_FINISHED: frozenset[str] = frozenset({"COMPLETE", "STOPPED", "DIVERGED", "FAILED", "CANCELLED"})


class Record(BaseModel):
    """Base of all messages: immutable, refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Values(Record):
    """The values of a complete trial that the sampler maximises.

    Attributes:
        quality: Last smoothed value of the chosen metric, negated for metrics that fall.
        speed: Mean of that quality over log10 cost.
    """

    quality: float = Field(allow_inf_nan=False)
    speed: float = Field(allow_inf_nan=False)


class TrialRecord(Record):
    """One configuration of all hyperparameters, trained with one seed, and its progress.

    Attributes:
        id: From `driftline.wire.ids.trial_id`.
        study_id: Its study.
        label: Its entry.
        phase: "search", or "confirmation" for one of the best configurations on a fresh seed.
        number: Counts from 0 within label and phase.
        seed: Seed of cohorts, batches and initial model.
        configuration: Number of the search trial with these hyperparameters; a search trial's own number.
        hyperparameters: Dotted name to value.
        state: WAITING, RUNNING, or finished: COMPLETE, STOPPED (early, at a rung), DIVERGED, FAILED, CANCELLED.
        attempt: How often a pack has started it.
        rounds_done: Server updates reported so far.
        pack: Pack that runs it, or ran it last.
        plan: How it is computed (oracle, width, threads); a resumed trial keeps it.
        checkpoint: Location of its newest checkpoint.
        values: The values that the sampler maximises; None unless COMPLETE.
        error: Why it FAILED.
        deaths: How often in a row its worker has died without a newer checkpoint in between.
        death_round: Round of its newest checkpoint when its worker last died; None before the first death.
        created_at: When it was created.
        updated_at: When it last changed.
    """

    id: str
    study_id: str
    label: str
    phase: Phase
    number: int = Field(ge=0)
    seed: int
    configuration: int = Field(ge=0)
    hyperparameters: Hyperparameters
    state: TrialState = "WAITING"
    attempt: int = 0
    rounds_done: int = 0
    pack: str | None = None
    plan: dict[str, JsonValue] | None = None
    checkpoint: str | None = None
    values: Values | None = None
    error: str | None = None
    deaths: int = 0
    death_round: int | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def finished(self) -> bool:
        """Whether it has ended. Only a FAILED trial can run again, if the study's owner retries it."""
        return self.state in TRIAL_FINISHED


class LabelProgress(Record):
    """Progress of one label.

    Attributes:
        search: Number of search trials by state.
        confirmation: Number of confirmation trials by state.
        rounds_done: Rounds reported, over all its trials.
        rounds_total: Rounds that it is expected to take (fewer once trials diverge).
    """

    search: dict[TrialState, int] = {}
    confirmation: dict[TrialState, int] = {}
    rounds_done: int = 0
    rounds_total: int = 0


class StudyPlan(Record):
    """How a study asks its samplers and forms packs; decided before its first trial, whatever the number of workers.

    Attributes:
        generation: Configurations of a label that its samplers propose at once; the results of a generation are told
            two generations later. 0 tells every result at the next proposal.
        stages: Label -> sizes of its generations where it is tuned in stages (`driftline.study.stages`), the results of
            which are told at once.
        width: Most search trials in a pack.
        confirmation_width: Most confirmation trials in a pack.
        seeds_together: Whether confirmation trials of several seeds share a pack if the engine can join them.
        engine: How the first pack was computed (oracle, threads, ...), and so all others; None before that.
        exceptions: What the trials depend on besides the study and this plan, one line each.
        data: SHA-256 of the data at the study's URLs when it began, and at every later reading; None without URLs.
    """

    generation: int = Field(ge=0)
    width: int = Field(ge=1)
    confirmation_width: int = Field(ge=1)
    engine: dict[str, JsonValue] | None = None
    exceptions: list[str] = []
    data: str | None = Field(default=None, exclude_if=lambda data: data is None)  # 0.3.0 does not know these keys
    stages: dict[str, list[int]] = Field(default={}, exclude_if=lambda stages: not stages)
    seeds_together: bool = Field(default=False, exclude_if=lambda together: not together)


class StudyRecord(Record):
    """A stored study. Times are in UTC.

    Attributes:
        id: From `driftline.wire.ids.new_study_id`.
        name: The study's own name; need not be unique.
        project: The project that it belongs to.
        state: PENDING, QUEUED, RUNNING, PAUSING, PAUSED, CANCELLING, or finished: CANCELLED, SUCCEEDED, FAILED.
        reason: Why it is in this state, in one line; "" without one.
        spec: The study as JSON, from `Study.to_json`.
        fingerprint: `Study.fingerprint` of it.
        version: Increases with every stored result.
        progress: Progress of each label.
        plan: How its trials are asked for and packed; None until a driver has decided it.
        mlflow_url: Address of its curves in MLflow; None until they are there.
        created_at: When it was submitted.
        updated_at: When it last changed.
        started_at: When a driver first took it.
        finished_at: When it finished.
    """

    id: str
    name: str
    project: str = "default"
    state: StudyState = "PENDING"
    reason: str = ""
    spec: dict[str, Any]
    fingerprint: str = ""
    version: int = 0
    progress: dict[str, LabelProgress] = {}
    plan: StudyPlan | None = Field(default=None, exclude_if=lambda plan: plan is None)  # 0.2.0 does not know the key
    mlflow_url: str | None = None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @cached_property
    def study(self) -> Study:
        """The study in `spec`, parsed at first use."""
        return Study.from_json(self.spec)

    @property
    def finished(self) -> bool:
        """Whether its state is final."""
        return self.state in STUDY_FINISHED


class StudyPage(Record):
    """Studies, newest first.

    Attributes:
        studies: The studies.
        owners: Study id to the name of the token that submitted the study; only on request, for clients that know it.
        next_page_token: For the next page; None on the last one.
    """

    studies: list[StudyRecord]
    owners: dict[str, str] = Field(default={}, exclude_if=lambda owners: not owners)
    next_page_token: str | None = None


class TrialPage(Record):
    """Trials in the order label, phase (search before confirmation), number."""

    trials: list[TrialRecord]
    next_page_token: str | None = None


class Event(Record):
    """One line of a study's history, as sent over /events.

    Attributes:
        id: Increases within the study; the value of Last-Event-ID.
        study_id: Its study.
        kind: "state" (data: state, reason), "progress" (data: version, progress), "log" (data: level, message).
        data: What happened.
        created_at: When.
    """

    id: int
    study_id: str
    kind: Literal["state", "progress", "log"]
    data: dict[str, JsonValue] = {}
    created_at: datetime
