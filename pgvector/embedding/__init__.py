"""Embedding endpoints and the bundled model.

`factory.build` makes the embedder that the settings ask for; `calibration.noise_floor` measures what a model calls
unrelated. Importing this package loads neither an HTTP client nor a model.
"""
