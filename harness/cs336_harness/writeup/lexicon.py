"""The words that people use for the parts of a decoder, in English and in Chinese, and what a label of them says.

A label is understood *with certainty* when nothing is left of it once every known word is taken away. A word that
nobody here knows may change what the others mean, so a label that holds one convicts no number.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

from cs336_harness.cost.ledger import (
    ATTENTION,
    BLOCK,
    BLOCK_NORMS,
    EVERYTHING,
    FEED_FORWARD,
    HEAD,
    NORMS,
    POSITION_PAIRS,
    PROJECTIONS,
    VOCABULARY,
)

_Q, _K, _V, _O = (frozenset((name,)) for name in ("q_proj", "k_proj", "v_proj", "output_proj"))
_SCORES, _VALUES = frozenset(("scores",)), frozenset(("values",))
_W1, _W2, _W3 = (frozenset((name,)) for name in ("w1", "w2", "w3"))
_EMBEDDING = frozenset(("token_embeddings",))
_FINAL_NORM = frozenset(("ln_final",))

_PROJ_WORD = r"(?:proj(?:ection)?s?|matri(?:x|ces)|weights?|linears?|matmuls?)\b"
_PROJ = rf"[\s_-]*{_PROJ_WORD}"
_JOIN = r"(?:\s*[,/&+|、和与及]\s*|\s+)(?:and\s+)?"
_ATTN = r"(?:attention|attn)"
_QUERY, _KEY, _VALUE = r"q(?:uer(?:y|ies))?", r"k(?:eys?)?", r"v(?:alues?)?"
_OUT = r"o(?:ut(?:put)?)?"
_PROBABILITIES = (
    rf"(?:{_ATTN}[\s-]*(?:weights?|scores?|probs?|probabilities|matrix|pattern)?|softmax(?:\([^)]*\))?"
    r"|weights|scores?|probs?|probabilities|\ba|\bp)"
)
_TIMES = r"\s*(?:[@·×*x]|times|by|on|to|with|applied to|over|dot)\s*(?:the\s+)?"
_OF_VALUES = r"(?:\s+(?:of|over)\s+(?:the\s+)?(?:values?|v)\b)?"
_TABLE = r"(?:[\s_-]*(?:table|matrix|layer|look-?up|weights?))?\b"
_QK = r"q\s*[·@×*]?\s*k(?:\s*\^?\s*\(?(?:t|top|transpose)\b\)?)?"

_ANY_PROJECTION = (PROJECTIONS, _Q, _O)

_COMPONENTS: tuple[tuple[str, tuple[frozenset[str], ...]], ...] = (
    # The head first: "output embedding" is no embedding, and "output projection to the vocabulary" no attention.
    (
        r"\blm[\s_-]*head(?:[\s_-]*(?:proj(?:ection)?|matmul|linear))?\b|\blanguage[\s-]model(?:l?ing)?[\s_-]*head\b"
        r"|\b(?:un|de)-?embed(?:ding)?\b|\boutput[\s_-]*emb(?:ed(?:ding)?)?s?\b"
        r"|\bvocab(?:ulary)?[\s_-]*(?:proj(?:ection)?|head|logits)\b|\b(?:linear|output|final)[\s_-]*head\b"
        r"|\b(?:output |final )?(?:linear |projection |proj |map\w* )?(?:to|onto|into) (?:the )?(?:vocab\w*|logits)\b"
        r"|\blogits?\b(?:[\s_-]*(?:proj(?:ection)?|matmul|layer))?"
        r"|\bfinal[\s_-]*(?:linear|proj(?:ection)?)(?:[\s_-]*layer)?\b|\boutput[\s_-]*(?:layer|linear)\b"
        r"|语言模型头|输出头|输出层|(?:输出)?(?:投影)?到词表|词表(?:投影|头|输出)|(?:最终|最后)(?:的)?(?:线性"
        r"|投影)层?|(?:输出|反|解)嵌入|分类头",
        (HEAD,),
    ),
    # Both products together before either.
    (
        rf"\b(?:{_ATTN}[\s_-]*)?scores?\s*(?:/|and|\+|&)\s*(?:values?|weighted sums?|sums?)\b"
        r"(?:[\s_-]*(?:matmuls?|products?|multiplies|multiplications?))?|注意力分数(?:及|和|与|、|/)加权(?:求和|平均|和)(?:计算)?"
        r"|\bqk\^?t?\s*(?:\+|and|&|/|,)\s*(?:[ap]v|score-?v|attn[\s@·×*-]*v)\b",
        (POSITION_PAIRS,),
    ),
    # Weights times values before scores: "attention scores × V" is the second of the two.
    (
        rf"{_PROBABILITIES}{_TIMES}(?:values?|v)\b|\bsoftmax\s*\([^)]*\)\s*v\b|\bscore-?v\b|\b[ap]\s*[·@×*]?\s*v\b"
        rf"|\b{_ATTN}[\s_·@×*-]*v\b|\bweighted[\s_-]*(?:sum|average|values?|combination){_OF_VALUES}"
        rf"|\b{_ATTN}[\s_-]*weighted\b|\b{_ATTN}[\s_-]*(?:output[\s_-]*)?values?(?:[\s_-]*(?:multipl\w+|product"
        rf"|term))?\b(?!{_PROJ})"
        r"|\bvalues?[\s_-]*(?:aggregation|mixing|multipl\w+|term)\b"
        r"|注意力(?:权重|分数|概率|矩阵)\s*[×乘·*@]\s*以?\s*(?:v\b|值)|(?:对)?(?:v|值)?的?加权(?:求和|平均|和)",
        (_VALUES,),
    ),
    (
        rf"\b{_QK}(?:\s+(?:scores?|matmul|product))?(?![a-z])|\b(?:qk|kq)\b(?:\s+scores?)?"
        rf"|\b{_ATTN}[\s_-]*(?:score|logit)s?\b|\bscores?\b"
        r"|\bquer(?:y|ies)[\s-]*(?:times |with every |and )?keys?[\s-]*(?:dot|multipl\w+|products?|scores?)\b"
        r"|注意力(?:分数|得分|打分)|q\s*乘\s*k|点积分数",
        (_SCORES,),
    ),
    (
        r"\b(?:t|s|n)(?:²|\^2|-squared| squared)[\s-]*(?:terms?|项)?|\bquadratic[\s-]*(?:terms?|attention|part)\b"
        r"|\bsdpa\b|\bscaled dot[\s-]product(?:[\s-]attention)?\b"
        rf"|\b{_ATTN}[\s_-]*(?:mechanism|matri(?:x|ces)|multiplies|matmuls|terms?|core|computation)\b"
        rf"|\bposition pairs?\b"
        r"|二次项|平方项|(?:注意力)?(?:二次|平方)部分|缩放点积(?:注意力)?|注意力(?:矩阵|核心|计算)",
        (POSITION_PAIRS,),
    ),
    # Matrices of the feed-forward, before a projection without a name of its own.
    (r"\bw[_^]?1(?:_?proj)?\b|\bgate(?:[\s_-]*proj(?:ection)?)?\b|\bgating\b|门控(?:投影)?", (_W1,)),
    (r"\bw[_^]?2(?:_?proj)?\b|\bdown(?:[\s_-]*proj(?:ection)?)?\b|(?:下|降维)投影", (_W2,)),
    (
        r"\bw[_^]?3(?:_?proj)?\b|\bup(?:[\s_-]*proj(?:ection)?)\b|(?<=[/(,] )up\b|(?<=[/(,])up\b|^\W*up\b|(?:上"
        r"|升维)投影",
        (_W3,),
    ),
    # Projections, joined and single.
    (
        rf"\b{_QUERY}{_JOIN}{_KEY}{_JOIN}{_VALUE}{_JOIN}(?:{_ATTN}\s+)?(?:{_OUT}\b(?:{_PROJ})?|输出(?:投影)?)"
        rf"|\bqkv[\s+/_,&]*(?:and\s+)?{_OUT}\b(?:{_PROJ})?",
        (PROJECTIONS,),
    ),
    (
        rf"\b{_QUERY}{_JOIN}{_KEY}{_JOIN}{_VALUE}\b(?:{_PROJ}|\s*投影)?|\b(?:w_?)?qkv(?:{_PROJ}|\s*投影|\b)",
        (_Q | _K | _V,),
    ),
    (rf"\b{_KEY}{_JOIN}{_VALUE}\b(?:{_PROJ})?|\bkv{_PROJ}", (_K | _V,)),
    (
        rf"\b(?:all )?(?:four|4) (?:{_ATTN} )?(?:linear )?projections\b|\b{_ATTN}[\s_-]*(?:linear[\s_-]*)?{_PROJ_WORD}"
        rf"|\blinear projections?(?: (?:in|of) (?:the )?{_ATTN})?\b|(?:四个?|4 ?个?)?(?:注意力"
        rf"|线性)(?:的)?投影(?:层|矩阵)?",
        (PROJECTIONS,),
    ),
    (
        rf"\b{_ATTN}[\s_-]*out(?:put)?(?:{_PROJ})?(?!\w)|\bout{_PROJ}|\bo{_PROJ}|\bw[_^]?o\b|注意力输出投影|\bo\s*投影",
        (_O,),
    ),
    (rf"\boutput{_PROJ}|输出投影", (_O, HEAD)),
    (rf"\b{_QUERY}{_PROJ}|\bw[_^]?q\b|\bquer(?:y|ies)\b|查询(?:投影)?|\bq\s*投影", (_Q,)),
    (rf"\b{_KEY}{_PROJ}|\bw[_^]?k\b|\bkeys?\b|键(?:投影)?|\bk\s*投影", (_K,)),
    (rf"\b{_VALUE}{_PROJ}|\bw[_^]?v\b|值投影|\bv\s*投影", (_V,)),
    (r"\bvalues\b", (_V, _VALUES)),
    (r"\bprojections?\b|投影(?:层|矩阵)?", _ANY_PROJECTION),
    # Feed-forward.
    (
        r"(?:\bposition[\s-]?wise )?\bfeed[\s_-]?forward(?:[\s_-]*network)?s?\b|\bffns?\b|\bmlps?\b|\b(?:swi)?glu\b"
        r"|(?:逐位置)?前馈(?:神经)?(?:网络)?(?:层)?|\bffw\b",
        (FEED_FORWARD,),
    ),
    # Norms and embedding.
    (
        r"\b(?:final|last)[\s_-]*(?:rms|layer)?[\s_-]?norm\b|\bln[\s_-]?f(?:inal)?\b|\bnorm[\s_-]?final\b"
        r"|(?:最终|最后)(?:的)?(?:层)?归一化|(?:最终|最后)(?:的)?\s*rmsnorm\b",
        (_FINAL_NORM,),
    ),
    (
        r"\b(?:rms|layer)[\s_-]?norms?\b|\bnorms?\b|\bgains\b|(?:层)?归一化(?:层)?",
        (BLOCK_NORMS, NORMS, frozenset(("ln1",)), _FINAL_NORM),
    ),
    (r"\bln[\s_-]?1\b", (frozenset(("ln1",)),)),
    (r"\bln[\s_-]?2\b", (frozenset(("ln2",)),)),
    (r"\bembeddings? (?:and|\+) (?:the )?(?:lm[\s_-]?)?head\b", (VOCABULARY,)),
    (r"\bembeddings\b|\bvocab(?:ulary)? matrices\b", (VOCABULARY, _EMBEDDING)),
    (
        rf"\b(?:(?:token|input|word)[\s_-]*)?embed(?:ding)?s?{_TABLE}|\blook-?up\b|\bemb\b|(?:词|输入"
        rf"|token\s*)?嵌入(?:层|矩阵|表)?",
        (_EMBEDDING,),
    ),
    (r"\bhead\b(?! size| dim)", (HEAD,)),
    # The whole attention sublayer is read as each of the things that people mean by it.
    (
        rf"\b(?:causal[\s-]*)?(?:multi-?head[\s-]*)?(?:self-?\s?)?{_ATTN}(?:[\s-]*(?:sub)?(?:layer|block|module))?s?\b"
        r"|\bmhs?a\b|\bcausalmultihead\w*\b|(?:因果)?(?:多头)?(?:自)?注意力(?:机制|层|模块|子层|部分)?",
        (ATTENTION, POSITION_PAIRS, PROJECTIONS),
    ),
    (r"\bnon-?embedding\b|非嵌入", (BLOCK | _FINAL_NORM,)),
    (
        r"\b(?:transformer[\s_-]*)?(?:blocks?|layers?)\b|(?<=[每个有所层单 \d])(?:transformer\s*)?(?:块|层)(?!归一)",
        (BLOCK,),
    ),
    (
        r"\b(?:grand[\s_-]*)?total\b|\bsum\b|\boverall\b|\baltogether\b|\bin all\b"
        r"|\b(?:whole|entire|full) (?:model|network|forward pass)\b|总计|总共|合计|共计|总和|总量"
        r"|总的?(?=[\sa-z参计浮运内显字]|$)|(?:整个)?模型(?:总)?(?=共|有|的?参数|需)|共(?=\s*\d)",
        (EVERYTHING,),
    ),
)

_REFERENCE = re.compile(
    r"(?<=[a-z])['’]s\b"
    r"|\b(?:of|over|by) (?:the |its |all )?(?:grand |overall )?(?:total|sum|whole)\b(?: (?:model|flops|forward pass"
    r"|compute))?"
    r"|占\s*总\w{0,3}",
    re.IGNORECASE,
)
_SUFFIX = re.compile(
    r"(?<=[a-z]{2})_(?=(?:flops?|params?|parameters|bytes|memory|shares?|percent|fraction|total|\d)\b)", re.IGNORECASE
)
_PER_HEAD = re.compile(
    r"\b(?:per|each|one|every|single|query|kv|key/value|attention|of the|in each(?: query)?)[\s-]heads?\b|\bnum_heads\b"
    r"|每个?头",
    re.IGNORECASE,
)
_LETTER = re.compile(r"\W*([qkvo])\W*", re.IGNORECASE)
_PER_LAYER = re.compile(
    r"\b(?:per|each|every|one|single|a|for each)[\s_-]+(?:single |transformer |of the )?(?:block|layer)s?\b"
    r"|\b(?:block|layer)[\s_-]*subtotal\b|/\s?(?:layer|block)\b|\b[pf]_?block\b|\b(?:in_)?one_block\b"
    r"|^\W*(?:block|layer)\W*$"
    r"|\b(?:each|every|one) of (?:the )?(?:\d+ )?(?:transformer )?(?:layers|blocks)\b"
    r"|每(?:一)?(?:个)?\s*(?:transformer\s*)?(?:层|块)|单(?:个)?(?:层|块)",
    re.IGNORECASE,
)
_ALL_LAYERS = re.compile(
    r"\b(?:all|across|over|for)(?: the| all)?(?: \d+)? (?:transformer )?(?:layers?|blocks?)\b|\ball layers\b"
    r"|(?<!\w)(?:[×*]\s?(?-i:L)|(?-i:[×x*])\s?\d{2,3})\b(?!\s*[×x*])|\b(?-i:L)\s?[×*]"
    r"|\b\d{1,3} (?:transformer )?(?:layers|blocks)\b|\btransformer blocks\b|所有\s*(?:层|块)|全部\s*(?:层|块)"
    r"|\d+\s*(?:个)?(?:层|块)",
    re.IGNORECASE,
)

_PLAIN_ENGLISH = """
the a an of in on at by to for from with and or it its their this that these they there which where we you one two
three four both all every each per only just then thus so hence therefore is are was were be has have had hold holds
take takes up cost costs need needs require requires use uses used account accounts make makes spend spends spent go
goes come comes give gives get gets equal equals contribute contributes contain contains own owns become becomes rise
rises reduce reduces large larger great greater many much grow grows fall falls drop drops increase increases decrease
decreases about around approximately approx roughly nearly almost ca circa some exactly now overall together combined
single whole entire full our my here still model network decoder transformer gpt gpt2 xl forward pass sequence token
tokens position positions context length input batch flop flops kflop mflop gflop tflop pflop kflops mflops gflops
tflops pflops tf gf mac macs param params parameter parameters trainable learnable weight weights number numbers
occupy occupies count counts back down first width queries keys values times q k v o x term terms part parts operation
operations memory storage byte bytes kb mb gb tb kib mib gib tib float32 fp32 float precision compute computation
multiply multiplies matmul matmuls matrix matrices multiplication multiplications layer layers block blocks share
shares proportion proportions percent percentage fraction fractions million millions billion billions trillion
trillions thousand cumulative sub subtotal small medium load loading store storing linear output most largest biggest
highest dominate dominates dominant second next also what does do not no untied rms projection projections when while
but answer result as amount amounts if size value component name module total totals theoretical
"""
_KNOWN = frozenset(_PLAIN_ENGLISH.split())
_KNOWN_HAN = frozenset(
    "的占约为是有个需要大即其中在到从至升降上下共总计参数量字节显内存储浮点运算次前向传播一模型网络整每层块所全部比例份额百"
    "按精分各该而且则以及和与了增长加减少变成后时序列度单位求得结果答案可训练载入用花费达消耗等于故因此这些它们我出多余最高仅只"
)
_WORD = re.compile(r"[a-z0-9_]*[a-z][a-z0-9_]*")

_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\u2028")
_INSTRUCTION = re.compile(
    r"^\W*(?:please |now |then )*(?:fill|write|state|give|list|name|identify|describe|compute|calculate|derive|add"
    r"|provide|report|show|explain|complete|enter|put|say|replace|choose|repeat|do not|don't|remember)\b"
    r"|\b(?:may|might|should|must|if|whether|please)\b|(?<!\bwe )\bcan\b|\byour?\b|\?\W*$",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """A stretch of text that names components, and the readings it allows, the likeliest first."""

    start: int
    end: int
    readings: tuple[frozenset[str], ...]


@functools.cache
def _compiled() -> tuple[tuple[re.Pattern[str], tuple[frozenset[str], ...]], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), readings) for pattern, readings in _COMPONENTS)


@functools.lru_cache(maxsize=1024)
def find_mentions(words: str) -> tuple[Mention, ...]:
    """The mentions in a text, in order; no two overlap, the more special pattern wins."""
    found, _ = _read(words)
    ends = [-9, *(mention.end for mention in found)]
    # "The output layer's projection" names one thing: what a bare projection stands behind.
    return tuple(
        mention
        for mention, end in zip(found, ends, strict=False)
        if mention.readings != _ANY_PROJECTION or mention.start - end > 1
    )


@functools.lru_cache(maxsize=1024)
def unknown_words(words: str) -> tuple[str, ...]:
    """The words of a text that are neither a component's name nor plain English or Chinese of an account."""
    _, rest = _read(words)
    han = (character for character in rest if "\u4e00" <= character <= "\u9fff" and character not in _KNOWN_HAN)
    return (*(word for word in _WORD.findall(rest.lower()) if word not in _KNOWN), *han)


@functools.lru_cache(maxsize=1024)
def _read(words: str) -> tuple[list[Mention], str]:
    """The mentions in a text, in order, and the text without them."""
    text = _prepared(words)
    found: list[Mention] = []
    for pattern, readings in _compiled():
        for match in pattern.finditer(text):
            found.append(Mention(match.start(), match.end(), readings))
            text = text[: match.start()] + "\x00" * (match.end() - match.start()) + text[match.end() :]
    return sorted(found, key=lambda mention: mention.start), text


def _prepared(words: str) -> str:
    """A text where what names no component is blank, and ``w1_flops`` or ``RMSNorm_1`` are two words."""
    return _SUFFIX.sub(" ", _REFERENCE.sub(_blank, _PER_HEAD.sub(_blank, words)))


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group(0))


def readings_of_label(words: str) -> list[frozenset[str]]:
    """The sets of components that a label may stand for, the likeliest first; see ``readings_of_mentions``."""
    if letter := _LETTER.fullmatch(words):
        return [{"q": _Q, "k": _K, "v": _V, "o": _O}[letter.group(1).lower()]]
    mentions = find_mentions(words)
    readings = readings_of_mentions(mentions)
    if len(mentions) > 1 and re.search(r"[(/（]", words):  # "attention output (scores @ V)" names one thing twice
        readings += [mention.readings[0] for mention in mentions if mention.readings[0] not in readings]
    return readings


def readings_of_mentions(mentions: Sequence[Mention]) -> list[frozenset[str]]:
    """The unions of some mentions. A group gives way to a member that is named beside it: "SwiGLU w1" is w1."""
    kept = without_groups(mentions)
    if not kept:
        return []
    unions: list[frozenset[str]] = []
    for choice in itertools.islice(itertools.product(*(mention.readings for mention in kept)), 24):
        union = frozenset().union(*choice)
        if union not in unions:
            unions.append(union)
    return unions


def without_groups(mentions: Sequence[Mention]) -> list[Mention]:
    """The mentions, less the groups that have a member named among them."""
    first = [mention.readings[0] for mention in mentions]
    return [
        mention for mention, reading in zip(mentions, first, strict=True) if not any(other < reading for other in first)
    ]


def scopes_of(words: str) -> set[str]:
    """Whether a text speaks of one ``layer``, of the whole ``model``, of both, or of neither."""
    scopes = set()
    if _PER_LAYER.search(words):
        scopes.add("layer")
    if _ALL_LAYERS.search(words):
        scopes.add("model")
    return scopes


def facts_of(text: str) -> str:
    """The sentences of a text that state something; one that asks, allows or instructs says nothing of an answer."""
    sentences = _SENTENCE_END.split(text.replace("\n", " "))
    return " ".join(sentence for sentence in sentences if not _INSTRUCTION.search(sentence))
