"""Reverb's protobuf modules; see `reverie.reverb._messages`."""
