"""Five minutes of the soak; ``make soak`` runs an hour of it."""

import pytest
from soak import run


@pytest.mark.full(minutes=5)
@pytest.mark.timeout(600)
def test_five_minutes_of_kills_freezes_and_slow_readers():
    assert run(minutes=5, seed=7) == []
