"""What several policies reckon with: costs, loads, room, and what plans would do."""
