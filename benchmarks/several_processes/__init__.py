"""What several processes cost, and how exact finite differences of sharded models are."""
