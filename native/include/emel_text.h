/* The text part of EMEL's C ABI (emel.h has its rules): vocabularies, and the encoders over them.
 *
 * Arrays of strings are GGUF's own encoding: each string an unsigned 64-bit length and its bytes. Everything is copied
 * but for the vocabulary an encoder is made over, which must outlive it. A handle is safe to use from many threads.
 * Encoders take any bytes, also such that are no UTF-8, and give no control token. */
#ifndef EMEL_TEXT_H
#define EMEL_TEXT_H

#include "emel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GGUF token types. */
enum {
  EMEL_TOKEN_NORMAL = 1,
  EMEL_TOKEN_UNKNOWN = 2,
  EMEL_TOKEN_CONTROL = 3,
  EMEL_TOKEN_USER_DEFINED = 4,
  EMEL_TOKEN_UNUSED = 5,
  EMEL_TOKEN_BYTE = 6
};

/* How the texts of a vocabulary spell the bytes they stand for. */
enum {
  EMEL_SPELLING_BYTE_LEVEL = 0, /* one printable character for each byte (GPT-2) */
  EMEL_SPELLING_SPACE_MARK = 1, /* U+2581 for a space, "<0xE6>" for a byte (SentencePiece) */
  EMEL_SPELLING_ESCAPED = 2, /* backslash escapes (RWKV) */
  EMEL_SPELLING_PLAIN = 3, /* themselves, "<0xE6>" for a byte (PLaMo-2) */
  EMEL_SPELLING_COUNT = 4
};

/* ---- vocabulary ---------------------------------------------------------------------------- */

typedef struct emel_vocab emel_vocab;
typedef struct emel_vocab_desc {
  const uint8_t* tokens;
  uint64_t tokens_bytes;
  uint64_t n_tokens;
  const int32_t* types; /* (n_tokens,) or NULL: all normal */
  uint32_t spelling;
  uint32_t reserved;
} emel_vocab_desc;

EMEL_API emel_status emel_vocab_create(const emel_vocab_desc* desc, emel_vocab** out);
EMEL_API void emel_vocab_destroy(emel_vocab* vocab);
/* Makes control tokens of the ids. Before any encoder is made, and by one thread. */
EMEL_API emel_status emel_vocab_mark_control(emel_vocab* vocab, const int32_t* ids, uint64_t n_ids);
/* The bytes of ids, one after the other. With out NULL, n_bytes is set to room enough for them. */
EMEL_API emel_status emel_vocab_decode(const emel_vocab* vocab, const int32_t* ids, uint64_t n_ids, uint8_t* out,
                                       uint64_t capacity, uint64_t* n_bytes);
/* The id of the token with exactly this text as it stands in the file, or -1. */
EMEL_API int32_t emel_vocab_find(const emel_vocab* vocab, const uint8_t* text, uint64_t n_bytes);
/* The ids whose type's bit is set in type_mask, ascending; n_ids counts them all, capacity bounds what is written. */
EMEL_API emel_status emel_vocab_ids_of_types(const emel_vocab* vocab, uint32_t type_mask, int32_t* ids,
                                             uint64_t capacity, uint64_t* n_ids);

/* ---- encoders ------------------------------------------------------------------------------ */

/* BPE (native/src/text/bpe.h). Merges whose parts or whole are no tokens are left out. */
typedef struct emel_bpe emel_bpe;
typedef struct emel_bpe_desc {
  const emel_vocab* vocab;
  const uint8_t* merges; /* "left right", in order of rank */
  uint64_t merges_bytes;
  uint64_t n_merges;
  uint32_t ignore_merges; /* not 0: a word that is a token is that token, whatever the merges say */
  int32_t unknown; /* the token of each byte that has none; below 0: such bytes are left out */
} emel_bpe_desc;

EMEL_API emel_status emel_bpe_create(const emel_bpe_desc* desc, emel_bpe** out);
EMEL_API void emel_bpe_destroy(emel_bpe* bpe);
/* Encodes words, given by the ascending offsets of their ends, the last being n_bytes. Needs capacity >= n_bytes. */
EMEL_API emel_status emel_bpe_encode(const emel_bpe* bpe, const uint8_t* text, uint64_t n_bytes,
                                     const uint64_t* word_ends, uint64_t n_words, int32_t* ids, uint64_t capacity,
                                     uint64_t* n_ids);

/* SentencePiece's BPE (native/src/text/spm.h). scores: (n_tokens,). unknown: the token of characters in a row that have
 * none and no byte tokens either; below 0: those are left out. */
typedef struct emel_spm emel_spm;
EMEL_API emel_status emel_spm_create(const emel_vocab* vocab, const float* scores, int32_t unknown, emel_spm** out);
EMEL_API void emel_spm_destroy(emel_spm* spm);
/* Encodes a text whose spaces are U+2581 already. Needs capacity >= n_bytes. */
EMEL_API emel_status emel_spm_encode(const emel_spm* spm, const uint8_t* text, uint64_t n_bytes, int32_t* ids,
                                     uint64_t capacity, uint64_t* n_ids);

/* ---- tries --------------------------------------------------------------------------------- */

/* The texts of the tokens whose type's bit is set in type_mask (native/src/text/trie.h), as they stand in the file, but
 * without escapes where the vocabulary spells with them. */
typedef struct emel_trie emel_trie;
typedef struct emel_match {
  uint64_t begin;
  uint64_t end;
  int32_t id;
  uint32_t reserved;
} emel_match;

EMEL_API emel_status emel_trie_create(const emel_vocab* vocab, uint32_t type_mask, emel_trie** out);
EMEL_API void emel_trie_destroy(emel_trie* trie);
/* The tokens in a text, from *position on: the leftmost first, the longest at each place, none overlapping another. When
 * capacity is reached, *position is where to go on; else it is n_bytes. */
EMEL_API emel_status emel_trie_find(const emel_trie* trie, const uint8_t* text, uint64_t n_bytes, uint64_t* position,
                                    emel_match* matches, uint64_t capacity, uint64_t* n_matches);
/* The longest token at each place, as RWKV has it; unknown for bytes where none begins, unless it is below 0. Needs
 * capacity >= n_bytes. */
EMEL_API emel_status emel_trie_encode(const emel_trie* trie, const uint8_t* text, uint64_t n_bytes, int32_t unknown,
                                      int32_t* ids, uint64_t capacity, uint64_t* n_ids);
/* The same inside words, given by the ascending ends of them, the last being n_bytes; a word that has a place where no
 * token begins is one unknown, as WordPiece has it. */
EMEL_API emel_status emel_trie_encode_words(const emel_trie* trie, const uint8_t* text, uint64_t n_bytes,
                                            const uint64_t* word_ends, uint64_t n_words, int32_t unknown, int32_t* ids,
                                            uint64_t capacity, uint64_t* n_ids);

/* Unigram (native/src/text/unigram.h). scores: (n_tokens,). charsmap: SentencePiece's precompiled one, or nothing.
 * unknown: the token of characters in a row that have none, unless every byte has a token; below 0: they are left out. */
enum { EMEL_UNIGRAM_ADD_SPACE = 1, EMEL_UNIGRAM_REMOVE_EXTRA_SPACES = 2 };
typedef struct emel_unigram emel_unigram;
typedef struct emel_unigram_desc {
  const emel_trie* trie; /* must outlive it */
  const float* scores;
  const uint8_t* charsmap;
  uint64_t charsmap_bytes;
  int32_t unknown;
  uint32_t flags;
} emel_unigram_desc;

EMEL_API emel_status emel_unigram_create(const emel_unigram_desc* desc, emel_unigram** out);
EMEL_API void emel_unigram_destroy(emel_unigram* unigram);
/* Encodes a text with its spaces. Where capacity is too small, n_ids is set to what is enough, and ids are not written. */
EMEL_API emel_status emel_unigram_encode(const emel_unigram* unigram, const uint8_t* text, uint64_t n_bytes,
                                         int32_t* ids, uint64_t capacity, uint64_t* n_ids);

/* PLaMo-2 (native/src/text/plamo2.cc). scores: (n_tokens,). Needs capacity >= n_bytes. */
EMEL_API emel_status emel_plamo2_encode(const emel_trie* trie, const float* scores, const uint8_t* text,
                                        uint64_t n_bytes, int32_t* ids, uint64_t capacity, uint64_t* n_ids);

/* ---- arrays of strings --------------------------------------------------------------------- */

/* Walks count strings in data. On success consumed is their size in bytes and offsets (unless NULL) gets count + 1
 * entries: where each string's length field lies, then consumed. EMEL_OUT_OF_BOUNDS when they do not fit n_bytes:
 * n_scanned is the index of the first string that does not, consumed its position. Allocates nothing. */
EMEL_API emel_status emel_strings_scan(const void* data, uint64_t n_bytes, uint64_t count, uint64_t* consumed,
                                       uint64_t* n_scanned, uint64_t* offsets);

#ifdef __cplusplus
}
#endif
#endif
