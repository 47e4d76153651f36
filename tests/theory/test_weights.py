import pytest

from trainers.errors import SpecError
from trainers.theory.weights import all_steps, as_weights, last_step, listed


def test_texts_and_lists_mean_the_same_weights():
    assert as_weights("1:10") == all_steps(10)
    assert as_weights("10") == last_step(10)
    assert as_weights("1:1e6") == all_steps(10**6)
    assert as_weights(" 1, 1,1") == all_steps(3)
    assert as_weights("0,0,1") == last_step(3)
    assert as_weights([0.5, 2]).values == (0.5, 2.0)
    assert as_weights("1") == all_steps(1) == last_step(1)
    assert as_weights(all_steps(4)) is not None


def test_equal_weights_keep_their_common_factor():
    doubled = listed([2, 2, 2])
    assert (doubled.pattern, doubled.scale, doubled.total) == ("all", 2.0, 6.0)
    assert listed([0, 3]).total == 3.0
    assert listed([1, 0, 2]).total == 3.0


def test_zeros_at_the_end_are_dropped():
    assert listed([1, 2, 0, 0]).local_steps == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("2:10", "write 1:10"),
        ("0", "local_steps must be at least 1"),
        ("1:0", "local_steps must be at least 1"),
        ("1.5", "whole number"),
        ("", "whole number"),
        ("1,-1", "must not be negative"),
        ("0,0", "must have one above 0"),
        ("1,x", "must be a number"),
        ([float("nan")], "must be finite"),
        ([], "must have one above 0"),
    ],
)
def test_wrong_weights_say_what_must_hold(value, words):
    with pytest.raises(SpecError, match=words):
        as_weights(value)
