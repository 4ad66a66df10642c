"""Which components a label or a sentence speaks of, in the words that people use for them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

from cs336_harness.cost.ledger import BLOCK, BLOCK_NORMS, EVERYTHING, FEED_FORWARD, POSITION_PAIRS, PROJECTIONS

_Q, _K, _V, _O = (frozenset((name,)) for name in ("q_proj", "k_proj", "v_proj", "output_proj"))
_SCORES, _VALUES = frozenset(("scores",)), frozenset(("values",))
_W1, _W2, _W3 = (frozenset((name,)) for name in ("w1", "w2", "w3"))
_HEAD = frozenset(("lm_head",))
_EMBEDDING = frozenset(("token_embeddings",))
_FINAL_NORM = frozenset(("ln_final",))

_PROJ_WORD = r"(?:proj(?:ection)?s?|matri(?:x|ces)|weights?)\b"
_PROJ = rf"[\s_-]*{_PROJ_WORD}"
_JOIN = r"(?:\s*[,/&+|]\s*|\s+)(?:and\s+)?"
_ATTN = r"(?:attention|attn)"
_QUERY, _KEY, _VALUE = r"q(?:uer(?:y|ies))?", r"k(?:eys?)?", r"v(?:alues?)?"
_OUT = r"o(?:ut(?:put)?)?"
_PROBABILITIES = (
    rf"(?:{_ATTN}[\s-]*(?:weights?|scores?|probs?|probabilities|matrix|pattern)?|softmax(?:\([^)]*\))?"
    r"|weights|scores?|probs?|probabilities|\ba|\bp)"
)
_TIMES = r"\s*(?:[@·×*x]|times|by|on|to|with|applied to|over)\s*(?:the\s+)?"
_OF_VALUES = r"(?:\s+(?:of|over)\s+(?:the\s+)?(?:values?|v)\b)?"
_TABLE = r"(?:[\s_-]*(?:table|matrix|layer|look-?up))?\b"

_PATTERNS: tuple[tuple[tuple[str, ...], tuple[frozenset[str], ...]], ...] = (
    # The head first: "output embedding" is no embedding, and "output projection to the vocabulary" no attention.
    (
        (
            r"\blm[\s_-]*head\b|\blanguage[\s-]model(?:l?ing)?[\s_-]*head\b",
            r"\b(?:un|de)-?embed(?:ding)?\b|\boutput[\s_-]*embed(?:ding)?s?\b",
            r"\bvocab(?:ulary)?[\s_-]*(?:proj(?:ection)?|head|logits)\b|\b(?:linear|output|final)[\s_-]*head\b",
            r"\b(?:output |final )?(?:linear |projection |proj |map\w* )?(?:to|onto|into) (?:the )?vocab\w*\b",
            r"\blogits\b|\bfinal[\s_-]*(?:linear|proj(?:ection)?)(?:[\s_-]*layer)?\b|\boutput[\s_-]*(?:layer|linear)\b",
        ),
        (_HEAD,),
    ),
    # Weights times values before scores: "attention scores × V" is the second of the two.
    (
        (
            rf"{_PROBABILITIES}{_TIMES}(?:values?|v)\b|\bsoftmax\s*\([^)]*\)\s*v\b|\bscore-?v\b|\ba\s*[·@×*]?\s*v\b|\b{_ATTN}[\s_·@×*-]*v\b",
            rf"\bweighted[\s_-]*(?:sum|average|values?|combination){_OF_VALUES}|\b{_ATTN}[\s_-]*weighted\b",
            rf"\b{_ATTN}[\s_-]*(?:output[\s_-]*)?values?(?:[\s_-]*(?:multipl\w+|product|term))?\b(?!{_PROJ})",
            r"\bvalues?[\s_-]*(?:aggregation|mixing|multipl\w+|term)\b",
        ),
        (_VALUES,),
    ),
    (
        (
            r"\bq\s*[·@×*]?\s*k\s*\^?\s*\(?(?:t|top|transpose)\b\)?|\bq\s*[·@×*]\s*k\b|\b(?:qk|kq)\b(?:\s+scores?)?",
            rf"\b{_ATTN}[\s_-]*(?:score|logit)s?\b|\bscores?\b",
            r"\bquer(?:y|ies)[\s-]*(?:times |with every |and )?keys?[\s-]*(?:dot|multipl\w+|products?|scores?)\b",
        ),
        (_SCORES,),
    ),
    (
        (
            r"\b(?:t|s|n)(?:²|\^2|-squared| squared)[\s-]*(?:terms?)?|\bquadratic[\s-]*(?:terms?|attention|part)\b",
            r"\bsdpa\b|\bscaled dot[\s-]product(?:[\s-]attention)?\b",
            rf"\b{_ATTN}[\s_-]*(?:mechanism|matri(?:x|ces)|multiplies|matmuls|terms?)\b|\bposition pairs?\b",
        ),
        (POSITION_PAIRS,),
    ),
    # Projections, joined and single.
    (
        (
            rf"\b{_QUERY}{_JOIN}{_KEY}{_JOIN}{_VALUE}{_JOIN}(?:{_ATTN}\s+)?{_OUT}\b(?:{_PROJ})?",
            rf"\bqkv[\s+/_,&]*(?:and\s+)?{_OUT}\b(?:{_PROJ})?",
        ),
        (PROJECTIONS,),
    ),
    ((rf"\b{_QUERY}{_JOIN}{_KEY}{_JOIN}{_VALUE}\b(?:{_PROJ})?|\b(?:w_?)?qkv\b(?:{_PROJ})?",), (_Q | _K | _V,)),
    ((rf"\b{_KEY}{_JOIN}{_VALUE}\b(?:{_PROJ})?|\bkv{_PROJ}",), (_K | _V,)),
    (
        (
            rf"\b(?:all )?(?:four|4) (?:{_ATTN} )?(?:linear )?projections\b",
            rf"\b{_ATTN}[\s_-]*(?:linear[\s_-]*)?{_PROJ_WORD}",
            rf"\blinear projections?(?: (?:in|of) (?:the )?{_ATTN})?\b",
        ),
        (PROJECTIONS,),
    ),
    (
        (
            rf"\b{_ATTN}[\s_-]*out(?:put)?(?:{_PROJ})?(?!\w)|\bout(?:put)?{_PROJ}|\bo{_PROJ}",
            r"\bw[_^]?o\b|\boutput projection",
        ),
        (_O,),
    ),
    ((rf"\b{_QUERY}{_PROJ}|\bw[_^]?q\b|\bquer(?:y|ies)\b",), (_Q,)),
    ((rf"\b{_KEY}{_PROJ}|\bw[_^]?k\b|\bkeys?\b",), (_K,)),
    ((rf"\b{_VALUE}{_PROJ}|\bw[_^]?v\b",), (_V,)),
    ((r"\bvalues?\b",), (_V, _VALUES)),
    ((r"\bprojections?\b",), (PROJECTIONS, _Q, _O)),
    # Feed-forward.
    ((r"\bw[_^]?1(?:_?proj)?\b|\bgate(?:[\s_-]*proj(?:ection)?)?\b|\bgating\b",), (_W1,)),
    ((r"\bw[_^]?2(?:_?proj)?\b|\bdown(?:[\s_-]*proj(?:ection)?)?\b",), (_W2,)),
    (
        (r"\bw[_^]?3(?:_?proj)?\b|\bup(?:[\s_-]*proj(?:ection)?)\b", r"(?<=[/(,] )up\b|(?<=[/(,])up\b|^\W*up\b"),
        (_W3,),
    ),
    (
        (r"(?:\bposition[\s-]?wise )?\bfeed[\s_-]?forward(?:[\s_-]*network)?s?\b", r"\bffns?\b|\bmlps?\b|\bswiglu\b"),
        (FEED_FORWARD,),
    ),
    # Norms and embedding.
    (
        (r"\b(?:final|last)[\s_-]*(?:rms|layer)?[\s_-]?norm\b|\bln[\s_-]?f(?:inal)?\b|\bnorm[\s_-]?final\b",),
        (_FINAL_NORM,),
    ),
    (
        (r"\b(?:rms|layer)[\s_-]?norms?\b|\bnorms?\b|\bgains\b",),
        (BLOCK_NORMS, BLOCK_NORMS | _FINAL_NORM, frozenset(("ln1",)), _FINAL_NORM),
    ),
    ((r"\bln[\s_-]?1\b",), (frozenset(("ln1",)),)),
    ((r"\bln[\s_-]?2\b",), (frozenset(("ln2",)),)),
    ((r"\bembeddings? (?:and|\+) (?:the )?(?:lm[\s_-]?)?head\b",), (_EMBEDDING | _HEAD,)),
    ((r"\bembeddings\b|\bvocab(?:ulary)? matrices\b",), (_EMBEDDING | _HEAD, _EMBEDDING)),
    (
        (rf"\b(?:(?:token|input|word)[\s_-]*)?embed(?:ding)?s?{_TABLE}|\blook-?up\b",),
        (_EMBEDDING,),
    ),
    ((r"\bhead\b(?! size| dim)",), (_HEAD,)),
    # The whole attention sublayer is read as each of the things that people mean by it.
    (
        (
            rf"\b(?:causal[\s-]*)?(?:multi-?head[\s-]*)?(?:self-?\s?)?{_ATTN}(?:[\s-]*(?:sub)?(?:layer|block|module))?s?\b",
            r"\bmhs?a\b|\bcausalmultihead\w*\b",
        ),
        (PROJECTIONS | POSITION_PAIRS, POSITION_PAIRS, PROJECTIONS),
    ),
    ((r"\bnon-?embedding\b",), (BLOCK | _FINAL_NORM,)),
    ((r"\b(?:transformer[\s_-]*)?(?:blocks?|layers?)\b",), (BLOCK,)),
    (
        (
            r"\b(?:grand[\s_-]*)?total\b|\bsum\b|\boverall\b|\baltogether\b|\bin all\b",
            r"\b(?:whole|entire|full) (?:model|network|forward pass)\b",
        ),
        (EVERYTHING,),
    ),
)

_COMPILED = tuple((re.compile("|".join(patterns), re.IGNORECASE), readings) for patterns, readings in _PATTERNS)
_REFERENCE = re.compile(r"\b(?:of|over|by) (?:the |its |all )?(?:grand |overall )?(?:total|sum|whole)\b", re.IGNORECASE)
_PER_HEAD = re.compile(
    r"\b(?:per|each|one|every|single|query|kv|key/value|attention|of the|in each(?: query)?)[\s-]heads?\b"
    r"|\bnum_heads\b",
    re.IGNORECASE,
)
_LETTER = re.compile(r"\W*([qkvo])\W*", re.IGNORECASE)
_PER_LAYER = re.compile(
    r"\b(?:per|each|every|one|single|a|for each)[\s_-]+(?:single |transformer |of the )?(?:block|layer)s?\b"
    r"|\b(?:block|layer)[\s_-]*(?:sub)?total\b|/\s?(?:layer|block)\b|\b[pf]_?block\b|\b(?:in_)?one_block\b"
    r"|\b(?:each|every|one) of (?:the )?(?:\d+ )?(?:transformer )?(?:layers|blocks)\b",
    re.IGNORECASE,
)
_ALL_LAYERS = re.compile(
    r"\b(?:all|across|over|for)(?: the| all)?(?: \d+)? (?:transformer )?(?:layers?|blocks?)\b|\ball layers\b"
    r"|(?<!\w)(?:[×*]\s?(?-i:L)|(?-i:[×x*])\s?\d{2,3})\b(?!\s*[×x*])|\b(?-i:L)\s?[×*]"
    r"|\b\d{1,3} (?:transformer )?(?:layers|blocks)\b|\btransformer blocks\b",
    re.IGNORECASE,
)
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


@functools.lru_cache(maxsize=512)
def find_mentions(words: str) -> tuple[Mention, ...]:
    """The mentions in a text, in order; no two overlap, the more special pattern wins."""
    text = _PER_HEAD.sub(lambda match: " " * len(match.group(0)), words)
    text = _REFERENCE.sub(lambda match: " " * len(match.group(0)), text)
    found: list[Mention] = []
    for pattern, readings in _COMPILED:
        for match in pattern.finditer(text):
            found.append(Mention(match.start(), match.end(), readings))
            text = text[: match.start()] + "\x00" * (match.end() - match.start()) + text[match.end() :]
    return tuple(sorted(found, key=lambda mention: mention.start))


def readings_of_label(words: str) -> list[frozenset[str]]:
    """The sets of components that a label may stand for, the likeliest first; see ``readings_of_mentions``."""
    if letter := _LETTER.fullmatch(words):
        return [{"q": _Q, "k": _K, "v": _V, "o": _O}[letter.group(1).lower()]]
    return readings_of_mentions(find_mentions(words))


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
