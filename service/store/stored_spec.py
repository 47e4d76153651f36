"""The keys of a stored study that the service reads; parsing it as a `Study` would be slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from driftline.study.budget import Budget
from driftline.study.entries import PROGRAM
from driftline.study.rung_rounds import read_rungs
from driftline.study.spec import Resources


@dataclass(frozen=True)
class StoredSpec:
    """A study's document in canonical form, which was checked before it was stored.

    Args:
        document: From `Study.to_json`.
    """

    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The study's name."""
        return str(self.document["name"])

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        """The documents of the entries."""
        return list(self.document.get("methods", ()))

    @property
    def methods(self) -> dict[str, str]:
        """Each label's method; `PROGRAM` in a study of a program."""
        return {str(entry["label"]): str(entry.get("name", PROGRAM)) for entry in self.entries}

    @property
    def archive(self) -> str | None:
        """Digest of the program's packed files; None without any."""
        return (self.document.get("program") or {}).get("archive")

    @property
    def samplers(self) -> list[Any]:
        """The name or the document of each entry's sampler."""
        return [entry.get("sampler", self.document.get("sampler", "tpe")) for entry in self.entries]

    @cached_property
    def budget(self) -> Budget:
        """The budget of the study; not validated again."""
        budget = self.document["budget"]
        return Budget.model_construct(**{**budget, "rungs": read_rungs(budget.get("rungs"))})

    def budget_of(self, label: str) -> Budget:
        """The budget of an entry, with the rounds and rungs of its trials."""
        rounds = next((entry.get("rounds") for entry in self.entries if str(entry["label"]) == label), None)
        return self.budget.of_rounds(rounds)

    @cached_property
    def resources(self) -> Resources:
        """The resources of each pack."""
        return Resources.from_json(self.document.get("resources", {}))

    @property
    def trials(self) -> int:
        """Number of all trials: of searches, and of confirmations on fresh seeds."""
        return len(self.entries) * self.budget.trials
