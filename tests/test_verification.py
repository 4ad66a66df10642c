"""What the public snapshots cannot see: the slow oracle, information flow, tied identity, configuration, a cache."""

from cs336_harness.pytest_plugin import judged_by_each

test_slow_oracle = judged_by_each("slow_oracle")
test_information_flow = judged_by_each("information_flow")
test_tying = judged_by_each("tying")
test_configuration = judged_by_each("configuration")
test_incremental = judged_by_each("incremental")
