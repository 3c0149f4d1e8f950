"""Words that questions are asked with and that say little about what is asked: "how many", "give me a summary". Pure.

Few rows hold them, so without this list they would count as much as a name. Left out are words that mean something else
in another language ("art", "resume").
"""

from __future__ import annotations

from collections.abc import Sequence, Set

_OF_LANGUAGES = (
    # English
    """across advise ago aspect aspects based both bring brought chat chats comprehensive concerning considered
    conversation conversations could currently describe described different discuss discussed earlier else ever exactly
    explain explained give help item items kind kinds know likely list long main many may mention mentioned mentions
    might much must need often order overall please previously provide recall recently recommend recommended regarding
    related remember said say several shall sort sorts specific suggest suggested summarise summarize summary talk
    talked tell thing things think throughout told topic topics type types usually various walk want way ways would
    one two three four five six seven eight nine ten""",
    # German
    """aufgezählt beschreib beschreibe besprochen bitte derzeit empfehlen empfiehlst erklär erkläre erwähnt erzählt
    genannt gesagt gesprochen gespräch gespräche gesprächen häufig insgesamt jemals könnte könntest kürzlich nenne oft
    reihenfolge unterschiedliche verschiedene verschiedenen viele vielen vorschlagen vorschlägst würde würdest
    zusammenfassen zusammenfassung zuletzt""",
    # French
    """conseilles décris devrait différentes différents discuté évoqué évoquées expliques longtemps mentionné parlé
    plusieurs pourrait pourrais récemment recommandes résume résumé souvent suggères voudrais""",
    # Spanish
    """conversación conversaciones debería dicho diferentes dije explica explícame hablado hablamos mencionado mencioné
    muchas muchos podría podrías quisiera recientemente recomiendas resumen sugieres veces""",
    # Portuguese
    """conversas deveria descreva disse diga falamos mencionei muitas muitos poderia recentemente recomenda resuma
    resumo sugere vezes""",
    # Italian
    """conversazioni descrivi detto differenti diversi dovrebbe menzionato molte molti parlato potrebbe potresti
    riassumi riassunto spesso spiega suggerisci volte""",
    # Chinese, Japanese, Korean, in pairs of characters as the tokenizer makes them
    """什么 是什 么的 么时 时候 多少 是多 哪里 哪个 哪些 哪天 哪儿 在哪 是哪 谁的 是谁 怎么 么样 如何 为什
    几点 几个 有几 有什 有多 多长 多久 多大 关于 于什 可以 我们 们的 是在 的是 了什 了多""",
    """です すか ます でし まし した たか いつ つで どこ こで こに なん 何で 何を 何が 誰が 誰で 誰に どの
    どう うし して って てい いる いま いく くら らで だれ なに には のは では とは れて った""",
    """입니 니까 습니 무엇 엇을 엇입 어디 디에 언제 누가 누구 인가 가요 나요 했나 있나 었나 는가 얼마 마나
    어떤 어떻 떻게 하는 에서 합니 됩니 했습 있습""",
)
_WORDS = frozenset(word for words in _OF_LANGUAGES for word in words.split())


def question_words(words: Sequence[str]) -> Set[str]:
    """Those of the words of a question that ask."""
    return _WORDS.intersection(words)
