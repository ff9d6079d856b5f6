"""State of operators: positions, stores, the vectorized keyed table; knows no engine."""
