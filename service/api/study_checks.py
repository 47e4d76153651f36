"""Checks of a study's document before it is stored."""

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from driftline.errors import DriftlineError, InvalidSpec
from driftline.study.all_errors import study_of
from driftline.study.theory_spaces import derived
from driftline.wire.budgets import CheckedStudy, Extension
from service.launchers.worker_pools import FACT, WorkerPools
from service.store.store import Store
from service.store.stored_spec import StoredSpec
from trainers import urls_of

_LOG = logging.getLogger(__name__)


AT_URL = "the data at a URL are read, and what follows from them is checked, when the study starts"


def check(body: Mapping[str, Any]) -> CheckedStudy:
    """Finds every error in a study that can be found before it runs, and derives its spaces from theory.

    Raises:
        InvalidSpec: A line for each error, with the key, the rule, and what was given.
    """
    try:
        study = study_of(body)
        study = derived(study)
        remarks = study.check()
        outlook = study.outlook()
    except DriftlineError:
        raise
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:  # from numpy, for what no check has refused
        if isinstance(error, RuntimeError) and not (isinstance(error, RecursionError) or "memory" in str(error)):
            raise  # torch raises RuntimeError when it is out of memory
        _LOG.warning("a study could not be checked", exc_info=error)
        raise InvalidSpec("task", f"its sizes must fit this computer, got {type(error).__name__}: {error}") from error
    return CheckedStudy(spec=study.to_json(), fingerprint=study.fingerprint(), remarks=remarks, outlook=outlook)


def check_without_data(body: Mapping[str, Any]) -> CheckedStudy:
    """Checks a study whose data are at URLs, which only its driver and workers may read.

    Raises:
        InvalidSpec: A line for each error that does not depend on the data.
    """
    from driftline.study.check import check as checked  # imports torch, which the API's own process does without
    from driftline.study.outlook import outlook

    study = study_of(body, lambda study: checked(study, data=False))
    remarks = checked(study, data=False)
    remarks += [f"{key_path}: {AT_URL}" for key_path, _ in urls_of(study.task)]
    return CheckedStudy(
        spec=study.to_json(),
        fingerprint=study.fingerprint(),
        remarks=remarks,
        outlook=outlook(study, data=False),
    )


def with_room_checked(store: Store, project: str, checked: CheckedStudy) -> CheckedStudy:
    """Checks that the launcher has room for a study; adds a remark if it names a pool and the service has none.

    Raises:
        InvalidSpec: A pack can never run, or the project may not use this pool, or may use it only with GPUs.
    """
    resources = StoredSpec(checked.spec).resources
    stored = store.facts.get(FACT)
    if stored is None:  # no scheduler has run yet
        return checked
    pools = WorkerPools.from_json(json.loads(stored))
    pools.require(project, resources)
    if pools.gpus or resources.pool is None:
        return checked
    remark = "resources.pool: ignored, this service has no pools of workers"
    return checked.model_copy(update={"remarks": [*checked.remarks, remark]})


def extended(spec: Mapping[str, Any], extension: Extension) -> dict[str, Any]:
    """The document of a study with a larger budget.

    Args:
        spec: The study as it is stored.
        extension: The new numbers.

    Raises:
        InvalidSpec: A number is smaller than the present one.
    """
    budget = dict(spec["budget"])
    for name, value in extension.model_dump(exclude_none=True).items():
        now = int(budget.get(name, 0))
        if value < now:
            raise InvalidSpec(name, f"must be at least {now}, what the study has now, got {name}={value}")
        budget[name] = value
    return {**spec, "budget": budget}


def request_hash(body: Mapping[str, Any]) -> str:
    """SHA-256 of a body, independent of the order of its keys: the request that an idempotency key stands for."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
