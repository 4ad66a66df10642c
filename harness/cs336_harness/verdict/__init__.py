"""The verdict: checks run on a subject, and what is said of them to a person and to a program."""
