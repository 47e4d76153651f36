"""Launchers start drivers, one folder each: `local` processes, `ray_jobs`, `kubernetes`. `base` has the contract.

Packages add their own through entry points of the group driftline.launchers.
"""
