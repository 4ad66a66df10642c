"""The judging tests for a repository that has none of its own: ``pytest --pyargs cs336_harness.judging``."""
