"""The client's settings in the environment."""

from pathlib import Path

import pytest

from driftline.client.environment import Environment, read
from driftline.errors import InvalidSpec


def test_settings_defaults_and_values():
    assert read({}) == Environment(None, None, Path("out"))
    assert read({"DRIFTLINE_URL": "", "DRIFTLINE_OUT": ""}) == Environment()
    given = {"DRIFTLINE_URL": "https://tuner/", "DRIFTLINE_TOKEN": "t", "DRIFTLINE_OUT": "runs"}
    assert read(given) == Environment("https://tuner", "t", Path("runs"))
    with pytest.raises(InvalidSpec, match=r"^DRIFTLINE_URL: must start with http:// or https://, got 'tuner:8080'$"):
        read({"DRIFTLINE_URL": "tuner:8080"})
