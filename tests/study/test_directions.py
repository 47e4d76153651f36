import pytest

from driftline.study.directions import direction, sign

RISING = ["test_accuracy", "accuracy", "recall@10", "val_auc", "f1", "custom_score", "ndcg@5"]
FALLING = ["train_loss", "test_loss", "loss", "distance", "perplexity", "update_norm", "mapping_error"]


@pytest.mark.parametrize("metric", RISING + FALLING)
def test_a_name_says_where_a_metric_goes_as_models_get_better(metric: str) -> None:
    assert (direction(metric), sign(metric)) == (("rises", 1.0) if metric in RISING else ("falls", -1.0))
