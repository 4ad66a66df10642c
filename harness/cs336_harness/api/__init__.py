"""What Python code may call: the names that ``cs336_harness`` itself offers, and nothing that a command needs."""
