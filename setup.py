"""Puts the example studies into the wheel, for `driftline init`; everything else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithExamples(build_py):
    """Copies the studies in examples to driftline/examples. An editable install reads them where they are."""

    def run(self) -> None:
        """Builds the packages, then copies the studies."""
        super().run()
        if not self.editable_mode:
            for folder in ("examples", "examples/papers"):
                target = Path(self.build_lib, "driftline", folder)
                target.mkdir(parents=True, exist_ok=True)
                for file in sorted((ROOT / folder).glob("*.yaml")):
                    shutil.copy(file, target)


setup(cmdclass={"build_py": BuildWithExamples})
