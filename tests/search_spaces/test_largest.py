"""The largest client_lr that does not diverge, against what is known in closed form."""

import json

import pytest

from search_spaces.largest import CANDIDATES, Tried, largest_client_lr, main, server_lrs
from trainers.errors import SpecError

TRIAL = {
    "task": {"name": "quadratic", "hessians": [[[1.0, 0.0], [0.0, 10.0]]], "centers": [[1.0, 1.0]]},
    "method": {"name": "fedavg", "client_lr": 7.0, "server_lr": 7.0, "local_steps": 30},
    "rounds": 200,
}


def test_the_grids_are_the_papers():
    assert CANDIDATES == (100.0, 10.0, 1.0, 0.1, 0.01)
    assert len(server_lrs()) == 9
    assert (server_lrs()[0], server_lrs()[-1]) == (0.001, 10.0)


def test_on_a_quadratic_it_is_below_two_over_smoothness():
    """client_lr above 2 / 10 grows by |1 - 10 client_lr|^30 within a round: no server_lr of the grid tames that."""
    tried = largest_client_lr(TRIAL)
    assert [one.client_lr for one in tried] == [100.0, 10.0, 1.0, 0.1]
    assert [one.diverged for one in tried[:-1]] == [9, 9, 9]
    assert all(one.server_lr is None for one in tried[:-1])
    found = tried[-1]
    assert found.train_loss == pytest.approx(0, abs=1e-6)
    assert found.server_lr in server_lrs()


def test_a_rate_that_some_server_lr_tames_counts():
    """One step of client_lr 1 moves nothing: only server_lr decides, and 1 diverges where 0.1 does not."""
    trial = {**TRIAL, "method": {"name": "fedavg", "local_steps": 1}}
    assert largest_client_lr(trial, [1.0], [1.0, 0.1]) == [
        Tried(1.0, 1, 0.1, pytest.approx(largest_client_lr(trial, [1.0], [0.1])[0].train_loss))
    ]


def test_tied_rates_stay_tied():
    trial = {**TRIAL, "method": {"name": "fedavg", "local_steps": 2, "tied": True}}
    tried = largest_client_lr(trial, [1.0, 0.1])
    assert [(one.client_lr, one.server_lr, one.diverged) for one in tried] == [(1.0, None, 1), (0.1, None, 0)]


@pytest.mark.parametrize("name", ["local_sgd", "mass", "lookahead"])
def test_methods_that_are_tied_by_nature_need_no_server_lr(name):
    trial = {**TRIAL, "method": {"name": name, "local_steps": 2}, "rounds": 100}
    tried = largest_client_lr(trial, [1.0, 0.1])
    assert tried[0] == Tried(1.0, tried[0].diverged)
    assert tried[-1].client_lr == 0.1
    assert tried[-1].train_loss is not None


def test_bad_input():
    with pytest.raises(SpecError, match="members must be left out"):
        largest_client_lr({**TRIAL, "members": [{}]})
    with pytest.raises(SpecError, match="must name a method with a client_lr, got fedsgd"):
        largest_client_lr({**TRIAL, "method": {"name": "fedsgd"}}, [0.1], [0.1])
    with pytest.raises(SpecError, match="did you mean fedavg"):
        largest_client_lr({**TRIAL, "method": {"name": "fedavgs"}}, [0.1], [0.1])


def test_the_command(tmp_path, capsys):
    file = tmp_path / "trial.json"
    file.write_text(json.dumps(TRIAL))
    assert main([str(file), "--client-lrs", "1,0.1", "--server-lrs", "0.01"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["client_lr"] for line in lines] == [1.0, 0.1]
    assert main([str(file), "--client-lrs", "1", "--server-lrs", "0.01"]) == 1
    assert main([str(tmp_path / "no.json")]) == 2
    assert main([str(file), "--client-lrs", "1;2"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        'error: --client-lrs must be numbers separated by commas, got "1;2"'
    )


def test_the_edge_of_the_grid_is_said(tmp_path, capsys):
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(TRIAL))
    assert main([str(path), "--client-lrs", "0.1,0.01", "--server-lrs", "0.1"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["client_lr"] for line in out.splitlines()] == [0.1]
    assert "note: 0.1 is the largest client_lr that was tried" in err
    assert main([str(path), "--client-lrs", "10,0.1", "--server-lrs", "0.1"]) == 0
    assert capsys.readouterr().err == ""
