"""A pytest plugin: dm-reverb with an argument of its earlier releases that dm-acme still passes."""

import reverb

_trajectory_writer = reverb.Client.trajectory_writer


def trajectory_writer(self, num_keep_alive_refs, *, get_signature_timeout_ms=None, **options):  # noqa: ARG001
    return _trajectory_writer(self, num_keep_alive_refs, **options)


reverb.Client.trajectory_writer = trajectory_writer
