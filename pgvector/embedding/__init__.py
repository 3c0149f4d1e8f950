"""Embedding endpoints and the bundled model.

`factory.build` makes the embedder of the settings; `calibration.noise_floor` measures the similarity of unrelated
texts for a model. Importing this package loads neither an HTTP client nor a model.
"""
