"""Drivers as processes on this machine: `launcher` starts and stops them, `driver_processes` finds their processes."""

from service.launchers.local.launcher import ON_THIS_MACHINE, Config, build

__all__ = ["ON_THIS_MACHINE", "Config", "build"]
