"""A checkpoint folder of the Llama family, judged as it stands: ``cs336 check --huggingface FOLDER``."""
