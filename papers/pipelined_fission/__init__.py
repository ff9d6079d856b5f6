"""Pipelined Fission: its model, planners and figures."""
