"""Reverb's messages of ``reverb/cc/checkpointing/checkpoint.proto``. Needs protobuf."""

from reverie.reverb._messages import message_classes

globals().update(message_classes("reverb/cc/checkpointing/checkpoint.proto"))
