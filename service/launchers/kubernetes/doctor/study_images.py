"""What studies may bring for their programs: whether patterns of images and Secrets allow more than they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.errors import Forbidden, NotFound
from service.launchers.kubernetes.config import Config
from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding
from service.name_patterns import matches

_IMAGES, _SECRETS = "images of studies", "secrets of programs"


def check_brought(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether the patterns are narrow, and the Secrets to pull images exist; no finding without patterns."""
    if release.settings is None:
        return
    settings = release.settings
    wide = [pattern for pattern in settings.images if not _is_narrow(pattern)]
    for pattern in wide:
        text = f"{pattern} also allows images of other registries or owners"
        yield Finding(_IMAGES, "problem", text, "end what stands before the * with / or : as in ghcr.io/team/*")
    if settings.images and not wide:
        yield Finding(_IMAGES, "ok", f"studies may bring {', '.join(settings.images)}")
    if settings.images:
        yield from _pull_secrets(cluster, release, settings)
    if reached := [name for name in _kept(settings) if matches(name, settings.secrets)]:
        text = f"{', '.join(settings.secrets)} also allows {', '.join(reached)}, which programs must not see"
        yield Finding(_SECRETS, "problem", text, "allow the names of the Secrets that are for programs")
    elif settings.secrets:
        yield Finding(_SECRETS, "ok", f"programs may have {', '.join(settings.secrets)}")


def _is_narrow(pattern: str) -> bool:
    """Whether a pattern names a registry and an owner before its first *."""
    before, star, _ = pattern.partition("*")
    return not star or ("/" in before and before.endswith(("/", ":", "@")))


def _kept(settings: Config) -> list[str]:
    """Secrets of the studies' namespaces that are for registries and for Ray's pods."""
    named = [str(source["secretRef"]["name"]) for source in settings.env_from if "secretRef" in source]
    return list(dict.fromkeys([*settings.image_pull_secrets, *settings.images_pull_secrets, *named]))


def _pull_secrets(cluster: ClusterAccess, release: ChartRelease, settings: Config) -> Iterator[Finding]:
    namespaces = dict.fromkeys(namespace for namespace, *_ in release.variants(cluster))
    for namespace in namespaces:
        for name in settings.images_pull_secrets:
            try:
                cluster.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
            except NotFound:
                text = f"there is no Secret {name} in {namespace}, to pull images of studies"
                yield Finding(_IMAGES, "problem", text, "create it there, of type kubernetes.io/dockerconfigjson")
            except Forbidden as error:
                yield Finding(_IMAGES, "unknown", error.message, "run this with an account that may see it")
