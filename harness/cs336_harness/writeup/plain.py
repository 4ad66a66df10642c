"""Markdown and LaTeX inline text as plain characters, so that a number is a number however it was typeset."""

from __future__ import annotations

import dataclasses
import re

HARD_BREAK = "\u2028"
"""What a line break that the author asked for becomes; a newline only wraps a line."""

# No gap may hold its own opening mark: a text of nothing but those would be searched to its end from each of them.
_FORMULA = re.compile(
    r"(?<!`)(?P<code>`++)(?P<inside>.+?)(?<!`)(?P=code)(?!`)|\$\$(.+?)\$\$|\$([^$]+)\$"
    r"|(?<!\\)\\\(((?:(?!(?<!\\)\\\(|\\\)).)++)\\\)|(?<!\\)\\\[((?:(?!(?<!\\)\\\[|\\\]).)++)\\\]",
    re.DOTALL,
)

_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|mathsf|operatorname|boxed|emph|underline|mbox|bm"
    r"|d?frac(?=\{[^{}]*\}$))"
    r"\s*\{([^{}]*)\}"
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")

_LATEX = (
    (re.compile(r"(?<=\d)\\[,;:! ](?=\d{3})"), ","),
    (re.compile(r"\\(?:times|cdot|ast)(?![a-zA-Z])"), "×"),
    (re.compile(r"\\(?:approx|simeq|sim|cong|thickapprox)(?![a-zA-Z])"), "≈"),
    (re.compile(r"\\(?:top|intercal)(?![a-zA-Z])"), "T"),
    (re.compile(r"\\(?:left|right|displaystyle|begin\{\w+\*?\}|end\{\w+\*?\}|big|Big|bigg|Bigg)(?![a-zA-Z])"), ""),
    (re.compile(r"\\(?:quad|qquad|[,;:! ])"), " "),
    (re.compile(r"\\([%_&#$|{}])"), r"\1"),
    (re.compile(r"\\\\"), HARD_BREAK),
    (re.compile(r"&(?==|≈)"), ""),
    (re.compile(r"([_^])\{([^{}]*)\}"), r"\1\2"),
    (re.compile(r"[{}]|\\[a-zA-Z]+"), ""),
)

_POWER_OF_TEN = re.compile(r"(?<!\d)10\s*\*\*\s*(?=-?\d)")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", "0123456789+-T")
_FULL_WIDTH = str.maketrans("（），：；＝％～＋×－／｜　", "(),:;=%~+×-/| ")
_FULL_WIDTH_DIGITS = str.maketrans("０１２３４５６７８９．", "0123456789.")
_HAN = r"[\u4e00-\u9fff]"
_SIGNS = _FULL_WIDTH | str.maketrans("₀₁₂₃₄₅₆₇₈₉≃≅∼∗⋅✕−\u00a0\u2009\u202f", "0123456789≈≈≈*·×-   ") | {ord("ᵀ"): "^T"}


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A piece of text twice, character for character: ``text`` whole, ``words`` with its formulas blanked.

    A letter in a formula (the V of 2TDV) is no word, while a number in it is still a number.
    """

    text: str
    words: str


def plain(raw: str) -> Plain:
    """The plain form of raw inline Markdown."""
    raw = _spaced(raw)
    text = words = ""
    position = 0
    for match in _FORMULA.finditer(raw):
        prose = _plain_prose(raw[position : match.start()])
        formula = _latex(next(group for group in match.groups()[1:] if group is not None))
        # T$^2$ is one word
        piece = f"{formula.lstrip() if formula.lstrip().startswith(('^', '_')) else ' ' + formula} "
        text += prose + piece
        words += prose + (" " * len(piece) if _is_formula(piece) else piece)
        position = match.end()
    prose = _plain_prose(raw[position:])
    return Plain(text + prose, words + prose)


def code(raw: str) -> Plain:
    """The plain form of a line of code, where ``**`` is a power and an underscore is part of a name."""
    text = _characters(_spaced(_POWER_OF_TEN.sub("10^", raw.replace("`", ""))))
    text = re.sub(r"(?<=\d)_(?=\d{3}(?!\d))", ",", text)
    return Plain(text, text)


def full_width_as_ascii(text: str) -> str:
    """The text with the punctuation of Chinese typesetting written as in English; no place in it moves."""
    return text.translate(_FULL_WIDTH)


def _spaced(raw: str) -> str:
    """A space between Han characters and letters, digits or marks, so that a word is a word in either script."""
    if raw.isascii() or not re.search(_HAN, raw):
        return raw
    raw = raw.translate(_FULL_WIDTH_DIGITS)
    return re.sub(rf"(?<={_HAN})(?=[A-Za-z0-9$~≈`])|(?<=[A-Za-z0-9%$`²])(?={_HAN})", " ", raw)


def _is_formula(piece: str) -> bool:
    """Whether a code or math span is an expression; a name such as `w1`, $QK^T$ or `A · V` is none."""
    if "=" in piece or "≈" in piece:
        return True
    operators = re.search(r"[*×+/]", piece)
    return bool(re.search(r"\d\s*[A-Za-z(]", piece) or (operators and (re.search(r"\d\d", piece) or len(piece) > 30)))


def _plain_prose(raw: str) -> str:
    raw = re.sub(r"<sup>([^<]*)</sup>", lambda match: f"^{match.group(1).strip()}", raw)
    raw = re.sub(r"<br\s*/?>", HARD_BREAK, raw)
    raw = _POWER_OF_TEN.sub("10^", re.sub(r"</?[A-Za-z][^<>]*>", "", raw))
    raw = re.sub(r"!?\[([^\[\]]*)\]\([^()]*\)", r"\1", raw)
    raw = re.sub(r"\*\*|__(?=\S)|(?<=\S)__", "", raw)
    raw = re.sub(r"(?<![\w*)])\*(?=\S)|(?<=\S)\*(?![\w*(])", "", raw)
    return _latex(raw)


def _latex(raw: str) -> str:
    """Inline LaTeX, or a text without any, in plain characters."""
    raw = _POWER_OF_TEN.sub("10^", raw)
    if "\\" in raw or "{" in raw:
        raw = raw.replace("{,}", ",")
        for _ in range(4):
            unwrapped = _FRACTION.sub(r"(\1)/(\2)", _WRAPPERS.sub(r"\1", raw))
            if unwrapped == raw:
                break
            raw = unwrapped
        for pattern, replacement in _LATEX:
            raw = pattern.sub(replacement, raw)
    return _characters(raw)


def _characters(text: str) -> str:
    text = re.sub(r"(?<=10)([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+)", lambda match: "^" + match.group(1).translate(_SUPERSCRIPTS), text)
    text = re.sub(r"(?<=\d)[\u00a0\u2009\u202f_'’](?=\d{3}(?!\d))", ",", text).translate(_SIGNS)
    return re.sub(r"(?<=10)\^\s*\(?([+-]?\d+)\)?", r"^\1", text)
