"""Pools of workers, among which studies choose with `resources.pool`.

The scheduler stores its launcher's pools in the database, where the API finds them.
"""

from __future__ import annotations

from pydantic import Field

from driftline.errors import InvalidSpec
from driftline.study.validation import Section

FACT = "worker_pools"
"""The key of the pools among the facts of a store."""


class WorkerPools(Section):
    """The pools of a launcher, and which projects may use them.

    Attributes:
        gpus: Name of each pool -> GPUs of a worker in it, in order of preference; empty without pools.
        projects: Project -> the pools that its studies may use, in order of preference; other projects use all.
    """

    gpus: dict[str, int] = Field(default_factory=dict)
    projects: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def of(self, project: str) -> tuple[str, ...]:
        """The pools that a project's studies may use, in order of preference."""
        return self.projects.get(project, tuple(self.gpus))

    def choose(self, project: str, pool: str | None, gpus: float | None) -> str:
        """The pool of a study; there must be one.

        A study that names none gets its project's first pool. A study that needs no GPU gets no pool with GPUs, unless
        all pools of its project have some.

        Args:
            project: The study's project.
            pool: The pool that the study names.
            gpus: GPUs that a pack needs; None uses one if there is one.

        Raises:
            InvalidSpec: The study may not use the pool that it names.
        """
        names = self.of(project)
        without = tuple(name for name in names if not self.gpus[name])
        if pool is not None and pool not in names:
            raise InvalidSpec("resources.pool", f"must be one of {', '.join(names)}, got {pool}")
        suitable = without if gpus == 0 and without else names
        if pool is not None and pool not in suitable:
            rule = f"must be a pool without GPUs ({', '.join(without)}) for gpu: 0"
            raise InvalidSpec("resources.pool", f"{rule}, got {pool}")
        return pool or suitable[0]
