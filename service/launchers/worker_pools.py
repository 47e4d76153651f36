"""The pools of workers of a launcher, among which studies choose with `resources.pool`, and the room in each.

The scheduler stores them in the database, where the API reads them.
"""

from __future__ import annotations

from pydantic import Field

from driftline.errors import InvalidSpec
from driftline.study.spec import Resources
from driftline.study.validation import Section

FACT = "worker_rooms"
"""The key of the pools among the facts of a store."""


class Room(Section):
    """The most that a pack can ever get; None where this is unknown.

    Attributes:
        cpus: CPU cores of a worker.
        gpus: GPUs of a worker.
        nodes: Workers of a study, each on a node of its own.
        worker: What messages call a worker.
    """

    cpus: float | None = None
    gpus: float | None = None
    nodes: int | None = None
    worker: str = "a worker"

    def require(self, cpus: float, gpus: float | None, nodes: int) -> None:
        """Refuses a pack that can never run.

        Args:
            cpus: CPU cores that it needs on each of its nodes.
            gpus: GPUs that it needs there; None uses one if there is one.
            nodes: How many nodes it needs.

        Raises:
            InvalidSpec: The pack needs more than there is.
        """
        has = f"what {self.worker} has"
        for key, amount, most, what in (
            ("cpus", cpus, self.cpus, has),
            ("gpu", gpus or 0, self.gpus, has),
            ("nodes", nodes, self.nodes, "the most workers of a study here"),
        ):
            if most is not None and amount > most:
                raise InvalidSpec(f"resources.{key}", f"must be at most {most:g}, {what}, got {amount:g}")


class WorkerPools(Section):
    """The pools of a launcher, and which projects may use them.

    Attributes:
        gpus: Name of each pool -> GPUs of a worker in it, in order of preference; empty without pools.
        projects: Project -> the pools that its studies may use, in order of preference; other projects use all.
        rooms: Name of a pool -> its room; "" without pools. What is missing is unknown.
    """

    gpus: dict[str, int] = Field(default_factory=dict)
    projects: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rooms: dict[str, Room] = Field(default_factory=dict)

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

    def require(self, project: str, resources: Resources) -> None:
        """Refuses a study that can never run here.

        Args:
            project: The study's project.
            resources: What each of its packs needs.

        Raises:
            InvalidSpec: The study may not use the pool that it names, or a pack does not fit.
        """
        gpus = None if resources.gpu == "auto" else float(resources.gpu)
        pool = self.choose(project, resources.pool, gpus) if self.gpus else ""
        self.rooms.get(pool, Room()).require(resources.cpus, gpus, resources.nodes)
