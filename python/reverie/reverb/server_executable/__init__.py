"""Reverb's server program, in parts."""
