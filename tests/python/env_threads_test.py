"""Pools whose workers are threads of this process, for environments that mostly wait."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import reverie
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)


class Meets:
    """Each step waits for the steps of all the others."""

    def __init__(self, barrier=None):
        self.barrier = barrier
        self.thread = threading.get_ident()

    def reset(self, **_options):
        assert threading.get_ident() == self.thread  # one thread makes, steps and closes it
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert threading.get_ident() == self.thread
        self.barrier.wait(30)
        return np.full(1, action, np.float32), 1.0, False, False, {}

    def close(self):
        assert threading.get_ident() == self.thread


def test_environments_wait_at_the_same_time():
    barrier = threading.Barrier(6)
    with reverie.EnvPool(lambda: Meets(barrier), 6, backend="thread") as pool:
        pool.reset().result()
        for step in range(5):
            batch = pool.step(np.full(6, step)).result()
            assert batch.observation.tolist() == [[step]] * 6
    assert not [one for one in threading.enumerate() if one.name.startswith("reverie-env-")]


def test_a_hanging_step_times_out_and_a_raising_one_is_named():
    gate = threading.Event()

    class Gated(Meets):
        def step(self, action):
            gate.wait()
            if action == 7:
                raise ValueError("seven")
            return super().step(action)

    with reverie.EnvPool(lambda: Gated(threading.Barrier(1)), 3, backend="thread") as pool:
        pool.reset().result()
        future = pool.step([1, 7, 1])
        with pytest.raises(DeadlineExceededError, match="worker 0") as late:
            future.result(0.05)
        assert str(late.value).endswith("; wait again with a longer timeout_s")
        gate.set()
        with pytest.raises(EnvError, match=r"environment 1 of batch 0(.|\n)*seven") as told:
            future.result()
        assert told.value.env_id == 1
        assert "raised; pool.reset() makes it again" in str(told.value)
        assert "restart" not in str(told.value)
        pool.reset().result()
        assert pool.step([1, 2, 3]).result().observation.tolist() == [[1], [2], [3]]
        with pytest.raises(UnimplementedError, match="process"):
            pool.restart()
        assert pool.worker_pids == []
    with pytest.raises(FailedPreconditionError, match="closed"):
        pool.step([1, 2, 3])


def test_restarts_are_refused_since_threads_cannot_be_replaced():
    with pytest.raises(InvalidArgumentError, match='restarts is 2; backend="thread"'):
        reverie.EnvPool(Meets, 1, backend="thread", restarts=2)


def test_a_program_exits_although_an_environment_hangs_in_a_step():
    program = """
        import threading
        import numpy as np
        import reverie

        stepping = threading.Semaphore(0)

        class Hangs:
            def reset(self, **_options):
                return np.zeros(1, np.float32), {}

            def step(self, action):
                stepping.release()
                threading.Event().wait()

        pool = reverie.EnvPool(Hangs, 2, backend="thread")
        pool.reset().result()
        future = pool.step([0, 0])
        print([stepping.acquire(timeout=30) for _ in range(2)])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[True, True]\n"


def test_ctrl_c_ends_a_wait_but_not_the_step():
    program = """
        import _thread, threading
        import numpy as np
        import reverie

        gate = threading.Event()

        class Waits:
            def reset(self, **_options):
                return np.zeros(1, np.float32), {}

            def step(self, action):
                _thread.interrupt_main()
                gate.wait()
                return np.ones(1, np.float32), 1.0, False, False, {}

        with reverie.EnvPool(Waits, 1, backend="thread") as pool:
            pool.reset().result()
            future = pool.step([0])
            try:
                future.result()
            except KeyboardInterrupt:
                gate.set()
            print(future.result().observation.tolist())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[1.0]]\n", "")


def test_several_threads_may_have_their_own_thread_pools():
    sums = []

    def use(index):
        with reverie.EnvPool(lambda: Meets(threading.Barrier(1)), 2, backend="thread") as pool:
            pool.reset().result()
            sums.append(float(pool.step([index, index]).result().observation.sum()))

    threads = [threading.Thread(target=use, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == [0, 2, 4, 6]
