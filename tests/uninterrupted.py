"""Curves of trials that one process trains in one go: what they must be in a study too, whatever befalls it."""

from typing import Any

from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.ray.worker import columns
from service.driver.search.study_plan import sampler_seed
from service.samplers.build import build
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

__all__ = ["in_one_go", "plain"]


def plain(curve: dict[str, Any], *without: str) -> dict[str, Any]:
    """A curve without the only column in which two runs differ, and without these columns."""
    return {name: column for name, column in curve.items() if name not in ("wall_seconds", *without)}


def in_one_go(study: Study, label: str, first: int, count: int = 1) -> list[dict[str, Any]]:
    """The curves of one pack: trials of the study's quasi-random search, from the number `first` on."""
    sampler = build("quasi_random", study.entry(label).parameters(), ("quality", "speed"), sampler_seed(study.seed))
    settings = [sampler.ask(number) for number in range(first + count)][first:]
    pack = Pack.from_spec(parse(trial_document(study, label, settings, study.seed)))
    return [plain(curve) for curve in columns(pack.advance(), count)]
