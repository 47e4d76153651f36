"""Warnings of MLflow's own, which fail no test."""

import pytest

__all__ = ["IGNORED"]

IGNORED = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # MLflow leaves its database connections to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
