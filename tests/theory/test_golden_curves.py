"""Every number printed for the papers' mathematical figures, to its last digit."""

import numpy as np
import pytest

from trainers.theory.cusp import cusp
from trainers.theory.families import random_spectrum
from trainers.theory.figures.curves import simulated_maml
from trainers.theory.interval import Curvature
from trainers.theory.tradeoff import one_shot_suboptimality, smallest_condition_number, tradeoff_point
from trainers.theory.weights import all_steps, last_step

SIX = 5.1e-7


def check(L, client_lr, weights, kappa=None, rho=None, delta=None, server="sgd", prox=0.0):
    point = tradeoff_point(Curvature(1, L), client_lr, weights, server, prox)
    for found, printed in ((point.condition_number, kappa), (point.rate, rho), (point.suboptimality, delta)):
        if printed is not None:
            digits = len(str(printed).partition(".")[2]) if isinstance(printed, str) else 6
            assert found == pytest.approx(float(printed), abs=0.51 * 10.0**-digits)


@pytest.mark.parametrize(
    ("L", "steps", "kappa", "rho", "delta"),
    [
        (5, 1, "5", "0.666667", "0"),
        (5, 10, "4.196526", "0.615127", "0.043767"),
        (5, 50, "2.336884", "0.400638", "0.187896"),
        (5, 100, "1.568029", "0.221192", "0.282047"),
        (5, 500, "1.006614", "0.003296", "0.380558"),
        (50, 1, "50", "0.960784", "0"),
        (50, 2, "37.688442", "0.948305", "0.070550"),
        (50, 5, "19.766394", "0.903691", "0.227935"),
        (50, 10, "10.448077", "0.825298", "0.372568"),
        (50, 50, "2.531684", "0.433698", "0.632627"),
        (50, 100, "1.577368", "0.224014", "0.698347"),
        (50, 500, "1.006614", "0.003296", "0.751485"),
        (5, 10**6, "1", "0", "0.381966"),
        (50, 10**6, "1", "0", "0.752201"),
    ],
)
def test_figure_1_left(L, steps, kappa, rho, delta):
    check(L, 0.01, all_steps(steps), kappa, rho, delta)


@pytest.mark.parametrize(
    ("L", "share", "kappa", "rho", "delta"),
    [
        (5, 0.05, "1.568029", "0.221192", "0.282047"),
        (5, 0.5, "1.000027", "0.000013", "0.381960"),
        (50, 0.01, "32.013254", "0.939418", "0.111009"),
        (50, 0.1, "5.511524", "0.692852", "0.501490"),
        (50, 0.5, "1.577368", "0.224014", "0.698347"),
        (50, 0.99, "1.156542", "0.072589", "0.735978"),
        (50, 1 - 1e-12, "1.152897", "0.071019", "0.736340"),
    ],
)
def test_figure_1_right(L, share, kappa, rho, delta):
    check(L, share / L, all_steps(100), kappa, rho, delta)


@pytest.mark.parametrize(
    ("L", "steps", "kappa", "rates", "delta"),
    [
        (10, 1, "10", ("0.818182", "0.640789", "0.519494"), "0"),
        (10, 10, "2.489697", ("0.426884", "0.312755", "0.224168"), "0.334251"),
        (10, 100, "1.005956", ("0.002969", "0.002226", "0.001485"), "0.518409"),
        (100, 1, "100", ("0.980198", "0.884722", "0.818182"), "0"),
        (100, 10, "20.434160", ("0.906691", "0.746617", "0.637708"), "0.377371"),
        (100, 100, "2.536593", ("0.434484", "0.318393", "0.228594"), "0.725228"),
        (100, 1000, "1.006699", ("0.003338", "0.002503", "0.001669"), "0.817629"),
        (1000, 100, "20.499167", ("0.906973", "0.747013", "0.638179"), "0.749513"),
    ],
)
def test_figure_2(L, steps, kappa, rates, delta):
    for server, rate in zip(("sgd", "nesterov", "heavy_ball"), rates, strict=True):
        check(L, 0.5 / L, all_steps(steps), kappa, rate, delta, server)


@pytest.mark.parametrize(
    ("prox", "end", "rho", "delta", "at_ten"),
    [
        (0, "1", "0", "0.519494", "2.489697"),
        (0.5, "1.428571", "0.176471", "0.451416", "2.726736"),
        (1, "1.818182", "0.290323", "0.402130", "2.956118"),
        (5, "4", "0.6", "0.225148", "4.476785"),
    ],
)
def test_figure_3(prox, end, rho, delta, at_ten):
    client_lr = 0.5 / (10 + prox)
    check(10, client_lr, all_steps(10**6), end, rho, delta, prox=prox)
    check(10, client_lr, all_steps(10), at_ten, prox=prox)
    assert smallest_condition_number(Curvature(1, 10), prox) == pytest.approx(float(end), abs=SIX)


def test_figure_4():
    check(10, 0.001, all_steps(10), "9.604899", "0.811408", "0.010078")
    check(10, 0.001, all_steps(100), "6.658775", "0.738862", "0.101314")
    check(10, 0.001, all_steps(1000), "1.581448", "0.225241", "0.430949")
    check(10, 0.5 / 100, last_step(10), "6.593329", "0.736611", "0.103757")
    check(10, 0.5 / 1000, last_step(100), "6.397171", "0.729626", "0.111220")
    many = 10**12
    for server, rate in (("sgd", "0.728861"), ("nesterov", "0.554220"), ("heavy_ball", "0.432645")):
        check(10, 0.05 / many, last_step(many), "6.376282", rate, "0.112028", server)
    assert tradeoff_point(Curvature(1, 10), 0.05 / many, last_step(many)).condition_number == pytest.approx(
        10 * np.exp(-0.45), rel=1e-9
    )


@pytest.mark.parametrize(
    ("steps", "kappa", "rho", "delta"),
    [
        (100, "4.082263", "0.606474", "0.220311"),
        (150, "2.856323", "0.481371", "0.324892"),
        (200, "2.250251", "0.384663", "0.422087"),
        (300, "2.479623", "0.425225", "0.589223"),
        (400, "5.078626", "0.670978", "0.717620"),
        (500, "11.097062", "0.834671", "0.810665"),
        (700, "59.1448", "0.966747", "0.918829"),
        (1000, "844.04", "0.997633", "0.978465"),
    ],
)
def test_figure_5_dense_spectrum(steps, kappa, rho, delta):
    check(10, 0.001, last_step(steps), kappa, rho, delta)


def test_figure_5_random_matrix_of_a_hundred_dimensions():
    generator = np.random.default_rng(0)
    random_spectrum(Curvature(1, 10), 5, generator)
    spectrum = random_spectrum(Curvature(1, 10), 100, generator)
    curve = simulated_maml("", spectrum, 0.001, [200, 300])
    assert np.exp(curve.columns["log_kappa"]) == pytest.approx([2.24983, 2.47959], abs=5.1e-6)
    assert curve.y == pytest.approx([0.422087, 0.589223], abs=SIX)


@pytest.mark.parametrize(
    ("L", "steps", "rho", "delta"),
    [
        (2, "693.107", "0.029864", "0.171573"),
        (5, "402.152", "0.155490", "0.381966"),
        (10, "255.434", "0.301034", "0.519494"),
        (100, "45.128", "0.792004", "0.818182"),
    ],
)
def test_cusps_of_figure_7(L, steps, rho, delta):
    at = cusp(Curvature(1, L), 0.001)
    assert at.cusp_at == pytest.approx(float(steps), abs=5.1e-4)
    assert np.tanh(at.log_condition_number / 2) == pytest.approx(float(rho), abs=SIX)
    assert at.suboptimality == pytest.approx(float(delta), abs=SIX)
    assert at.suboptimality == one_shot_suboptimality(Curvature(1, L))
    assert at.leaves_at == pytest.approx(1 / (0.001 * L))
    assert at.last_phase_at == pytest.approx(1000)


def test_cusp_with_momentum_and_prox():
    at = cusp(Curvature(1, 10), 0.001)
    assert np.exp(at.log_condition_number) == pytest.approx(1.861370, abs=SIX)
    u = at.log_condition_number
    assert 1 - 2 / np.sqrt(3 * np.exp(u) + 1) == pytest.approx(0.220562, abs=SIX)
    assert np.tanh(u / 4) == pytest.approx(0.154091, abs=SIX)
    for prox, steps, rho in ((0.5, 255.306, 0.301035), (1, 255.178, 0.301035), (5, 254.155, 0.301039)):
        at = cusp(Curvature(1, 10), 0.001, prox)
        assert at.cusp_at == pytest.approx(steps, abs=5.1e-4)
        assert np.tanh(at.log_condition_number / 2) == pytest.approx(rho, abs=SIX)


def test_figure_9():
    check(10, 1e-7, last_step(10**5), "9.13932")
    check(10, 1e-7, last_step(10**6), "4.06570", "0.605188", "0.221278")
    values = [
        tradeoff_point(Curvature(1, 10), 1e-7, last_step(10**6), prox=prox).condition_number for prox in (0, 0.5, 1, 5)
    ]
    assert max(values) - min(values) < 1e-5


@pytest.mark.parametrize(
    ("steps", "kappas"),
    [
        (2, ("7.692", "7.662", "7.632", "7.353")),
        (10, ("2.490", "2.637", "2.791", "4.116")),
        (1000, ("1", "1.429", "1.818", "4")),
    ],
)
def test_effect_of_prox_at_a_fixed_client_rate(steps, kappas):
    for prox, kappa in zip((0, 0.5, 1, 5), kappas, strict=True):
        check(10, 0.05, all_steps(steps), kappa, prox=prox)
