"""The pages of ``docs/`` held true. These tests may know both packages, as ``adapters.py`` does."""
