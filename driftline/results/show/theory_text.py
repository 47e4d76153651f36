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


def _apart(found: Json | None) -> str:
    if found is None:
        return ""
    largest = found["largest"]
    configurations = f"{found['configurations']} configuration{'s' if found['configurations'] > 1 else ''}"
    return (
        f"over {configurations} the tail is {_share(found['quality'], largest['quality'])} from its prediction, "
        f"the cost to settle {_share(found['cost'], largest['cost'])}, "
        f"the tail from its limit {_share(found['limit'], largest['limit'])}."
    )


def _share(median: float, largest: float) -> str:
    return "0" if largest == 0 else f"{number(median, 2)} (largest {number(largest, 2)})"
