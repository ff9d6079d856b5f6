"""Measuring: profiles of flows, calibration of engines and of this machine."""
