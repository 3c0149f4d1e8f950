from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.scan import BM25_B, BM25_K1, Key, Relation, Scan

# More than fit into one column of the statement.
WORDS = [f"word{n}" for n in range(70)]
cosines = st.none() | st.floats(-1, 1)


@st.composite
def scans(draw: st.DrawFn) -> Scan:
    """Up to 30 rows of some sessions, one behind the other."""
    sessions = sorted(draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("st")), max_size=30)))
    number = len(sessions)
    held = draw(st.lists(st.sets(st.integers(0, 69), max_size=4), min_size=number, max_size=number))
    return Scan(
        keys=[(theme, 100 - n) for n, (theme, _) in enumerate(sessions)],
        sessions=sessions,
        cosines=draw(st.lists(cosines, min_size=number, max_size=number)),
        lengths=[len(bits) + n % 3 for n, bits in enumerate(held)],
        held=[sum(1 << bit for bit in bits) for bits in held],
        words=WORDS,
    )


def scores_by_hand(scan: Scan) -> dict[Key, float]:
    holds = [{n for n in range(len(WORDS)) if bits >> n & 1} for bits in scan.held]
    lengths = [length for length, bits in zip(scan.lengths, scan.held, strict=True) if bits]
    found = {}
    for key, length, terms in zip(scan.keys, scan.lengths, holds, strict=True):
        if terms:
            count = {n: sum(n in others for others in holds) for n in terms}
            idf = [math.log(1 + (len(holds) - times + 0.5) / (times + 0.5)) ** 2 for times in count.values()]
            mean = sum(lengths) / len(lengths)
            found[key] = sum(idf) * (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B + BM25_B * length / mean))
    return found


@given(scans(), st.integers(1, 40))
def test_the_words_are_scored_by_bm25(scan: Scan, limit: int) -> None:
    found = scan.worded(limit)
    wanted = scores_by_hand(scan)
    assert len(found) == min(limit, len(wanted))
    scores = [math.fsum(worth.values()) for worth in found.values()]
    assert all(math.isclose(score, wanted[key]) for key, score in zip(found, scores, strict=True))
    assert all(first >= second - 1e-9 for first, second in pairwise(scores))
    assert min(scores, default=0) >= max((wanted[key] for key in wanted.keys() - found.keys()), default=0) - 1e-9
    for key, worth in found.items():
        bits = scan.held[scan.keys.index(key)]
        assert set(worth) == {word for n, word in enumerate(WORDS) if bits >> n & 1}


@given(scans(), st.integers(1, 40))
def test_the_nearest_come_first_and_rows_without_a_vector_not_at_all(scan: Scan, limit: int) -> None:
    found = scan.near(limit)
    stored = {key: cosine for key, cosine in zip(scan.keys, scan.cosines, strict=True) if cosine is not None}
    assert list(found.values()) == sorted(stored.values(), reverse=True)[:limit]
    assert all(stored[key] == cosine for key, cosine in found.items())


@given(scans(), st.data())
def test_rows_are_related_to_their_neighbours_in_the_session(scan: Scan, data: st.DataObject) -> None:
    picked = data.draw(st.lists(st.sampled_from(scan.keys), unique=True)) if scan.keys else []
    family: dict[Key, Relation] = {}
    for n, key in enumerate(scan.keys):
        previous = scan.keys[n - 1] if n and scan.sessions[n - 1] == scan.sessions[n] else None
        follower = scan.keys[n + 1] if n + 1 < len(scan.keys) and scan.sessions[n + 1] == scan.sessions[n] else None
        if {key, previous, follower} & set(picked):
            family[key] = Relation(key, scan.cosines[n], previous)
    assert {relation.key: relation for relation in scan.related(picked)} == family


def test_two_terms_of_one_word_add_up() -> None:
    one, two = (
        Scan([("a", 1)], [("a", "s")], [None], [2], [0b11], words) for words in (["foo.bar", "bar"], ["bar", "bar"])
    )
    assert sum(one.worded(1)["a", 1].values()) == sum(two.worded(1)["a", 1].values())
    assert list(two.worded(1)["a", 1]) == ["bar"]
