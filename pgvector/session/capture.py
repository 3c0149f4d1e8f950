"""Judges which turns are worth storing, and which questions are worth a recall."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from ..hosts.transcript import text_of
from ..settings import Settings
from ..text.cleaning import compatible, without_recalled

# Phrases without information, in the form of `_plain`. A message made of them only acknowledges.
_ACKNOWLEDGEMENTS = """
ok|okay|okey|oki|k|kk|kay|okidoki|yes|yeah|yea|yep|yup|yess|aye|y|no|nope|nah|n|no problem|no worries|sure|
sure thing|of course|fine|that s fine|that is fine|great|that s great|nice|cool|good|very good|sounds good|
looks good|all good|good job|nice one|perfect|awesome|excellent|wonderful|amazing|brilliant|super|lovely|
well done|great job|nice work|great work|right|alright|all right|exactly|correct|agreed|true|indeed|absolutely|
definitely|understood|got it|i see|makes sense|noted|roger|ack|wow|thanks|thank you|thank you very much|
thank you so much|thx|thanx|ty|tysm|tnx|cheers|many thanks|thanks a lot|thanks a bunch|much appreciated|
appreciated|appreciate it|please|pls|plz|please do|continue|please continue|go on|go ahead|go for it|carry on|
keep going|proceed|next|more|again|do it|do that|do so|let s go|let s do it|yes please|no thanks|no thank you|
done|lgtm|ship it|stop|wait|hm|hmm|mhm|uh huh|lol|haha|ja|jawohl|jep|jo|genau|nein|nee|gut|sehr gut|alles klar|
klar|passt|toll|prima|perfekt|danke|danke dir|danke schön|dankeschön|vielen dank|besten dank|danke sehr|bitte|
mach weiter|weiter|weiter so|mach das|nur zu|einverstanden|verstanden|stimmt|richtig|oui|ouais|non|d accord|bien|
très bien|parfait|génial|merci|merci beaucoup|merci bien|s il te plaît|s il vous plaît|stp|svp|continuez|vas y|
allez y|suivant|compris|bien sûr|exact|sí|si|vale|claro|muy bien|perfecto|genial|gracias|muchas gracias|
mil gracias|por favor|continúa|continua|continúe|sigue|adelante|siguiente|entendido|de acuerdo|exacto|sim|não|
nao|certo|beleza|ótimo|otimo|perfeito|obrigado|obrigada|muito obrigado|muito obrigada|valeu|pode continuar|segue|
entendi|va bene|bene|molto bene|perfetto|ottimo|grazie|grazie mille|per favore|vai|avanti|capito|esatto|
d accordo|prego|goed|oké|dank je|dank u|dankjewel|bedankt|ga door|alsjeblieft|tak|nie|dobrze|dobra|świetnie|
dzięki|dziękuję|dziekuje|proszę|kontynuuj|dalej|jasne|rozumiem|да|нет|ок|окей|ага|угу|хорошо|ладно|отлично|супер|
понятно|понял|поняла|ясно|спасибо|спасибо большое|большое спасибо|благодарю|пожалуйста|продолжай|продолжайте|
дальше|давай|давайте|верно|так|ні|добре|дякую|будь ласка|evet|hayır|tamam|olur|peki|harika|süper|güzel|
teşekkürler|teşekkür ederim|sağol|sağ ol|lütfen|devam|devam et|anladım|نعم|لا|حسنا|تمام|ممتاز|رائع|شكرا|شكرا لك|
شكرا جزيلا|من فضلك|استمر|تابع|أكمل|فهمت|طيب|בסדר|כן|לא|תודה|תודה רבה|מעולה|המשך|हाँ|हां|नहीं|ठीक|ठीक है|अच्छा|बढ़िया|
धन्यवाद|शुक्रिया|जारी रखो|जारी रखें|आगे|haan|theek hai|dhanyavaad|shukriya|ya|tidak|oke|baik|bagus|terima kasih|
makasih|lanjut|lanjutkan|silakan|vâng|dạ|được|không|tốt|cảm ơn|cám ơn|tiếp|tiếp tục|好|好的|好吧|好啊|好呀|好滴|
行|行吧|可以|嗯|嗯嗯|哦|噢|对|对的|是|是的|没错|不|不是|不用|不用了|没有|没问题|当然|明白|明白了|知道了|了解|
收到|懂了|谢谢|谢谢你|谢谢您|多谢|感谢|非常感谢|太好了|很好|不错|完美|棒|太棒了|厉害|请|请继续|继续|继续吧|接着|
下一步|下一个|开始吧|同意|哈哈|哈哈哈|謝謝|謝謝你|謝謝您|多謝|感謝|對|對的|沒錯|沒問題|當然|瞭解|請繼續|繼續|
繼續吧|開始吧|はい|はーい|うん|ええ|そう|そうです|そうですね|なるほど|いいえ|いや|いいね|いいですね|いいよ|
わかった|わかりました|分かった|分かりました|了解です|了解しました|承知しました|かしこまりました|オーケー|
オッケー|おk|ありがとう|ありがとうございます|ありがとうございました|どうも|どうもありがとう|すごい|素晴らしい|
完璧|お願いします|お願い|続けて|続けてください|続き|次|次へ|どうぞ|大丈夫|大丈夫です|네|넵|넹|예|응|어|그래|
그래요|아니|아니요|아니오|좋아|좋아요|좋습니다|알겠어|알겠어요|알겠습니다|알았어|오케이|ᄋᄏ|ᄋᄋ|ᄏᄏ|ᄏᄏᄏ|
맞아|맞아요|맞습니다|고마워|고마워요|고맙습니다|감사|감사해요|감사합니다|감사드립니다|계속|계속해|계속해줘|
계속해 주세요|계속해주세요|다음|부탁해|부탁합니다|훌륭해요|완벽해요|ใช่|ไม่|โอเค|ได้|ดี|ดีมาก|ขอบคุณ|ขอบคุณครับ|ขอบคุณค่ะ|
ครับ|ค่ะ|ต่อ|ต่อไป
"""
_GREETINGS = """
hi|hey|hello|hello there|hi there|hey there|hiya|howdy|yo|sup|what s up|whats up|greetings|good morning|
good afternoon|good evening|good day|good night|morning|evening|how are you|how are you doing|how s it going|
how do you do|are you there|you there|anyone there|bye|bye bye|goodbye|good bye|see you|see ya|see you later|
later|cu|ciao|test|testing|ping|hallo|hallöchen|servus|moin|moin moin|grüss gott|grüezi|guten morgen|guten tag|
guten abend|gute nacht|wie geht s|wie geht es dir|tschüss|bonjour|bonsoir|salut|coucou|ça va|comment ça va|
au revoir|bonne nuit|à bientôt|hola|buenos días|buenos dias|buenas|buenas tardes|buenas noches|qué tal|que tal|
cómo estás|como estas|adiós|hasta luego|olá|ola|oi|bom dia|boa tarde|boa noite|tudo bem|tchau|salve|buongiorno|
buonasera|buonanotte|come stai|arrivederci|hoi|goedemorgen|goedemiddag|goedenavond|doei|cześć|dzień dobry|
dobry wieczór|привет|здравствуй|здравствуйте|доброе утро|добрый день|добрый вечер|как дела|пока|до свидания|
привіт|merhaba|selam|günaydın|iyi akşamlar|مرحبا|اهلا|السلام عليكم|صباح الخير|مساء الخير|שלום|בוקר טוב|नमस्ते|
नमस्कार|namaste|halo|hai|selamat pagi|selamat siang|selamat malam|xin chào|chào|你好|您好|嗨|哈喽|早|早安|早上好|
下午好|晚上好|晚安|在吗|在嗎|你在吗|再见|再見|拜拜|こんにちは|こんばんは|おはよう|おはようございます|おやすみ|
おやすみなさい|やあ|もしもし|元気ですか|さようなら|またね|안녕|안녕하세요|안녕하십니까|여보세요|좋은 아침|잘자|
잘가|สวัสดี|สวัสดีครับ|สวัสดีค่ะ
"""
_PHRASE_CHARS_MAX = 24
_PLAIN_CHARS_MAX = 60
_COMMAND = re.compile(r"/[A-Za-z][\w-]*")


def width(text: str) -> int:
    """The width of a text in characters: an East Asian wide one counts two, one without width none."""
    if text.isascii():
        return len(text)
    return sum(_width_of(character) for character in text)


def _width_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def kept(user: Any, assistant: Any, settings: Settings) -> tuple[str, str]:
    """The sides of a turn that are stored: recalled memories are removed, then `substantive` decides."""
    question, answer = without_recalled(text_of(user)), without_recalled(text_of(assistant))
    return substantive(question, answer, min_chars=settings.turn_min_chars)


def substantive(user: str, assistant: str, *, min_chars: int) -> tuple[str, str]:
    """The sides of a turn that are worth storing, as (user, assistant); the others are empty.

    A message that only acknowledges is dropped, and the whole turn when the rest is narrower than `min_chars`.
    """
    user, assistant = user.strip(), assistant.strip()
    if _made_of(_ONLY_ACKNOWLEDGES, user):
        user = ""
    # Enough is measured to decide; long texts are not walked to their end.
    total = width(user[: 8 * min_chars]) + width(assistant[: 8 * min_chars])
    return (user, assistant) if total >= min_chars else ("", "")


def small_talk(query: str) -> bool:
    """Whether nothing is recalled for this message: empty, a greeting, an acknowledgement, or a bare `/command`."""
    stripped = query.strip()
    return _COMMAND.fullmatch(stripped) is not None or _made_of(_SMALL_TALK, stripped)


def _made_of(phrases: frozenset[str], text: str) -> bool:
    """Whether the text is a sequence of these phrases, the longest matched first; true without letters."""
    rest = _plain(text) if len(text) <= 4 * _PLAIN_CHARS_MAX else text
    if len(rest) > _PLAIN_CHARS_MAX:
        return False
    while rest:
        ends = range(min(len(rest), _PHRASE_CHARS_MAX), 0, -1)
        end = next((end for end in ends if rest[:end] in phrases and _ends_word(rest, end)), 0)
        if not end:
            return False
        rest = rest[end:].lstrip()
    return True


def _ends_word(text: str, end: int) -> bool:
    """Whether a word can end here: before a space, at the end of the text, or next to a script without spaces."""
    return text[end : end + 1] in ("", " ") or _unspaced(text[end - 1]) or _unspaced(text[end])


def _unspaced(character: str) -> bool:
    return character >= "\u2e80" or "\u0e00" <= character <= "\u0e7f"


def _plain(text: str) -> str:
    """The text case-folded, with one space in place of all but letters, their marks and digits."""
    folded = compatible(text).casefold()
    kept = (c if unicodedata.category(c)[0] in "LN" or _is_letter_mark(c) else " " for c in folded)
    return " ".join("".join(kept).split())


def _is_letter_mark(character: str) -> bool:
    # Variation selectors and the keycap belong to emoji, all other marks to letters.
    return unicodedata.category(character)[0] == "M" and not "\ufe00" <= character <= "\ufe0f" and character != "\u20e3"


_ONLY_ACKNOWLEDGES = frozenset(_ACKNOWLEDGEMENTS.replace("\n", "").split("|"))
_SMALL_TALK = _ONLY_ACKNOWLEDGES | frozenset(_GREETINGS.replace("\n", "").split("|"))
