"""Reverb's selectors: those of ``reverie.selectors``, shown as Reverb shows them."""

import functools

from reverie.reverb import pybind

Fifo = pybind.FifoSelector
Lifo = pybind.LifoSelector
Prioritized = pybind.PrioritizedSelector
Uniform = pybind.UniformSelector
MaxHeap = functools.partial(pybind.HeapSelector, False)
MinHeap = functools.partial(pybind.HeapSelector, True)

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform"]
