"""What a run leaves on durable storage so that another can go on from it; knows no engine."""
