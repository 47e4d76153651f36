"""Drivers as Ray Jobs on a running cluster: `launcher`, over Ray's `dashboard`, with the code as a `package`."""

from service.launchers.ray_jobs.launcher import Config, build

__all__ = ["Config", "build"]
