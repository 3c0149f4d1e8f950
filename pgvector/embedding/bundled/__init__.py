"""The embedding models that run in this process, from packages that bring their weights.

`LocalEmbedder` runs them. Importing this package loads no model.
"""
