import csv
import time

import numpy as np
import pytest

from trainers.theory.__main__ import main
from trainers.theory.figures import paper_figures
from trainers.theory.figures.curves import step_counts
from trainers.theory.figures.files import write
from trainers.theory.figures.paper_figures import FIGURES
from trainers.theory.interval import Curvature
from trainers.theory.tradeoff import frontier


def curves(name):
    return {(panel.title, curve.label): curve for panel in FIGURES[name]().panels for curve in panel.curves}


def test_every_figure_is_there():
    assert list(FIGURES) == ["A1", "A2", "A3", "A4", "A5", "A7", "A8", "A9", "A10", "B1"]


@pytest.mark.parametrize("name", ["A1", "A2", "A3", "A4", "A9"])
def test_curves_of_the_closed_forms_lie_on_the_frontier(name):
    for curve in curves(name).values():
        expected = frontier(str(curve.columns["server"]), Curvature(1.0, float(curve.columns["L"])), curve.x)
        assert curve.y == pytest.approx(expected, abs=1e-9)
        assert (np.diff(curve.y) >= -1e-12).all()
        assert (np.diff(curve.x) <= 1e-12).all()


def test_figure_1_reaches_and_stops_where_the_paper_says():
    found = curves("A1")
    left, right = "client rate 0.01, 1 to 10,000 local steps", "100 local steps, client rate 0 to 1/L"
    assert (found[left, "L = 50"].x[0], found[left, "L = 50"].y[-1]) == pytest.approx((0.960784, 0.752201), abs=1e-6)
    assert found[right, "L = 50"].x[-1] == pytest.approx(0.0710, abs=1e-4)
    assert found[right, "L = 5"].x[-1] == pytest.approx(0.0, abs=1e-6)


def test_simulated_maml_leaves_fedavg_and_ends_at_one_one():
    for (_, label), curve in curves("A5").items():
        if label == "FedAvg":
            continue
        assert (curve.x[-1], curve.y[-1]) == pytest.approx((1.0, 1.0))
        turn = int(np.argmin(curve.x))
        tolerance = 0.01
        assert curve.y[turn] == pytest.approx(0.519494, abs=tolerance)  # the cusp, at the height of one-shot averaging
        assert curve.columns["local_steps"][turn] == pytest.approx(255.434, abs=6)


def test_prox_shortens_the_curve_of_fedavg_only():
    found = curves("A10")
    strengths = ("0", "0.5", "1", "5", "10")
    ends = [found[f"prox = {prox}", "FedAvg"].x[-1] for prox in strengths]
    assert ends == pytest.approx([0.0, 0.176471, 0.290323, 0.6, 0.692308], abs=1e-6)
    heights = [found[f"prox = {prox}", "MAML, d = 100"].x.min() for prox in strengths]
    assert max(heights) - min(heights) < 2e-3


def test_continuum_settles_at_its_surrogate_optima():
    for curve in curves("B1").values():
        tail = curve.y[len(curve.y) * 6 // 10 :]
        assert tail.mean() == pytest.approx(float(curve.columns["surrogate_optimum"]), abs=0.004)


def test_step_counts_are_dense_where_asked():
    counts = step_counts(10**6, around=[255.4])
    assert counts[0] == 1
    assert counts[-1] == 10**6
    assert set(range(249, 263)) <= set(counts)


def test_files_are_written_whole_and_the_same_twice(tmp_path):
    first = write(FIGURES["A9"](), tmp_path / "one")
    second = write(FIGURES["A9"](), tmp_path / "two")
    assert [path.name for path in first] == ["A9.csv", "A9.png", "A9.svg"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert first[1].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with first[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    last = [row for row in rows if row["curve"] == "prox = 0"][-1]
    assert float(last["local_steps"]) == 1e6
    assert float(last["rate"]) == pytest.approx(0.605188, abs=1e-6)
    assert float(last["suboptimality"]) == pytest.approx(0.221278, abs=1e-6)


def test_the_command_writes_one_figure_and_all_of_them(tmp_path, capsys, monkeypatch):
    assert main(["figure", "a3", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"A3.{kind}") for kind in ("csv", "png", "svg")]
    some = {name: FIGURES[name] for name in ("A3", "A7", "A8")}  # the curves of all are tested above
    monkeypatch.setattr(paper_figures, "FIGURES", some)
    start = time.process_time()
    assert main(["figure", "all", "--out", str(tmp_path)]) == 0
    assert time.process_time() - start < 20  # about 2 s: of this process, whatever else the machine does
    assert {path.name for path in tmp_path.glob("*.[ps]*")} == {
        f"A{n}.{kind}" for n in (3, 7, 8) for kind in ("png", "svg")
    }


def test_unknown_figures(capsys):
    assert main(["figure", "A6"]) == 2
    assert "figure must be one of A1" in capsys.readouterr().err
