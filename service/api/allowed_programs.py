"""Which programs of its users a service runs: none, unless its operator allows them.

A program may do whatever its driver's workers may do. It is refused before anything of its study is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study.program import SERVED
from driftline.wire.budgets import CheckedStudy
from service.api.allowed_files import Check
from service.name_patterns import matches
from trainers import shown


@dataclass(frozen=True)
class AllowedPrograms:
    """What a service allows to the programs of studies.

    Attributes:
        enabled: Whether it runs programs at all.
        secrets: Patterns of the names of secrets that they may have.
        images: Patterns of the images in which they may run; Driftline's own needs none.
    """

    enabled: bool = False
    secrets: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    def require(self) -> None:
        """Refuses programs unless they are allowed.

        Raises:
            InvalidSpec: The service runs no programs.
        """
        if not self.enabled:
            problem = "this service runs no programs (studies.programs in its chart, DRIFTLINE_PROGRAMS otherwise)"
            raise InvalidSpec("program", f"{problem}: run the study on your own computer, with `driftline run`")

    def before(self, check: Check) -> Check:
        """Returns a check of studies that first refuses programs that are not allowed.

        Args:
            check: Called afterwards, with the program's folder set to `SERVED`.
        """

        def checked(body: Mapping[str, Any]) -> CheckedStudy:
            program = body.get("program")
            if program is None:
                return check(body)
            self.require()
            if isinstance(program, Mapping):
                if bool(program.get("files")) != (program.get("archive") is not None):
                    problem = "must travel with the study, and have a digest: submit it with `driftline submit`"
                    raise InvalidSpec("program.files", problem)
                secrets = program.get("secrets")
                _require_allowed("secrets", secrets if isinstance(secrets, list) else [], self.secrets)
                image = program.get("image")
                _require_allowed("image", [] if image is None else [image], self.images)
                body = {**body, "program": {**program, "folder": SERVED}}
            return check(body)

        return checked


def _require_allowed(key: str, names: Sequence[Any], patterns: Sequence[str]) -> None:
    for name in names:
        if not matches(str(name), patterns):
            allowed = f"must match what this service allows: {', '.join(patterns) or 'none'}"
            raise InvalidSpec(f"program.{key}", f"{allowed}, got {shown(name)}")
