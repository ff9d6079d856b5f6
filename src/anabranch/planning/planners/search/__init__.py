"""What several planners search with."""
