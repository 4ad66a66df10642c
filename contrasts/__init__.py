"""Other architectures and initialisations beside this decoder, in numbers: the tables of ``docs/``.

    uv run python -m contrasts            prints every table
    uv run python -m contrasts --write    writes them into the pages

Like ``adapters.py`` this folder knows both the decoder and the harness; neither knows it.
"""
