"""What a database that was restored from a backup brings back."""

from __future__ import annotations

from collections.abc import Iterator

from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding


def check_backups(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """A reminder for those who restore: the cluster does not show where a database comes from."""
    if release.of_kind("Deployment"):
        yield Finding(
            "restored backup",
            "unknown",
            "if the database was restored from a backup, tokens that were revoked after the backup are valid again",
            "find them with driftline token list, and end them with driftline token revoke ID",
        )
