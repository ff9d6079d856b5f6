"""What operators remember: keyed tables, stores of rows, stores of Python objects."""
