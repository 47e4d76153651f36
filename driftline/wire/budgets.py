"""Messages that give a study a larger budget, retry failed trials, or estimate the cost of a study."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from driftline.study.notebook import html_table, html_title
from driftline.wire.durations import DAY_S, clock_text
from driftline.wire.records import Record


class Extension(Record):
    """POST :extend. The numbers are the new totals, not increments, so that repeating a request changes nothing.

    Attributes:
        trials_per_method: Configurations searched for each entry, at least as many as now.
        seeds: Fresh seeds for confirmation, at least as many as now.
    """

    model_config = ConfigDict(strict=True)

    trials_per_method: int | None = Field(default=None, ge=1)
    seeds: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.trials_per_method is None and self.seeds is None:
            raise ValueError("must give trials_per_method, seeds or both")
        return self


class Retry(Record):
    """POST :retry. Runs FAILED trials again.

    Attributes:
        trials: Ids of FAILED trials; an empty list stands for all of them.
    """

    model_config = ConfigDict(strict=True)

    trials: list[str] = Field(default_factory=list)


class StudyEstimate(Record):
    """The estimated cost of a study; a service knows no times.

    Attributes:
        trials: Search trials and confirmation trials together.
        packs: Packs they run in; more if structural values (`server.nesterov`, ...) split them.
        rounds: Rounds over all trials; None from a service if the budget is in another unit.
        cpu_hours: CPU cores times hours.
        seconds: Seconds from start to end.
        rests_on: Where the numbers come from, and what is unknown and why, one line each.
    """

    trials: int
    packs: int
    rounds: int | None = None
    cpu_hours: float | None = None
    seconds: float | None = None
    rests_on: list[str] = Field(default_factory=list)


class StoredArchive(Record):
    """The packed files of a program, as they are stored.

    Attributes:
        digest: SHA-256 of the tar in the archive.
        size: Bytes of the archive.
    """

    digest: str
    size: int


class CheckedStudy(Record):
    """A valid study that was checked but not stored.

    Attributes:
        spec: Its canonical form, with defaults written out.
        fingerprint: `Study.fingerprint` of it.
        remarks: Warnings about what is valid but probably unintended, one line each.
        outlook: What it will do and what it can claim, one line each.
        estimate: Its estimated cost; None if not requested.
    """

    spec: dict[str, Any]
    fingerprint: str
    remarks: list[str] = Field(default_factory=list)
    outlook: list[str] = Field(default_factory=list)
    estimate: StudyEstimate | None = None

    def __repr__(self) -> str:
        return f"CheckedStudy({self.spec.get('name')!r}, {len(self.remarks)} remarks)"

    def _repr_html_(self) -> str:
        """HTML for notebooks: remarks, what the study will do, and how long it takes."""
        rows = [("note", remark) for remark in self.remarks] + [("", fact) for fact in self.outlook]
        if self.estimate is not None and self.estimate.seconds is not None:
            rows.append(("time", f"about {clock_text(self.estimate.seconds)}"))
        return html_title(str(self.spec.get("name")), "valid") + html_table((), rows)

    def estimated(self, estimate: StudyEstimate) -> Self:
        """With an estimate, and a remark if the study takes more than a day.

        Args:
            estimate: The study's estimated cost.
        """
        remarks = list(self.remarks)
        if estimate.seconds is not None and estimate.seconds > DAY_S:
            fewer = "fewer trials_per_method, rounds or labels take less"
            remarks.append(f"budget: the study takes about {clock_text(estimate.seconds)}: {fewer}")
        return self.model_copy(update={"estimate": estimate, "remarks": remarks})
