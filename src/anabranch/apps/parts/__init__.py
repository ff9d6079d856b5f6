"""What several applications are made of: their arguments, inputs, and data drawn at random."""
