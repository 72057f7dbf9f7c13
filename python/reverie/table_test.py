"""Tables: their settings, their state, and what their limiters allow."""

import pytest

import reverie
from reverie import extensions, rate_limiters, selectors


def make_table(name="t", rate_limiter=None, **options):
    return reverie.Table(
        name,
        options.pop("sampler", selectors.Prioritized(0.5, seed=3)),
        options.pop("remover", selectors.Fifo()),
        options.pop("max_size", 100),
        rate_limiter or rate_limiters.MinSize(2),
        **options,
    )


def insert(client, count, table="t"):
    for value in range(count):
        client.insert({"x": value}, {table: 1.0})


def test_info_describes_a_table_before_and_after_it_is_opened():
    table = make_table(
        max_times_sampled=3, signature={"x": reverie.TensorSpec([1], "int64")}, max_bytes=10**6
    )
    before = table.info
    with reverie.Store([table]) as store:
        assert table.info == before
        assert store.client().server_info() == {"t": before}
        insert(store.client(), 3)
        store.client().sample_batch("t", 2)
        info = table.info
    assert before.name == "t"
    assert before.sampler_options == selectors.Prioritized(0.5, seed=3)
    assert before.remover_options == selectors.Fifo()
    assert (before.max_size, before.max_times_sampled, before.max_bytes) == (100, 3, 10**6)
    assert before.signature == {"x": reverie.TensorSpec([1], "int64")}
    assert before.rate_limiter_info.min_size_to_sample == 2
    assert before.current_size == 0
    assert info.current_size == 3
    assert info.num_episodes == 3
    assert info.size_bytes > 0
    assert info.rate_limiter_info.insert_stats.completed == 3
    assert info.rate_limiter_info.sample_stats.completed == 2
    assert 1 <= info.num_unique_samples <= 2


def test_replace_keeps_settings_that_are_not_given():
    table = make_table(max_times_sampled=3, signature=reverie.TensorSpec([1], "int64"))
    assert repr(table.replace()) == repr(table)
    other = table.replace(name="u", max_size=7, sampler=selectors.Lifo(), max_bytes=5000)
    assert other.info == table.info._replace(
        name="u", max_size=7, sampler_options=selectors.Lifo(), max_bytes=5000
    )


@pytest.mark.parametrize(("make", "order"), [("queue", [0, 1, 2]), ("stack", [2, 1, 0])])
def test_a_queue_and_a_stack_return_each_item_once_in_their_order(make, order):
    table = getattr(reverie.Table, make)("t", 3)
    with reverie.Store([table]) as store:
        client = store.client()
        insert(client, 3)
        assert not table.can_insert(1)
        assert [int(client.sample_batch("t", 1).data["x"][0, 0]) for _ in range(3)] == order
        assert not table.can_sample(1)
        assert table.can_insert(3)
        assert not table.can_insert(4)


def test_the_limiter_of_an_unopened_table_acts_as_for_an_empty_one():
    table = make_table(rate_limiter=rate_limiters.SampleToInsertRatio(1.5, 4, (-2.0, 6.0)))
    with reverie.Store([table.replace()]) as store:
        opened = store["t"]
        for count in range(1, 10):
            assert table.can_insert(count) == opened.can_insert(count)
            assert table.can_sample(count) == opened.can_sample(count)
            assert store.client().can_insert("t", count) == opened.can_insert(count)
            assert store.client().can_sample("t", count) == opened.can_sample(count)
    for call in (table.can_insert, table.can_sample):
        with pytest.raises(ValueError, match="is 0"):
            call(0)


def test_a_rate_limiter_allows_three_samples_for_two_inserts_within_a_margin():
    limiter = rate_limiters.RateLimiter(1.5, 1, -2.0, 3.0)
    with reverie.Store([make_table(rate_limiter=limiter)]) as store:
        table, client = store["t"], store.client()
        inserts = samples = 0
        for turn in range(60):
            if turn % 2 and table.can_insert(1):
                insert(client, 1)
                inserts += 1
            elif table.can_sample(1):
                client.sample_batch("t", 1)
                samples += 1
            difference = inserts * 1.5 - samples
            assert table.can_insert(1) == (inserts < 1 or difference + 1.5 <= 3)
            assert table.can_sample(1) == (inserts >= 1 and difference - 1 >= -2)
            assert -2 <= difference <= 3


def test_a_min_heap_remover_keeps_the_items_of_highest_priority():
    table = make_table(
        sampler=selectors.MaxHeap(),
        remover=selectors.MinHeap(),
        max_size=3,
        rate_limiter=rate_limiters.MinSize(1),
    )
    with reverie.Store([table]) as store:
        client = store.client()
        for priority in [5, 1, 9, 3, 7, 2]:
            client.insert({"x": priority}, {"t": priority})
        assert client.sample_batch("t", 1).priorities.tolist() == [9]
        client.delete("t", client.sample_batch("t", 1).keys)
        assert client.sample_batch("t", 1).priorities.tolist() == [7]
        assert client.server_info()["t"].current_size == 2


def test_statistics_count_what_happens():
    statistics = extensions.Statistics()
    with pytest.raises(RuntimeError, match="does not belong to an open table"):
        statistics.summary()
    with reverie.Store([make_table(extensions=[statistics], max_size=2)]) as store:
        client = store.client()
        insert(client, 3)
        batch = client.sample_batch("t", 4)
        client.update_priorities("t", batch.tickets[:1], [8.0])
        summary = statistics.summary()
    assert (summary["inserts"], summary["samples"]) == (3, 4)
    assert (summary["updates"], summary["deletes"]) == (1, 1)
    assert summary["priority_max"] == 8.0


def test_priorities_diffuse_to_the_neighbours_of_the_episode():
    table = make_table(extensions=[extensions.PriorityDiffusion(radius=1, decay=0.5)])
    with reverie.Store([table]) as store:
        client = store.client()
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for step in range(5):
                writer.append({"x": step})
                writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
        batch = client.sample_batch("t", 5, distinct=True)
        keys = dict(zip(batch.data["x"].tolist(), batch.keys.tolist(), strict=True))
        client.update_priorities("t", keys=[keys[2]], priorities=[9.0])
        after = client.priorities("t", [keys[step] for step in range(5)])
    assert after.tolist() == [1.0, 5.0, 9.0, 5.0, 1.0]


def test_the_same_seed_repeats_the_draws():
    def draws(seed):
        with reverie.Store([make_table(sampler=selectors.Uniform(seed))]) as store:
            insert(store.client(), 50)
            return store.client().sample_batch("t", 20).data["x"].tolist()

    assert draws(5) == draws(5)
    assert draws(5) != draws(6)


def test_importance_weights_correct_for_prioritized_sampling():
    table = make_table(sampler=selectors.Prioritized(1.0, seed=2))
    with reverie.Store([table]) as store:
        client = store.client()
        for priority in [1.0, 3.0, 4.0]:
            client.insert({"x": priority}, {"t": priority})
        batch = client.sample_batch("t", 64, beta=0.5)
        assert client.sample_batch("t", 1).weights is None
    expected = (3 * batch.probabilities) ** -0.5
    assert batch.weights.tolist() == pytest.approx((expected / expected.max()).tolist(), rel=1e-6)
    assert batch.probabilities.tolist() == pytest.approx((batch.priorities / 8).tolist())
    assert batch.table_size == 3
    assert (batch.ages_s >= 0).all()
    assert len(batch) == 64
