"""Models from the papers, as pure functions: no clock, no thread, no input or output."""
