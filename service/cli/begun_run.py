"""Reads the study of `driftline run`, and starts Ray before importing the modules that the run needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from driftline.client.environment import environment
from driftline.study.all_errors import read_study
from driftline.study.spec import Study
from driftline.study.yaml_files import dumped
from service.driver.ray.early_ray import EarlyRay
from service.settings import ray_address as ray_cluster


@dataclass(frozen=True)
class BegunRun:
    """A study that is about to run.

    Attributes:
        study: The study, not yet checked in full.
        source: Text of its file.
        folder: The output folder.
        ray_address: A Ray cluster to use, or None.
        cores: CPU cores of a local Ray; None uses all that this process may use.
        early_ray: A Ray that is being started here; None if the study uses a cluster, if the folder holds a study
            (which may be finished, or another one), or if this process goes on after the run.
    """

    study: Study
    source: str
    folder: Path
    ray_address: str | None
    cores: int | None
    early_ray: EarlyRay | None


def begin(
    file: Path,
    out: Path | None,
    ray_address: str | None,
    *,
    cores: int | None = None,
    seed: int | None = None,
    early: bool,
) -> BegunRun:
    """Reads a study, and may start Ray if the study will need one here.

    Args:
        file: The study's file.
        out: The output folder; by default one of the study's name.
        ray_address: A Ray cluster to use.
        cores: CPU cores of a local Ray.
        seed: Takes the place of the study's seed.
        early: Whether to start Ray at once; only if the process ends with this run, even if the study is not valid.

    Raises:
        InvalidSpec: The study is not valid.
    """
    study, source = read_study(file), file.read_text(encoding="utf-8")
    if seed is not None:
        study = Study.from_json({**study.to_json(), "seed": seed})
        source = dumped(study.to_json())
    folder, address = out or environment().out / study.name, ray_address or ray_cluster()
    needed = address is None and not os.path.isfile(folder / "driftline.db")
    return BegunRun(study, source, folder, address, cores, EarlyRay(cores) if early and needed else None)
