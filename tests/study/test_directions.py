import pytest

from driftline.study.directions import direction, sign


@pytest.mark.parametrize(
    "metric", ["test_accuracy", "accuracy", "recall@10", "val_auc", "f1", "custom_score", "ndcg@5"]
)
def test_rising_metrics(metric: str) -> None:
    assert direction(metric) == "rises"
    assert sign(metric) == 1.0


@pytest.mark.parametrize(
    "metric", ["train_loss", "test_loss", "loss", "distance", "perplexity", "update_norm", "mapping_error"]
)
def test_falling_metrics(metric: str) -> None:
    assert direction(metric) == "falls"
    assert sign(metric) == -1.0
