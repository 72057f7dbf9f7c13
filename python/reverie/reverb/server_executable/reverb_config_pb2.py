"""Reverb's messages of ``reverb/server_executable/reverb_config.proto``. Needs protobuf."""

from reverie.reverb._messages import message_classes

globals().update(message_classes("reverb/server_executable/reverb_config.proto"))
