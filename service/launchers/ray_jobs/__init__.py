"""Drivers as Ray Jobs on an existing cluster: `launcher` talks to Ray's `dashboard`, `package` holds the code."""

from service.launchers.ray_jobs.launcher import Config, build

__all__ = ["Config", "build"]
