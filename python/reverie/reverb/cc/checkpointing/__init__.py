"""Reverb's messages of checkpoints."""
