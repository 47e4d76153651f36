import json
import subprocess
import sys

import pytest

from trainers.theory.__main__ import main

POINT = ["point", "--mu", "1", "--L", "10", "--prox", "0", "--client-lr", ".05", "--weights", "1:10", "--server", "sgd"]


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("weights", "client_lr", "server", "kappa", "rho", "delta"),
    [
        ("1:10", ".05", "sgd", 2.489697, 0.426884, 0.334251),
        ("10", "0.005", "heavy_ball", 6.593329, 0.439422, 0.103757),
        ("1,1", "0.05", "nesterov", 7.692308, 0.592404, 0.065497),
        ("1", "0.3", "sgd", 10.0, 0.818182, 0.0),
        ("1:1000000", "1e-300", "sgd", 10.0, 0.818182, 0.0),
    ],
)
def test_point_prints_the_three_numbers(capsys, weights, client_lr, server, kappa, rho, delta):
    arguments = ["point", "--mu", "1", "--L", "10", "--client-lr", client_lr, "--weights", weights, "--server", server]
    code, out, err = run(capsys, *arguments)
    values = json.loads(out)
    assert (code, err, values["warnings"]) == (0, "", [])
    assert (values["kappa"], values["rho"], values["delta"]) == pytest.approx((kappa, rho, delta), abs=6e-7)


def test_point_beyond_the_range_warns_and_is_valid_json(capsys):
    code, out, err = run(capsys, "point", "--mu", "1", "--L", "10", "--client-lr", "0.25", "--weights", "1:4")
    values = json.loads(out)
    assert code == 0
    assert (values["kappa"], values["rho"], values["delta"]) == (None, 1.0, None)
    assert err.count("warning:") == len(values["warnings"]) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--mu": "20"}, "L must be finite and at least mu=20"),
        ({"--weights": "0:3"}, "write 1:3"),
        ({"--server": "nestrov"}, "did you mean nesterov"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(capsys, changes, words):
    arguments = [changes.get(before, value) for before, value in zip(["", *POINT], POINT, strict=False)]
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_counterexamples_from_the_command_line(capsys):
    code, out, _ = run(capsys, "counterexample", "lemma5")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("  {")]
    assert [row["violates_lemma5"] for row in rows] == [False, True, True, True]
    code, out, _ = run(capsys, "counterexample", "all")
    assert [line.split(":")[0] for line in out.splitlines() if not line.startswith(" ")] == [
        "lemma5", "corollary22", "prox", "momentum",
    ]  # fmt: skip
    assert run(capsys, "counterexample", "lemma6")[0] == 2


def test_cusp_from_the_command_line(capsys):
    code, out, _ = run(capsys, "cusp", "--mu", "1", "--L", "10", "--client-lr", "0.001")
    values = json.loads(out)
    assert code == 0
    assert values["cusp_at"] == pytest.approx(255.4339, abs=5e-5)
    assert values["kappa"] == pytest.approx(1.861370, abs=5e-7)
    assert run(capsys, "cusp", "--mu", "1", "--L", "10", "--client-lr", "0.1")[0] == 2
    assert run(capsys, "cusp", "--mu", "10", "--L", "10", "--client-lr", "0.01")[0] == 2


def test_the_module_runs_and_starts_fast():
    """It leaves out what takes long to import."""
    command = [sys.executable, "-X", "importtime", "-m", "trainers.theory", *POINT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) >= {"kappa", "rho", "delta"}
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "trainers.theory.tradeoff" in imported
    assert not {"matplotlib", "torch", "scipy"} & imported
