"""A short training, step by step."""

import dataclasses

import pytest

from reverie.demo.learning import Settings
from reverie.demo.messages import Evaluation, Outcome, Progress
from reverie.demo.training import train

SHORT = Settings(warm_up_items=200, checks=4, check_episodes=2, final_episodes=3, items_max=500)


@pytest.fixture(scope="module")
def short_run():
    messages = []
    outcome = train(5, 1_000, messages.append, SHORT)
    return messages, outcome


def test_it_is_checked_as_often_as_asked_and_before_the_first_step(short_run):
    messages, _ = short_run
    checks = [message for message in messages if isinstance(message, Evaluation)]
    assert [check.step for check in checks] == [0, 250, 500, 750, 1_000]
    assert all(8 <= check.greedy_return <= 500 for check in checks)


def test_the_latest_of_the_best_is_kept(short_run):
    messages, outcome = short_run
    checks = [message for message in messages if isinstance(message, Evaluation)]
    best = max(check.greedy_return for check in checks)
    assert outcome.kept_step == max(c.step for c in checks if c.greedy_return == best)


def test_progress_tells_what_the_store_counts(short_run):
    messages, outcome = short_run
    progress = [message for message in messages if isinstance(message, Progress)]
    assert [message.step for message in progress] == [250, 500, 750, 1_000]
    assert [message.epsilon for message in progress] == pytest.approx([0.52, 0.04, 0.04, 0.04])
    for message in progress:
        samples = 64 * (message.step - 203)
        # A window is inserted with its last step, so up to three are still to come.
        inserts = samples / message.samples_per_insert
        assert message.step - 3 <= round(inserts) <= message.step
        assert message.age_s > 0
        assert message.loss > 0
    assert progress[-1].samples_per_insert == outcome.samples_per_insert


def test_a_seed_repeats_its_run_and_another_one_does_not(short_run):
    _, outcome = short_run
    again = train(5, 1_000, lambda _: None, SHORT)
    other = train(6, 1_000, lambda _: None, SHORT)

    def without_time(one: Outcome):
        return dataclasses.replace(one, seconds=0.0)

    assert without_time(again) == without_time(outcome)
    assert without_time(other).greedy_return_mean != outcome.greedy_return_mean
