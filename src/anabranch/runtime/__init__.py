"""The runtime: pure state machines that every engine drives; messages in, messages out."""
