"""How each `tokenizer.ggml.pre` cuts text into words: the table.

The names, and what goes by them besides patterns, are llama.cpp's:
https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp
(`llm_tokenizer_bpe` and `llama_vocab::impl::load`). The patterns are those of the models' own tokenizer.json, which the
comments there quote; where llama.cpp only approximates one, because its regular expressions know no letter case, the
model's own counts. Each is linear: a match consumes all that it looked at but for a bounded number of characters,
and repeats that could try again in many ways are possessive.
"""

from __future__ import annotations

from emel.text.pretokenizers import GroupedDigits, PreTokenizer

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# GPT-2's encoder.py (https://github.com/openai/gpt-2/blob/master/src/encoder.py), also ByteLevel of tokenizers.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(numbers: str, *, contraction: str = _CONTRACTION + "|", marks: str = "", spaces: str = _SPACES) -> str:
    """Llama 3 and its kin: contractions, words with what precedes, numbers, the rest with the line breaks behind it."""
    return (
        rf"{contraction}[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}{marks}]+|{numbers}"
        rf"| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{spaces}"
    )


def _cased_words(
    numbers: str, *, contraction: str = _CONTRACTION + "?", marks: str = r"\p{M}", ends: str = r"\r\n/"
) -> str:
    """GPT-4o and its kin: as above, and a capital letter behind a small one begins another word."""
    upper, lower = rf"\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}{marks}", rf"\p{{Ll}}\p{{Lm}}\p{{Lo}}{marks}"
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]*[{lower}]+{contraction}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{upper}]+[{lower}]*{contraction}"
        rf"|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[{ends}]*|{_SPACES}"
    )


_ONE, _THREE = r"\p{N}", r"\p{N}{1,3}"
_LLAMA3, _QWEN2, _GPT4O = _words(_THREE), _words(_ONE), _cased_words(_THREE)
# SmolLM2 tokenizer.json: Digits(individual_digits) and then ByteLevel, here as one pattern: where a digit is cut off,
# the piece before it ends, and white space that ends a piece stays whole.
_SMOLLM = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_CJK = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_PUNCTUATED = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK3 = rf"{_PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_LINES = r"[^\n]+|[\n]+"
# Letters that have case (DeepSeek LLM's list of them).
_CASED = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    r"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    r"\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    r"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    r"\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    r"\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    r"\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    r"\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    r"\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_ASIAN = (
    r"\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff"
)
_YOUTU = (
    r"[\uac00-\ud7a3\u3131-\u318e]+"
    r"|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|"
)
# Long runs are cut every 512: that the rest of one has no line break is not to be found out again for each.
_JAIS2_SPACES = r"(?<![^\S\r\n])\s*[\r\n]+|" + "".join(
    rf"\s{{{n}}}(?!\S)|" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")
) + r"\s"  # fmt: skip
# (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ without repeats inside repeats.
_EXAONE_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}(?:[\p{L}\p{M}]++| \p{L})*+"
_CHAMELEON = (
    r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", _ONE, r"[\p{P}!-/:-@\[-`{-~]", _GPT2,
)  # fmt: skip
# Han apart, by ranges: \p{Han} of regex would grow with every version of Unicode.
_HAN = (
    r"\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
    r"\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ebef\U0002f800-\U0002fa1f"
)
_KIMI = rf"(?V1)[{_HAN}]+|" + _cased_words(_THREE, marks=rf"\p{{M}}&&[^{_HAN}]", ends=r"\r\n")

# What llama.cpp uses when a file names no pre-tokenizer: punctuation, GPT-2, runs of digits, then three by three.
_DEFAULT = PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

# One line for each way to split; the names in it are models that split this way.
_BY_NAMES = {
    ("default",): _DEFAULT,
    (
        "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "mellum",
        "a.x-4.0", "modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code",
        "roberta-bpe",
    ): PreTokenizer((_GPT2,)),
    (
        "llama-bpe", "llama-v3", "llama3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    ): PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ("smaug-bpe", "dbrx", "chatglm-bpe"): PreTokenizer((_LLAMA3,)),
    ("glm4", "glm5"): PreTokenizer((_LLAMA3,), ignore_merges=True),
    ("minicpm5",): PreTokenizer((_THREE, _words(r"\p{N}+")), ignore_merges=True),
    ("jais-2",): PreTokenizer((_words(_THREE, spaces=_JAIS2_SPACES),)),
    (
        "qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2",
    ): PreTokenizer((_QWEN2,)),
    ("qwen35",): PreTokenizer((_words(_ONE, marks=r"\p{M}"),)),
    ("ufakzeka",): PreTokenizer((_words(_ONE, contraction=""),)),
    ("laguna",): PreTokenizer((_LINES, _QWEN2)),
    ("bailingmoe", "bailingmoe2", "llada-moe"): PreTokenizer(
        (_words(_ONE, spaces=r"\s*[\r\n]|\s+(?!\S)|\s+"),)
    ),
    ("seed-coder",): PreTokenizer(
        (rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)
    ),
    ("exaone-moe",): PreTokenizer(
        (rf"{_CONTRACTION}|{_EXAONE_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",)
    ),
    (
        "smollm", "command-r", "refact", "starcoder", "codeshell", "exaone", "minerva-7b", "mellum2",
    ): PreTokenizer((_SMOLLM,)),
    ("falcon",): PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    ("deepseek-llm",): PreTokenizer(
        (
            r"[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"(?<!\s)\s++\Z", _DEEPSEEK_CJK, r"\p{N}+",
        )
    ),
    ("deepseek-coder",): PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, _ONE)),
    ("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"): PreTokenizer((_THREE, _CJK, _DEEPSEEK3)),
    ("spark2_5",): PreTokenizer(
        (_THREE, _CJK, rf"{_PUNCTUATED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+", _ONE)
    ),
    ("afmoe",): PreTokenizer((GroupedDigits(r"\p{N}+"), rf"[{_ASIAN}]+", _DEEPSEEK3)),
    ("youtu",): PreTokenizer((_YOUTU + _CJK, _cased_words(_ONE)), ignore_merges=True),
    ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"): PreTokenizer((_GPT4O,)),
    ("granite-embed-multi-97m",): PreTokenizer((_GPT4O,), ignore_merges=True),
    ("tekken",): PreTokenizer((_cased_words(_ONE, contraction=""),), ignore_merges=True, add_bos=True),
    ("tiny_aya", "cohere2moe"): PreTokenizer((GroupedDigits(r"(?<!\d)\d++\b"), _GPT4O)),
    ("kimi-k2",): PreTokenizer((_KIMI,)),
    ("superbpe",): PreTokenizer((r"\p{N}+", GroupedDigits(r"\d+"))),
    ("poro-chat", "bloom", "gpt3-finnish"): PreTokenizer((_BLOOM,)),
    ("viking",): PreTokenizer((_BLOOM, _ONE)),
    ("chameleon",): PreTokenizer(_CHAMELEON, add_bos=True),
    # Over characters, not bytes, with marks for spaces.
    ("gemma4", "granite-embed-multi-311m"): PreTokenizer((_LINES,), marks_spaces=True, add_bos=True),
    ("sarvam-moe",): PreTokenizer((_LINES,), marks_spaces=True),
}  # fmt: skip
PRE_TOKENIZERS = {name: pre for names, pre in _BY_NAMES.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of that name; ValueError naming it and the known ones."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise ValueError(f"unknown pre-tokenizer {name!r} (tokenizer.ggml.pre); known: {known}")
    return found
