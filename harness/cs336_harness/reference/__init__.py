"""What a subject is held against: the oracle, the calls it is asked, and how close is close enough."""
