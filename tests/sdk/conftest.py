"""The service and the study of tests/commands."""

from tests.commands.conftest import drivers, gate, service, study_file

__all__ = ["drivers", "gate", "service", "study_file"]  # fixtures
