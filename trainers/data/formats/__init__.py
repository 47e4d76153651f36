"""Formats of a user's data: each module reads one, and is found by its name.

A format is a module with the names of `trainers.data.format_contract.Format`; nothing is registered. Packages add
formats through entry points of the group driftline.formats.
"""
