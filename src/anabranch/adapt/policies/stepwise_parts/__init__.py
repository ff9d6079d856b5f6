"""What the policy `stepwise` is made of."""
