"""The only platform."""
