"""Which artifacts MLflow's server opens: those of its own folders, never through a link to another place."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any


def only_under(roots: Collection[Path], schemes: Collection[str] = ()) -> None:
    """Makes this process open local artifacts under the folders `roots` only, and remote ones of `schemes` only."""
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    allowed = [root.parent.resolve() / root.name for root in roots]  # a folder that is itself a link holds nothing

    def inside(path: str | Path) -> bool:
        real = Path(path).resolve()
        return any(real.is_relative_to(root) for root in allowed)

    class OwnArtifacts(LocalArtifactRepository):
        """A local folder of artifacts; every file is checked, because a link may lead anywhere."""

        @property
        def artifact_dir(self) -> str:
            if not inside(self._artifact_dir):
                raise MlflowException.invalid_parameter_value("artifacts must lie in a folder of this server")
            return str(self._artifact_dir)

        def get_local_path(self, artifact_path: str) -> str:
            path = str(super().get_local_path(artifact_path))
            if not inside(path):
                raise MlflowException.invalid_parameter_value("artifacts must not be links to other places")
            return path

        def list_artifacts(self, path: str | None = None) -> list[Any]:
            if not inside(Path(self.artifact_dir) / (path or "")):
                return []
            listed = super().list_artifacts(path)  # type: ignore[no-untyped-call]
            return [artifact for artifact in listed if inside(Path(self.artifact_dir) / artifact.path)]

    repositories: dict[str, Any] = get_registered_artifact_repositories()
    for scheme in set(repositories) - set(schemes):
        del repositories[scheme]
    repositories.update({"": OwnArtifacts, "file": OwnArtifacts})
