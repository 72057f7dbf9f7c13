"""Reverb's messages of ``reverb/cc/patterns.proto``. Needs protobuf."""

from reverie.reverb._messages import message_classes

globals().update(message_classes("reverb/cc/patterns.proto"))
