"""The packed files of programs, stored once per project and digest as long as a study needs them."""

from __future__ import annotations

import sqlalchemy as sa

from driftline.errors import InvalidSpec, NotFound, QuotaExceeded
from service.store.schema import ARCHIVES, STUDY_ARCHIVES
from service.store.session import StorePart, check_exists

UNUSED_S = 3600.0
"""How long an archive is kept without a study, because its client is about to submit one."""


class Archives(StorePart):
    """The archives of all projects."""

    def put(self, project: str, digest: str, content: bytes, most_bytes: int | None) -> None:
        """Stores an archive, if the project does not have it.

        Args:
            project: The project.
            digest: Digest of the archive, which was checked.
            content: The archive.
            most_bytes: Bytes that all archives of the project may have; None sets no limit.

        Raises:
            QuotaExceeded: The archives of the project would exceed `most_bytes`.
        """
        archives, now = ARCHIVES.c, self._session.clock()
        with self._session.write() as connection:
            self._session.database.turn(connection, f"archives/{project}")
            condition = sa.and_(archives.project == project, archives.digest == digest)
            if connection.execute(sa.update(ARCHIVES).where(condition).values(used_at=now)).rowcount:
                return
            total = sa.select(sa.func.coalesce(sa.func.sum(archives.size), 0)).where(archives.project == project)
            used = int(connection.execute(total).scalar_one())
            if most_bytes is not None and used + len(content) > most_bytes:
                had = f"{used} in the programs of its studies, and this one has {len(content)}"
                raise QuotaExceeded(
                    f"project {project} may have {most_bytes} bytes of packed files, and has {had}: delete studies, "
                    "and try again an hour later",
                    limit="archive_bytes",
                    allowed=most_bytes,
                    used=used,
                )
            row = {"project": project, "digest": digest, "size": len(content), "used_at": now, "content": content}
            connection.execute(sa.insert(ARCHIVES), row)

    def of_study(self, study_id: str) -> bytes:
        """The archive of a study's program.

        Raises:
            NotFound: No such study, or its program has no files.
        """
        query = sa.select(ARCHIVES.c.content).join(STUDY_ARCHIVES, _SAME).where(STUDY_ARCHIVES.c.study_id == study_id)
        with self._session.read() as connection:
            check_exists(connection, study_id)
            content = connection.execute(query).scalar()
        if content is None:
            raise NotFound(f"study {study_id} has no files of a program")
        return bytes(content)

    def remove_unused(self) -> int:
        """Removes archives that no study needs, and that nobody has sent for `UNUSED_S`; returns their number."""
        needed = sa.select(STUDY_ARCHIVES.c.study_id).where(_SAME)
        old = ARCHIVES.c.used_at < self._session.clock() - UNUSED_S
        with self._session.write() as connection:
            return connection.execute(sa.delete(ARCHIVES).where(old, ~needed.exists())).rowcount


_SAME = sa.and_(ARCHIVES.c.project == STUDY_ARCHIVES.c.project, ARCHIVES.c.digest == STUDY_ARCHIVES.c.digest)


def use(connection: sa.Connection, study_id: str, project: str, digest: str, now: float) -> None:
    """Notes that a new study needs an archive.

    Raises:
        InvalidSpec: The project does not have it.
    """
    archives = ARCHIVES.c
    update = sa.update(ARCHIVES).where(archives.project == project, archives.digest == digest)
    if not connection.execute(update.values(used_at=now)).rowcount:
        problem = f"must be sent before the study, got {digest}, which is here for none: use `driftline submit`"
        raise InvalidSpec("program.files", problem)
    connection.execute(sa.insert(STUDY_ARCHIVES).values(study_id=study_id, project=project, digest=digest))
