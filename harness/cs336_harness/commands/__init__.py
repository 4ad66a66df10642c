"""The commands of ``cs336``, one file each. Importing one is cheap: what is heavy is imported when it runs."""
