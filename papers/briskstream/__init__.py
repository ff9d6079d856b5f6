"""BriskStream: its tables and figures, from model, simulator and the local engine."""
