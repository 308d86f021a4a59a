"""Tensor type ids a file may carry that EMEL does not read: removed ones, and those only other projects use."""

from __future__ import annotations

_IK = "ik_llama.cpp"

# id: name, in files written before the type was removed from ggml
_REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

# https://github.com/ikawrakow/ik_llama.cpp/blob/b50efcc9d2de9fee33e0597174327ee08dbe510a/ggml/include/ggml.h
_FORKS = {
    98: (_IK, "Q8_0_X4"),
    99: (_IK, "Q8_1_X4"),
    133: (_IK, "Q6_0"),
    134: (_IK, "IQ1_BN"),
    135: (_IK, "IQ2_BN"),
    136: (_IK, "Q8_K64"),
    137: (_IK, "IQ2_K"),
    138: (_IK, "IQ3_K"),
    139: (_IK, "IQ4_K"),
    140: (_IK, "IQ5_K"),
    141: (_IK, "IQ6_K"),
    142: (_IK, "IQ2_TN"),
    143: (_IK, "IQ1_TN"),
    144: (_IK, "IQ4_KS"),
    145: (_IK, "IQ2_KS"),
    146: (_IK, "IQ4_KSS"),
    147: (_IK, "Q8_K16"),
    148: (_IK, "Q8_K32"),
    149: (_IK, "Q8_KR8"),
    150: (_IK, "Q8_K128"),
    151: (_IK, "Q8_KV"),
    152: (_IK, "IQ5_KS"),
    153: (_IK, "IQ2_KT"),
    154: (_IK, "IQ3_KT"),
    155: (_IK, "IQ4_KT"),
    156: (_IK, "IQ3_KS"),
    157: (_IK, "IQ2_KL"),
    158: (_IK, "IQ1_KT"),
    202: (_IK, "Q4_0_R8"),
    206: (_IK, "Q5_0_R4"),
    208: (_IK, "Q8_0_R8"),
    210: (_IK, "Q2_K_R4"),
    211: (_IK, "Q3_K_R4"),
    212: (_IK, "Q4_K_R4"),
    213: (_IK, "Q5_K_R4"),
    214: (_IK, "Q6_K_R4"),
    216: (_IK, "IQ2_XXS_R4"),
    217: (_IK, "IQ2_XS_R4"),
    218: (_IK, "IQ3_XXS_R4"),
    219: (_IK, "IQ1_S_R4"),
    220: (_IK, "IQ4_NL_R4"),
    221: (_IK, "IQ3_S_R4"),
    222: (_IK, "IQ2_S_R4"),
    223: (_IK, "IQ4_XS_R8"),
    229: (_IK, "IQ1_M_R4"),
    230: (_IK, "BF16_R16"),
    233: (_IK, "Q6_0_R4"),
    335: (_IK, "IQ2_BN_R4"),
    337: (_IK, "IQ2_K_R4"),
    338: (_IK, "IQ3_K_R4"),
    339: (_IK, "IQ4_K_R4"),
    340: (_IK, "IQ5_K_R4"),
    344: (_IK, "IQ4_KS_R4"),
    352: (_IK, "IQ5_KS_R4"),
    397: (_IK, "Q8_K_R16"),
    398: (_IK, "Q8_KV_R8"),
    399: (_IK, "Q8_K_R8"),
}


def describe_foreign_id(type_id: int) -> str:
    """One line: what a type id that is no TensorType is, and what to do."""
    if type_id in _REMOVED:
        return (
            f"type {type_id} ({_REMOVED[type_id]}) was removed from GGUF: "
            "convert the model again, or use a newer file of it"
        )
    if type_id in _FORKS:
        project, name = _FORKS[type_id]
        return f"type {type_id} ({name}) belongs to {project}: use a file quantised by llama.cpp"
    return f"type {type_id} is unknown: allowed are GGUF's ids 0 to 41"
