"""All errors of a study at once: errors of form, and those that a check of the well-formed parts finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study import yaml_files
from driftline.study.spec import Study
from driftline.study.stand_ins import stand_ins
from driftline.study.validation import all_errors


def read_study(file: Path) -> Study:
    """A study from its file; imports the trainers and torch if there is an error.

    Raises:
        InvalidSpec: A line for each error, with the key, what must hold, and what was given.
        NotFound: There is no such file.
    """
    try:
        return Study.from_yaml(file)
    except InvalidSpec as error:
        document = yaml_files.read(file)
        if not isinstance(document, dict):
            raise
        raise study_errors(document, error, lambda study: study.check()) from None


def study_of(document: Mapping[str, Any], check: Callable[[Study], Any] = Study.check) -> Study:
    """A study from its document; imports the trainers and torch if there is an error.

    Args:
        document: The study.
        check: Checks a well-formed study; called only to find further errors after an error of form.

    Raises:
        InvalidSpec: A line for each error, with the key, what must hold, and what was given.
    """
    try:
        return Study.from_json(document)
    except InvalidSpec as error:
        raise study_errors(document, error, check) from None


def study_errors(document: Mapping[str, Any], error: InvalidSpec, check: Callable[[Study], Any]) -> InvalidSpec:
    """An error of a study, together with all other errors of the study.

    Args:
        document: The study, as it was given or in its canonical form.
        error: The error that reading or checking the study raised.
        check: Checks a well-formed study; raises InvalidSpec.
    """
    return all_errors(document, error, lambda mended: check(Study.from_json(mended)), stand_ins)
