"""Reverb's path of ``reverie.selectors``."""

from reverie.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform"]
