"""Which columns are inputs and targets if a task does not say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

INPUTS = ("x", "image", "images", "img", "pixels")
TARGETS = ("y", "label", "labels", "target", "class", "fine_label", "tags")


def choose_columns(values: dict[str, Any], columns: Sequence[str], mask: str | None, path: str) -> None:
    """Sets `inputs` and `targets` of a task that are None.

    Targets are the first of `TARGETS` that there is; inputs the first of `INPUTS`, or all columns that are nothing
    else.

    Args:
        values: the task's keys; inputs and targets are overwritten.
        columns: names of the columns; () if they are not known, which stands for x and y.
        mask: column that marks test examples; None without one.
        path: dotted path of the task.

    Raises:
        SpecError: no column has one of these names.
    """
    known = columns or (INPUTS[0], TARGETS[0])
    if values["targets"] is None:
        place = join(path, "targets")
        values["targets"] = next((name for name in TARGETS if name in known), None)
        if values["targets"] is None:
            raise SpecError(f"{place} must be given, one of the columns {', '.join(known)}", place)
    if values["inputs"] is None:
        used = {values["targets"], values["client"], mask}
        values["inputs"] = next((name for name in INPUTS if name in known and name not in used), None)
        if values["inputs"] is None:
            values["inputs"] = [name for name in known if name not in used]
        if not values["inputs"]:
            place = join(path, "inputs")
            raise SpecError(f"{place} must be given: no column beside {shown(values['targets'])} is left", place)
