"""Reverb's messages of ``reverb/cc/schema.proto``. Needs protobuf."""

from reverie.reverb._messages import message_classes

globals().update(message_classes("reverb/cc/schema.proto"))
