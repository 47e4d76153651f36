"""The difference between measurement and theory in words, for the table and page of a study on a quadratic task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.results.show.number_text import number

Json = Mapping[str, Any]


def agreement(result: Json) -> list[str]:
    """One or two sentences for each label; none if the theory does not cover the task.

    Args:
        result: The document of a `StudyResult`; labels have ``"disagreement"`` on quadratic tasks only.
    """
    return [
        f"{label}: {' '.join(text for text in (_apart(method['disagreement']), method['theory_note']) if text)}"
        for label, method in result["methods"].items()
        if "disagreement" in method
    ]


def _apart(differences: Json | None) -> str:
    if differences is None:
        return ""
    largest = differences["largest"]
    configurations = f"{differences['configurations']} configuration{'s' if differences['configurations'] > 1 else ''}"
    return (
        f"over {configurations} the end is {_share(differences['ends'], largest['ends'])} from its prediction, "
        f"the settling cost {_share(differences['settles'], largest['settles'])}, "
        f"the end from its limit {_share(differences['limit'], largest['limit'])}."
    )


def _share(median: float, largest: float) -> str:
    return "0" if largest == 0 else f"{number(median, 2)} (largest {number(largest, 2)})"
