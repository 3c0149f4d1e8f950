"""Function words of the languages whose function words the database keeps: "wann ist die", "en fazla". Pure.

Postgres drops those of English. In a memory of several languages those of the others are rare, so they would find any
row in the language of the question, and rows in another one that has a word of the same letters.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache

# So many different ones show the language of a question; a single one may be a word of content ("war", "son", "bin").
SHOWING_MIN = 2

# Articles, prepositions, pronouns, auxiliaries and question words, no negations.
_OF_LANGUAGE = [
    frozenset(words.split())
    for words in (
        # Danish, Norwegian
        """af at av blev ble da de deg dem den denne der deres det dette dig din ditt du eller en er et etter for
        fra få før ga gi gjør ham han hans har have hun hva hvad hvem hver hvilke hvilken hvilket hvis hvor
        hvordan hvorfor hvornår i jeg kan kunne man med meg mig min mot må naar når og også om op opp over på sig
        som skal skulle til ud under ut var ved vi vil ville være vår å""",
        # Dutch
        """aan als bij dan dat de deze die dit door een elk en er had heb hebben heeft het hij hoe hoeveel hun ik in
        is je kan kunnen mag me met mijn moet moeten naar nog of om onder ons onze ook op over te toen tot uit
        van veel voor waar waarom wanneer was wat we welk welke wie wij willen wordt worden zal ze zich zij zijn
        zo zou""",
        # Finnish
        """että he hän ja jos joka johon jonka joita jossa jota kanssa ketkä ketä kuin kuinka kuka kun keneltä kenen
        me mihin mikä mikäli millainen milloin minkä minne minun minä missä mistä miten mitkä mitä mitään miksi
        montako mutta myös ne niin nyt oli olivat olen olla on ovat paljonko se sen siellä sinun sinä sitä tai te
        tämä tässä voi""",
        # French
        """a à ai as au aux avec avons avez c ce ces cet cette chez combien comment d dans de depuis des doit
        doivent dois du elle elles en est et étaient était eu eux faire fait faut il ils j je l la le les leur
        leurs lui m ma mais me mes moi mon nos notre nous on ont ou où par pendant peut pour pourquoi qu quand
        que quel quelle quelles quels qui quoi s sa se sera ses si son sont sous sur t ta te tes toi ton tu un
        une va vos votre vous y""",
        # German
        """aber alle als also am an auch auf aus bei beim bin bis bitte da damit dann das dass dein deine dem den
        denn der des dessen die dies diese diesem diesen dieser du durch ein eine einem einen einer eines er es
        für gibt habe haben hat hatte hatten ich ihm ihn ihr ihre ihrem ihren im in ist ja kann können man mein
        meine meinem meinen meiner mit muss müssen nach noch oder ob seit sein seine seinem seinen sich sie sind
        so soll sollen um und uns unser unsere unserem unseren unter vom von vor wann war waren warum was welche
        welchem welchen welcher welches wem wen wenn wer werden wie wieviel will wir wird wo woher wohin wurde
        wurden würde zu zum zur über""",
        # Italian
        """a abbiamo agli ai al alla alle anche che chi ci come con cosa cui da dai dal dalla dalle dei del della
        delle dello deve di dopo dov dove e è ed era erano fa gli ha hai hanno ho i il in io l la le lei lo loro
        lui ma mi mia mie miei mio nei nel nella nelle noi nostra nostro o per perché più può qual quale quali
        quando quanta quante quanti quanto quella quello questa questo se si sia sono sta stato su sua sue sui
        sul sulla suo ti tra tu tua tuo un una uno va voi""",
        # Polish
        """a albo ale aż bardzo by być był była było byli ci co czy dla do dlaczego gdy gdzie go i ich ile im ja jak
        jaka jaki jakie jakim jej jest jego już kiedy kim kogo komu kto która które którego który której którzy
        ma mam mają mi mnie może można mu my na nam nas nasz nasza nasze o od on ona oni oraz po pod przed przez
        przy są się skąd ta tak tam te tego tej ten to tym w we według wy z za ze że żeby""",
        # Portuguese
        """a ao aos as até com como da das de dela dele depois do dos e é ela elas ele eles em entre era essa esse
        esta está estão este eu foi foram há isso isto já lhe mais mas me meu meus minha minhas na nas no nos nós
        o onde os ou para pela pelas pelo pelos pode por porque posso qual quais quando quanta quanto quantos que
        quê quem se sem ser será seu seus sua suas são tem têm temos ter tu tua um uma você vocês à às""",
        # Romanian
        """a ai al ale am ar are as au ca care cât câte câți când ce cea cei cel cele ci cine cu cum cui da dar de
        din după e ea ei el ele este eu fi fie fost i iar îi il îl îmi în între își la le li lor lui mai mea mei
        mele meu mi noastră noi nostru o pe pentru poate prin sau să se spre sunt tot un unde unei unui una va ți
        și""",
        # Russian, Ukrainian
        """а без бы был была были было быть в вам вас во вот все всё вы где да для до его ее её ей если есть еще ещё
        же за и из или им их к как какая какие какой какую когда кого кому которая которое которые который кто ли
        мне можно мой моя мои мы на над нам нас наш наша наше наши него нее них но о об он она они оно от откуда
        перед по под после потому почему при с сам свой себя сколько со так там тебя то того тоже только том тот
        ту ты у уже чего чей чем что чтобы чья эта эти это этого этот я або але була було буде був від він вона
        вони де ми і із її їх його й коли про скільки та така такий це чи чому що щоб як яка яке який які з""",
        # Spanish
        """a al algo ante antes como cómo con cual cuál cuáles cuando cuándo cuánta cuántas cuánto cuántos de debe
        deben del desde donde dónde durante e el él ella ellas ellos en entre era eran es esa ese eso esta está
        están este esto fue fueron ha han hay hasta hace la las le les lo los más me mi mí mis mucho muy nos
        nosotros nuestra nuestro o os para pero por porque puede puedo qué que quién quien quiénes se sea según
        ser si sí sobre son su sus también te tenemos tengo ti tiene tienen todo tu tus un una uno usted va y ya
        yo""",
        # Swedish
        """alla att av blev bli blir de dem den denna deras dess det detta dig din dina du då där efter eller en er
        ett från för ha hade han hans har henne hennes hon honom hur i inom jag kan kunde man med mellan men mig
        min mina mitt mot måste mycket många när någon något några och om oss på sedan sig sin sina sitt ska
        skulle som så till under upp ut vad var varför varifrån vart vem vems vi vid vilka vilken vilket vill vår
        våra än är åt över""",
        # Turkish
        """acaba ama bana bazı ben beni benim bir biz bizim bu bunu bunun çok da daha de defa diye en fazla gibi
        göre hangi hangisi hem her için ile ise kaç kadar ki kim kime kimin mı mi mu mü nasıl ne neden nedir
        nerede nereden nereye niçin o olan olarak olduğu onu onun sana sen senin siz sonra şu tüm var ve veya ya""",
    )
]


# Not among those above: Postgres drops them.
_OF_ENGLISH = """a about after am an and are as at be been before but by can could did do does for from had has have he
her his how i if in into is it its may me must my of on or our over s shall she should so than that the their them
then there these they this those to under until up us was we were what when where which while who whom whose why will
with would you your"""
_ENGLISH = frozenset(_OF_ENGLISH.split())


@cache
def all_function_words() -> Set[str]:
    """The function words of all languages, of English too."""
    return _ENGLISH.union(*_OF_LANGUAGE)


def language_words(words: Sequence[str]) -> Set[str]:
    """The function words of the language, English too, that has most of these words; none where none has any."""
    found = max((_ENGLISH, *_OF_LANGUAGE), key=lambda of_language: len(of_language.intersection(words)))
    return found if not found.isdisjoint(words) else frozenset()


def function_words(words: Sequence[str]) -> Set[str]:
    """Those of the words of a question that are function words of its language; none where few show it.

    The language is the one that has most of the words among its function words.
    """
    found = max((of_language.intersection(words) for of_language in _OF_LANGUAGE), key=len)
    return found if len(found) >= SHOWING_MIN else frozenset()
