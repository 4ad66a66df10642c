"""Diagnosis: where the fault is, and which known mistake it is."""
