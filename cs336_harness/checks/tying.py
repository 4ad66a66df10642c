"""Tying: one Parameter under two names, or two Parameters."""
