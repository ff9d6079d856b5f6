"""Adaptation: measurements in, the next plan out. `controller.py` is the page to read first."""
