"""Suggestions for completion in the shell, which completes files itself.

Slow imports are inside the functions. An error, or a service that does not answer at once, means no suggestions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import typer

if TYPE_CHECKING:
    from driftline.wire.records import StudyRecord

TIMEOUT_S = 1.0


def method_names(incomplete: str) -> list[str]:
    """Methods, optimizers, schedules and presets."""
    from search_spaces.presets import trainings
    from trainers.registry import methods, optimizers, schedules

    return _starting(incomplete, sorted({*methods(), *optimizers(), *schedules(), *trainings()}))


def task_names(incomplete: str) -> list[str]:
    """Tasks."""
    from trainers.registry import tasks

    return _starting(incomplete, tasks())


def papers(incomplete: str) -> list[str]:
    """The presets of `driftline papers`."""
    from driftline.study.examples import paper_texts

    return _starting(incomplete, paper_texts())


def example_names(incomplete: str) -> list[str]:
    """The examples of `driftline init`."""
    from driftline.study.examples import examples

    return _starting(incomplete, examples())


def costs(incomplete: str) -> list[str]:
    """The values of --cost."""
    from trainers import COSTS

    return _starting(incomplete, COSTS)


def states(incomplete: str) -> list[str]:
    """The states of a study."""
    from driftline.wire.records import StudyState

    return _starting(incomplete, [state.lower() for state in get_args(StudyState)])


def studies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the studies on the service that is set, and the ids that begin like what was typed."""
    records = _records(ctx)
    ids = [record.id for record in records] if incomplete else []
    return _starting(incomplete, dict.fromkeys([*(record.name for record in records), *ids]))


def labels(ctx: typer.Context, incomplete: str) -> list[str]:
    """Labels of the study that the command line names before them."""
    study = str(ctx.params.get("study") or ctx.params.get("folder") or "")
    with contextlib.suppress(Exception):
        if (file := Path(study, "study.yaml")).is_file():
            from driftline.study.spec import Study

            return _starting(incomplete, Study.from_yaml(file).labels)
        for record in _records(ctx):
            if study in (record.id, record.name):
                return _starting(incomplete, record.progress)
    return []


def _records(ctx: typer.Context) -> list[StudyRecord]:
    with contextlib.suppress(Exception):
        from driftline.client.api_client import ApiClient
        from service.cli.jobs import address

        url, token = address(ctx.params.get("url"), ctx.params.get("token_file"))
        with ApiClient(url, token, timeout_s=TIMEOUT_S, patience_s=0.0) as api:
            return api.studies()
    return []


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
