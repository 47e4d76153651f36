"""The sampler key of a study, in its canonical form."""

from pathlib import Path

import pytest

from driftline.study import sampler as samplers
from driftline.study.spec import Study
from service.samplers.build import NAMES

from .test_spec import TEXT, study


def test_the_sampler_names_are_those_of_the_samplers():
    folder = Path(__file__).parents[2] / "service" / "samplers"
    modules = {path.stem for path in folder.glob("*.py") if "\nclass Sampler" in path.read_text(encoding="utf-8")}
    assert modules - {"sampler"} == set(samplers.NAMES) == set(NAMES)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("tpe", "tpe"),
        ("{name: tpe}", "tpe"),
        ("{name: tpe, startup: null}", "tpe"),
        ("{name: tpe, startup: '20'}", {"name": "tpe", "startup": 20}),
        ("{name: nsga2, population_size: 24.0}", {"name": "nsga2", "population_size": 24}),
        ("{cap: 100, name: gp}", {"name": "gp", "cap": 100}),
    ],
)
def test_a_sampler_is_a_name_or_a_name_with_settings(written, canonical):
    one = study(f"{TEXT}sampler: {written}\n")
    assert one.to_json()["sampler"] == canonical
    assert Study.from_json(one.to_json()) == one
    assert (one.fingerprint() == study().fingerprint()) == (canonical == "tpe")
