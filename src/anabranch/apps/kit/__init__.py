"""What several applications are made of: arguments, inputs, summaries, random data."""
