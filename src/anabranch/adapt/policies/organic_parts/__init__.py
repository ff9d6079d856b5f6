"""What the policy `organic` is made of."""
