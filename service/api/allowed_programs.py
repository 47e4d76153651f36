"""Which programs of people's own a service runs: none, unless its operator allows them.

A program may do whatever its driver's workers may do. It is refused before anything of its study is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study.program import SERVED
from driftline.wire.budgets import CheckedStudy
from service.api.allowed_files import Check


@dataclass(frozen=True)
class AllowedPrograms:
    """What a service allows to the programs of studies.

    Attributes:
        enabled: Whether it runs programs at all.
    """

    enabled: bool = False

    def before(self, check: Check) -> Check:
        """Returns a check of studies that first looks at their programs.

        Args:
            check: Called afterwards, with a program that starts in a folder of its trial.
        """

        def checked(body: Mapping[str, Any]) -> CheckedStudy:
            program = body.get("program")
            if program is None:
                return check(body)
            if not self.enabled:
                problem = "this service runs no programs (studies.programs in its chart, DRIFTLINE_PROGRAMS otherwise)"
                raise InvalidSpec("program", f"{problem}: run the study on your own computer, with `driftline run`")
            if isinstance(program, Mapping):
                if program.get("files"):
                    raise InvalidSpec("program.files", "must be left out: files do not travel to a service")
                body = {**body, "program": {**program, "folder": SERVED}}
            return check(body)

        return checked
