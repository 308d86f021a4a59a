// SentencePiece's BPE: the pair whose joined text is the token of the highest score is merged first, leftmost among
// equals (Kudo and Richardson 2018; bpe_model.cc of https://github.com/google/sentencepiece).
#pragma once

#include <stdint.h>

#include "emel_text.h"
#include "text/vocab.h"

struct emel_spm {
  const emel_vocab* vocab;
  uint32_t unknown;  // the token of characters that have none and no byte tokens either, or kNoToken
  uint32_t* ranks;  // (n_tokens,) ascending as scores descend; kNoRank where text must not turn into the token
  bool joins_mark_after[256];  // whether some token has a space mark right after this byte
};
