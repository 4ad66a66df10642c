"""Grading: a class of submissions, each judged in a process of its own that can reach nothing but its own files."""
