"""Configuration: every size has its effect, and sizes that do not fit are refused."""
