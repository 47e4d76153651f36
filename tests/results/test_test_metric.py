"""The test metric of what a validation metric recommends, against its definition, in all that shows it."""

import re

import numpy as np
import pytest

from driftline.results.document import frontier_document
from driftline.results.show.page import frontier_html
from driftline.results.show.text_table import table
from driftline.sdk.frontier import Frontier

from .samples import Chosen, curve


@pytest.mark.parametrize(
    ("quality", "beside"),
    [("validation_accuracy", "test_accuracy"), ("validation_client_accuracy_worst", "client_accuracy_worst")],
)
def test_a_validation_metric_chooses_and_the_test_metric_of_what_is_chosen_stands_beside_it(quality, beside):
    rounds = np.arange(4)
    trials = []
    for number, (validation, test) in enumerate([((0.1, 0.5, 0.7, 0.8), 0.6), ((0.1, 0.4, 0.9, 0.7), 0.5)]):
        for seed in range(3):
            values = np.array(validation) + 0.001 * seed
            kwargs = {beside: np.array([0.1, *(test + 0.01 * rounds[1:] + 0.02 * seed)])}
            trials.append(
                curve(
                    values,
                    metric=quality,
                    phase="confirmation" if seed else "search",
                    number=10 * number + seed,
                    configuration=number,
                    seed=seed,
                    **kwargs,
                )
            )
    reading = Chosen(quality=quality)
    result = frontier_document("s", trials, reading, 3)
    rows = result["methods"]["fedavg"]["recommendations"]
    assert [(row["configuration"], row["round"]) for row in rows] == [(0, 1), (1, 2)]
    seeds = np.array([1, 2])
    assert rows[0]["test"] == pytest.approx(np.mean(0.61 + 0.02 * seeds))
    assert rows[1]["test"] == pytest.approx(np.mean(0.52 + 0.02 * seeds))
    text = table(result)
    assert re.search(rf"up to  stop at round  {quality} +{beside} +run", text)
    assert "0.55" in text
    assert Frontier(result).best().test == pytest.approx(0.55)
    assert f"{beside} of the recommended run" in result["definitions"]["test"]
    assert f">{beside}</th>" in frontier_html(result)
    plain = frontier_document("s", trials, Chosen(), 3)["methods"]["fedavg"]["recommendations"]
    assert not any("test" in row for row in plain)
