"""The plugins of examples/cc, loaded as Python programs load them."""

import numpy as np
import pytest

import reverie


@pytest.fixture(scope="module")
def plugins(root):
    """The folder of the plugins that the release build made; loads them."""
    folder = root / "build" / "release" / "examples"
    for name in ("plugin_selector", "plugin_extension"):
        reverie.load_plugin(str(folder / f"{name}.so"))
    return folder


def open_store(sampler, extensions=()):
    table = reverie.Table(
        "t",
        sampler,
        reverie.selectors.Fifo(),
        100,
        reverie.rate_limiters.MinSize(1),
        extensions=extensions,
    )
    return reverie.Store([table])


@pytest.mark.usefixtures("plugins")
def test_a_custom_selector_samples_with_its_probabilities():
    with open_store(reverie.selectors.Custom("Combined", newest_share=0.2, seed=7)) as store:
        client = store.client()
        for value in range(5):
            client.insert(np.int64(value), {"t": 1.0})
        batch = client.sample_batch("t", 10_000)
        newest = batch.data.ravel() == 4
        np.testing.assert_allclose(batch.probabilities, np.where(newest, 0.36, 0.16))
        assert newest.mean() == pytest.approx(0.36, abs=0.02)  # 4 standard deviations


@pytest.mark.usefixtures("plugins")
def test_a_custom_extension_changes_priorities_and_reports_a_summary():
    decay = reverie.extensions.Custom("SampleDecay", factor=0.5)
    with open_store(reverie.selectors.MaxHeap(), [decay]) as store:
        client = store.client()
        client.insert(np.int64(1), {"t": 8.0})
        client.insert(np.int64(2), {"t": 6.0})
        drawn = [client.sample_batch("t", 1).data.item() for _ in range(3)]
        assert drawn == [1, 2, 1]  # 8 becomes 4, 6 becomes 3, 4 becomes 2
        assert decay.summary() == {"decays": 3.0, "priority_taken": 9.0}


@pytest.mark.usefixtures("plugins")
def test_options_are_passed_to_the_plugin_and_its_errors_are_raised():
    with pytest.raises(ValueError, match=r"newest_share is 2; it must be in \[0, 1\]"):
        open_store(reverie.selectors.Custom("Combined", newest_share=2.0))
    with pytest.raises(ValueError, match="no option 'share'"):
        open_store(reverie.selectors.Custom("Combined", share=0.5))


@pytest.mark.usefixtures("plugins")
def test_an_unregistered_name_is_refused():
    with pytest.raises(reverie.errors.NotFoundError, match=r"'Nobodys'.*Combined"):
        open_store(reverie.selectors.Custom("Nobodys"))


def test_a_plugin_loaded_twice_is_refused(plugins):
    with pytest.raises(reverie.errors.AlreadyExistsError, match="'Combined' is registered"):
        reverie.load_plugin(str(plugins / "plugin_selector.so"))


def test_a_missing_plugin_file_is_refused(tmp_path):
    with pytest.raises(reverie.errors.NotFoundError, match="cannot be loaded"):
        reverie.load_plugin(str(tmp_path / "plugin.so"))


def test_a_library_that_is_not_a_plugin_is_refused():
    with pytest.raises(reverie.errors.FailedPreconditionError, match="is not a plugin"):
        reverie.load_plugin("libm.so.6")


def test_a_plugin_of_another_version_is_refused(plugins):
    with pytest.raises(reverie.errors.FailedPreconditionError, match="build it again"):
        reverie.load_plugin(str(plugins / "stale_plugin.so"))
