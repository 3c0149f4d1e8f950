from __future__ import annotations

import pytest
from growth import grows_linearly
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text.sentences import WIDTH_MIN, sentences

# Texts with many seams: words, stops of several scripts, and lines.
PARTS = st.sampled_from([
    "a", "The kelp grows near the pier", "Der Zähler steht im dritten Keller",
    "我把服务器搬到法兰克福的机房了", "회의는 화요일 오전 열 시",
    ".", "!", "? ", "。", "？」", "…", "\n", "\n\n- ", " ", ". ", "Dr. ", "3. ", "v2.0.1", "\u0964 ",
])  # fmt: skip


@given(st.one_of(st.text(max_size=400), st.lists(PARTS, max_size=60).map("".join)), st.integers(0, 12))
def test_the_sentences_together_are_the_text(text: str, count_max: int) -> None:
    found = sentences(text, count_max)
    assert len(found) <= count_max
    assert all(sentence.strip() == sentence != "" for sentence in found)
    if count_max:
        assert "".join("".join(found).split()) == "".join(text.split())


@given(st.lists(PARTS, max_size=60).map("".join))
def test_no_sentence_is_short_beside_others(text: str) -> None:
    found = sentences(text, 40)
    assert len(found) < 2 or all(len(sentence) >= WIDTH_MIN / 2 for sentence in found)


@pytest.mark.parametrize(
    "parts",
    [
        ["The new door code of the office is 4471.", "Could you also draft the mail to the landlord?"],
        ["Frau Dr. Meyer zieht am 3. Mai nach Bonn um.", "Kannst du mir bis heute z. B. eine Mail schreiben?"],
        ["Le nouveau code de la porte est le 4471 !", "Peux-tu écrire à Mme. Dupont avant ce soir ?"],
        [
            "¿Puedes escribir un correo al casero hoy?",
            "La Sra. Pérez vive desde junio en Lugo…",
            "Gracias por todo lo que haces.",
        ],
        ["O novo código da porta do escritório é 4471.", "Você pode avisar a equipe da limpeza?"],
        ["La signora Bianchi è allergica alle noci!", "Mi prepari un menù per la cena di sabato?"],
        ["Ofisin yeni kapı şifresi artık 4471 oldu.", "Ev sahibine kısa bir e-posta yazar mısın?"],
        ["我们把数据库服务器搬到法兰克福的机房了。", "你能帮我给房东写一封正式的邮件吗？"],
        ["新しいオフィスの暗証番号は4471です。", "大家さんへのメールも書いてもらえますか？"],
        ["사무실 현관 비밀번호가 어제 바뀌었습니다.", "집주인에게 보낼 메일도 하나 써 줄래요?"],
        ["Новый код от двери нашего офиса 4471.", "Напиши, пожалуйста, письмо хозяину на ул. Ленина!"],
        ["The migration runs in v2.0.1 and not before.", "- see https://example.org/a.b?c=d for the notes"],
    ],
)
@pytest.mark.parametrize("between", [" ", "\n"])
def test_a_message_is_cut_between_its_sentences(parts: list[str], between: str) -> None:
    wide = parts[0][-1] == "。"
    assert sentences(("" if wide and between == " " else between).join(parts), 9) == parts


def test_a_greeting_is_joined_to_what_follows() -> None:
    assert sentences("Hi! Thanks. The kelp grows near the old pier. Bye!", 9) == [
        "Hi! Thanks. The kelp grows near the old pier. Bye!"
    ]


def test_many_sentences_are_joined_to_parts_of_similar_length() -> None:
    found = sentences(" ".join(f"This is the sentence with number {number:02}." for number in range(40)), 4)
    assert len(found) == 4
    assert max(map(len, found)) <= 1.2 * min(map(len, found))


def test_a_large_text_takes_time_in_proportion_to_its_length() -> None:
    for piece in (". ", "a. ", "\n", ".", "\u3002"):
        assert grows_linearly(lambda text: sentences(text, 6), piece, 5_000)
