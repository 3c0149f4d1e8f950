"""Signals in a message that a piece of work is closed, in seven languages. Pure.

A message closes when one of its clauses says that something is done ("merged", "it works") and is no question, no
negation, no condition and no plan. In doubt a scope stays open: silence closes it later.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..text.cleaning import compatible
from ..text.tokenizer import shortened

MESSAGE_CHARS_MAX = 4000


class _Language(NamedTuple):
    """Patterns: of what says that work is done, what denies it in the same clause, and what makes a plan of it when it
    comes before.
    """

    done: str
    denied: str
    planned: str


_ENGLISH = _Language(
    r"(?:merged|deployed|shipped|released|landed|fixed|resolved|solved|finished|completed|closed)"
    r"(?=\W*$|\s+(?:to|in|into|on|at|by|with|and|for|from|it|this|that|them|the|my|our|all|everything|today|yesterday"
    r"|now|already|successfully|an?|last)\b)"
    r"|(?:it|everything|all) (?:(?:now|finally) )?works|(?:works|working|done) (?:now|again|fine)"
    r"|rolled (?:(?:it|this|that) )?out|(?:is|are|went|it's) (?:now )?live"
    r"|phase \w+ (?:is )?(?:now )?(?:done|complete|over)|(?:is|are|it's|that's|we're|all|everything) (?:now )?done"
    r"|\Adone(?=\W*$)",
    r"not|never|cannot|hardly|barely|neither|nor|unless|except|only|\w+n't",
    r"(?:is|are|was|were|has|have|had|did|does|do|can|could|will|would|should) (?:it|this|that|the|we|you|they|i|all)"
    r"|when|once|if|until|till|after|before|while|whether|as soon as|how|why|what|who|which|where"
    r"|will|\w+'ll|would|should|shall|could|might|may|must|can|going to|gonna|about to|to be|get|needs?|wants?|wish"
    r"|hope|doubt|hopefully|please|let'?s|try|trying|wait|waiting|almost|nearly|half|partly|soon|tomorrow|supposed"
    r"|no one|nobody|nothing|none|yet to|make sure|ensure|expect|plan|planned|ready to",
)
_GERMAN = _Language(
    r"gemerge?[dt]|zusammengeführt|deploye?[dt]|ausgerollt|ausgeliefert|veröffentlicht|behoben|gelöst|gefixt|repariert"
    r"|erledigt|abgeschlossen|fertig(?:gestellt)?|geschlossen|beendet|funktioniert|geklappt"
    r"|(?:klappt|läuft) (?:jetzt|nun|wieder)"
    r"|(?:jetzt|nun|endlich) läuft|live gegangen|(?:ist|sind) (?:jetzt )?live",
    r"nicht|nie|niemals|kaum|weder",
    r"(?:ist|sind|hat|haben|habt|wurden?) (?:es|das|der|die|er|sie|ihr|wir|man|jemand)(?= .*\?| schon)"
    r"|wenn|sobald|falls|bis|ob|nachdem|bevor|damit|dass|wie|warum|wann|wer|wird|werden|werde|muss|müssen|soll|sollen"
    r"|sollte|könnte|kann|kannst|möchte|will|wollen|fast|beinahe|halb|bald|gleich|ohne|wäre|wären"
    r"|(?<!heute )morgen|niemand|kein\w*|nichts|bitte|hoffentlich",
)
_FRENCH = _Language(
    r"(?:fusionn|merg|déploy|livr|publi|corrig|termin|achev|ferm|clôtur|répar|régl|finalis|complét)ée?s?"
    r"|résolue?s?|finie?s?|mise?s? en (?:prod|production|ligne)|(?:c'est|est|sont) en (?:ligne|prod|production)"
    r"|(?:ça|cela|tout) (?:re)?(?:marche|fonctionne)",
    r"pas|plus|jamais|ne|n'\w+|aucune?",
    r"est-ce|comment|pourquoi|quand|qui|lorsque|dès|si|s'il|avant|après|jusqu'\w+|sera|seront|serait|va|vais|vont|allons"
    r"|doit|doivent|devrait|faut|soit|soient|sans|presque|bientôt|demain|personne|pourrait|peut|veux|voudrais",
)
_SPANISH = _Language(
    r"(?:fusiona|mergea|desplega|publica|entrega|completa|termina|finaliza|acaba|soluciona|arregla|cerra|lanza)d[oa]s?"
    r"|corregid[oa]s?|resuelt[oa]s?|arreglé|terminé|cerré|desplegué|fusioné|está hech[oa]|funciona(?! mal)"
    r"|está en (?:producción|línea)",
    r"no|nunca|jamás|tampoco|apenas",
    r"c[oó]mo|cuando|cuándo|quién|si|hasta|antes|después|esté|estén|sea|será|serán|sería|vamos a|voy a|va a|van a"
    r"|hay que|deben?|debería|tienen? que|sin|casi|pronto|mañana|nadie|nada|puede|quiero|ojalá",
)
_CHINESE = _Language(
    r"(?:(?:合[并併]|部署|上[线線]|[发發][布佈]|修[复復]|解[决決]|完成|[关關][闭閉]|交付|通[过過])(?:了|完成|完[毕畢]|好了|成功|完了)"
    r"|已[经經]?(?:全部|成功)?(?:合[并併]|部署|上[线線]|[发發][布佈]|修[复復]|解[决決]|完成|[关關][闭閉]|搞定|交付)"
    r"|[修弄做改跑测測](?:好|完|通)了|(?:可以|能)(?:用|跑|工作)了|好使了|搞定)(?![之以]?[后後前]|再|的|但|[时時]|一半)",
    r"[没沒](?!有?(?:问题|問題|报错|報錯))|未|不|[别別]|尚|[吗嗎]|是否|怎[么麼]|如何|[谁誰]|什[么麼][时時]候|何[时時]",
    r"如果|假如|要是|若|等|[将將]|准[备備]|打算|[计計][划劃]|想|需要|必[须須]|[应應][该該]|(?<!重)(?<!主)要|快|[马馬]上|差不多|明天",
)
_JAPANESE = _Language(
    r"(?:(?:マージ|デプロイ|リリース|公開|完了|完成|修正|解決|クローズ|対応|反映|成功|終了)"
    r"(?:しました|した|済み?|完了|できました|できた|されました|された|です)"
    r"|完了(?=\W*$)|動きました|動いた|動いています|動くように(?:なりました|なった)|うまくいきました|うまくいった"
    r"|終わりました|終わった|直りました|直った|直しました|直した|閉じました|片付きました|片付いた)"
    r"(?!ら|とき|時|後|あと|場合|の[はが])",
    r"まだ|ない|ません|なかった|[かの]\W*$|かどうか|かな|でしょう|どうやって|なぜ|いつ|誰",
    r"もうすぐ|そろそろ|ほぼ|ほとんど|明日|予定|つもり",
)
_KOREAN = _Language(
    r"(?:(?:머지|병합|배포|릴리[스즈]|출시|완료|해결|수정|반영|성공|종료)[를을이가]?"
    r"(?: ?완료)?(?:했|됐|되었|하였|함|됨)"
    r"|(?:배포|머지|병합|수정|작업) 완료|완료(?:입니다|예요)|끝났|끝냈|마쳤|마무리했|고쳤|고쳐졌|닫았"
    r"|(?:작동|동작)(?:합니다|해요|하네요|한다)|(?:잘|이제) (?:[^ ]{1,10} )?(?:됩니다|돼요|되네요|된다))"
    r"(?!으?면|다면|는데|을 때)",
    r"아직|않|못|없(?!이)|\b안 |까\W*$|나요|는지|은지|어떻게|왜|언제|아무도",
    r"거의|곧|내일|예정",
)


def _compiled(*languages: _Language, between: str = "") -> tuple[re.Pattern[str], ...]:
    """The patterns of languages that share words, as one of each sort; `between` is what words are made of."""
    edges = (f"(?<!{between})(?:", f")(?!{between})") if between else ("", "")
    return tuple(re.compile("|".join(sort).join(edges), re.IGNORECASE) for sort in zip(*languages, strict=True))


# A word that one of these languages denies with may stand beside a signal of another one.
_SPACED = _compiled(_ENGLISH, _GERMAN, _FRENCH, _SPANISH, between=r"\w")
_CHINESE_TEXT = _compiled(_CHINESE)
_JAPANESE_TEXT = _compiled(_JAPANESE)
_KOREAN_TEXT = _compiled(_KOREAN)
_KANA = re.compile("[ぁ-ヿ]")

_SENTENCE_END = re.compile(r"(?<=[!?。])|(?<=[.;])\s|\n")
_CLAUSE_END = re.compile(r"[,、:–—]| - ")
_UNDONE = re.compile(
    r"\brevert|\brevirt|\broll(?:ed|ing)? ?(?:it )?back|reopened|zurückgerollt|zurückgenommen|rückgängig|annulé"
    r"|回[滚滾]|撤[回销銷]|ロールバック|取り消し|戻しました|롤백|되돌렸",
    re.IGNORECASE,
)


def closes(message: str) -> bool:
    """Whether a message says that the work at hand is done. Of a long one, the beginning and the end are read."""
    text = compatible(shortened(message, MESSAGE_CHARS_MAX)).replace("’", "'")
    return any(map(_closes, _SENTENCE_END.split(text)))


def _closes(sentence: str) -> bool:
    if sentence.rstrip().endswith("?") or _UNDONE.search(sentence):
        return False
    han = _JAPANESE_TEXT if _KANA.search(sentence) else _CHINESE_TEXT
    return any(
        _says_done(clause, *each) for clause in _CLAUSE_END.split(sentence) for each in (_SPACED, han, _KOREAN_TEXT)
    )


def _says_done(clause: str, done: re.Pattern[str], denied: re.Pattern[str], planned: re.Pattern[str]) -> bool:
    if denied.search(clause):
        return False
    return any(not planned.search(clause[: found.start()]) for found in done.finditer(clause))
