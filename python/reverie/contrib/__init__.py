"""Adapters for other libraries. Each module needs its library, and is imported by who uses it."""
