"""Items made by patterns from a list of steps."""

import numpy as np
import pytest

import reverie
from reverie import structured
from reverie.pattern_dataset import pattern_dataset_with_info

STEPS = [{"a": np.int64(i), "end": np.bool_(i % 4 == 3)} for i in range(8)]


def config(rows, conditions=(), table="t"):
    step = structured.create_reference_step(STEPS[0])
    return structured.create_config({"x": rows(step["a"])}, table, conditions)


def items(configs, respects=True, steps=STEPS):
    dataset = reverie.PatternDataset(steps, configs, respects, lambda step: step["end"])
    return [np.asarray(item["x"]).tolist() for item in dataset]


def test_items_stay_within_episodes_or_span_them():
    pairs = [config(lambda a: a[-2:])]
    assert items(pairs) == [[0, 1], [1, 2], [2, 3], [4, 5], [5, 6], [6, 7]]
    assert items(pairs, respects=False) == [[i, i + 1] for i in range(7)]


def test_conditions_and_the_order_of_patterns_are_respected():
    configs = [
        config(lambda a: a[-1], [structured.Condition.is_end_episode()]),
        config(lambda a: a[-2], [structured.Condition.step_index() == 2]),
        config(lambda a: a[-1], [structured.Condition.step_index() == 2]),
    ]
    assert items(configs) == [1, 2, 3, 5, 6, 7]


def test_a_dataset_can_be_iterated_again_and_left_early():
    dataset = reverie.PatternDataset(
        STEPS, [config(lambda a: a[-1])], True, lambda step: step["end"]
    )
    assert next(iter(dataset))["x"] == 0
    assert [int(item["x"]) for item in dataset] == list(range(8))
    assert [int(item["x"]) for item in dataset] == list(range(8))


def test_items_can_be_returned_as_samples():
    samples = list(
        pattern_dataset_with_info(
            STEPS, [config(lambda a: a[-3::2])], True, lambda step: step["end"]
        )
    )
    assert [sample.data["x"].tolist() for sample in samples] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert all(sample.info == reverie.SampleInfo.zeros() for sample in samples)


def test_configurations_that_make_no_items_are_refused():
    end = lambda step: step["end"]  # noqa: E731
    for configs, message in [
        ([], "no configurations"),
        ([config(lambda a: a[:])], "position 0"),
        ([config(lambda a: a[-1]), config(lambda a: a[-1], table="u")], r"tables \['t', 'u'\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            reverie.PatternDataset(STEPS, configs, True, end)
    for bad in (lambda step: step["a"], lambda _: np.array([True]), lambda _: None):
        dataset = reverie.PatternDataset(STEPS, [config(lambda a: a[-1])], True, bad)
        with pytest.raises(ValueError, match="single bool"):
            list(dataset)
