"""Drivers as processes on this machine: `launcher` starts and stops them, `driver_processes` finds all they started."""

from service.launchers.local.launcher import Config, build

__all__ = ["Config", "build"]
