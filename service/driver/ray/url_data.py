"""Reads a study's data at URLs on a worker, before the first trial, and checks the study with them.

The API accepts a study without reading its data. The data of the first read belong to the study: later drivers, and all
workers, refuse data with another checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from driftline.errors import DriftlineError, Unavailable, from_problem, problem
from driftline.study.spec import Study
from service.driver.ray.url_fetch import fetch
from trainers import reading_only

_LOOK_S = 0.5


def examined(
    study: Study, urls: Sequence[str], *, cpus: float, stopped: Callable[[], object], progress: Callable[[str], None]
) -> Study | None:
    """Reads the data of a study and checks it; returns the study with the checksum of its data.

    Args:
        study: The study, with the checksum if that is known.
        urls: Beginnings that the URLs may have.
        cpus: CPU cores of a worker.
        stopped: Gives something true when the result is no longer needed.
        progress: Called with remarks about the study.

    Returns:
        None if it was stopped.

    Raises:
        InvalidSpec: The data cannot be read, have another checksum, or do not fit the study.
        DriftlineError: Reading failed in a way that another attempt would not change.
        Unavailable: Ray broke.
    """
    progress("reading the data at a URL ...")
    reading = ray.remote(num_cpus=cpus)(read).remote(study.to_json(), list(urls))
    while not ray.wait([reading], timeout=_LOOK_S)[0]:
        if stopped():
            ray.cancel(reading, force=True)
            return None
    try:
        outcome = ray.get(reading)
    except (RayTaskError, OutOfMemoryError) as error:
        cause = getattr(error, "cause", None) or error
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise DriftlineError(
            f"the data at a URL could not be read, or the study not be checked with them: {reason}"
        ) from error
    except RayError as error:
        raise Unavailable(
            f"the worker that read the data at a URL was lost: {type(error).__name__}: {error}"
        ) from error
    if "problem" in outcome:
        raise from_problem(outcome["problem"]["status"], outcome["problem"])
    for remark in outcome["remarks"]:
        progress(remark)
    checksum = {} if outcome["sha256"] is None else {"sha256": outcome["sha256"]}  # a plug-in may have none
    return study.model_copy(update={"task": {**study.task, **checksum}})


def read(document: Mapping[str, Any], urls: Sequence[str]) -> dict[str, Any]:
    """Reads a study's data and checks it; returns the checksum and remarks, or a problem.

    Args:
        document: The study.
        urls: Beginnings that the URLs may have.
    """
    from driftline.study.trial_document import trial_document
    from trainers import parse

    study = Study.from_json(document)
    try:
        with reading_only(urls):
            fetch(study.task, fresh=True)
            remarks = study.check()
            first = study.methods[0]
            low = {name: parameter.ends()[0] for name, parameter in first.parameters().items()}
            task = parse(trial_document(study, first.label, [low], study.seed)).canonical["task"]
    except DriftlineError as error:
        return {"problem": problem(error)}
    return {"remarks": remarks, "sha256": task.get("sha256")}
