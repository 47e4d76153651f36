"""The clients of the tests of gradient alignment."""

import pytest

from .alignment import Losses, logistic, quadratics


@pytest.fixture(params=[quadratics, logistic], scope="module")
def clients(request):
    return Losses(request.param())
