// BPE: the C ABI. The table is built in bpe_build.cc, the merging is in bpe_merge.cc.
#include "text/bpe.h"

#include "core/allocation.h"
#include "core/error.h"

namespace emel::text {
namespace {

emel_status check_desc(const emel_bpe_desc& desc) {
  if (desc.n_merges > desc.merges_bytes / 8) {
    return fail(EMEL_OUT_OF_BOUNDS, "%llu merges do not fit the %llu bytes of their array",
                static_cast<unsigned long long>(desc.n_merges), static_cast<unsigned long long>(desc.merges_bytes));
  }
  if (desc.merges_bytes > UINT32_MAX) return fail(EMEL_UNSUPPORTED, "the merge array must be smaller than 4 GiB");
  if (desc.unknown >= 0 && static_cast<uint32_t>(desc.unknown) >= desc.vocab->n_tokens) {
    return fail(EMEL_OUT_OF_BOUNDS, "the unknown token %d is outside the vocabulary", desc.unknown);
  }
  return EMEL_OK;
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_bpe_create(const emel_bpe_desc* desc, emel_bpe** out) {
  if (desc == nullptr || out == nullptr || desc->vocab == nullptr) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_bpe_create: a null argument");
  }
  *out = nullptr;
  if (emel_status status = check_desc(*desc)) return status;
  emel_bpe* bpe = allocate_array<emel_bpe>(1);
  if (bpe == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the merges");
  const uint32_t n_slots = table_size(desc->n_merges);
  bpe->vocab = desc->vocab;
  bpe->ignore_merges = desc->ignore_merges != 0;
  bpe->unknown = desc->unknown >= 0 ? static_cast<uint32_t>(desc->unknown) : kNoToken;
  bpe->merges_mask = n_slots - 1;
  bpe->merges = allocate_array<MergeSlot>(n_slots);
  emel_status status = EMEL_OK;
  if (bpe->merges == nullptr) {
    status = fail(EMEL_OUT_OF_MEMORY, "no memory for %llu merges", static_cast<unsigned long long>(desc->n_merges));
  }
  if (status == EMEL_OK) status = read_merges(bpe, *desc);
  if (status != EMEL_OK) {
    emel_bpe_destroy(bpe);
    return status;
  }
  *out = bpe;
  return EMEL_OK;
}

void emel_bpe_destroy(emel_bpe* bpe) {
  if (bpe == nullptr) return;
  release(bpe->merges);
  release(bpe);
}

emel_status emel_bpe_encode(const emel_bpe* bpe, const uint8_t* text, uint64_t n_bytes, const uint64_t* word_ends,
                            uint64_t n_words, int32_t* ids, uint64_t capacity, uint64_t* n_ids) {
  if (!bpe || !n_ids || (n_bytes > 0 && (!text || !ids)) || (n_words > 0 && !word_ends)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_bpe_encode: a null argument");
  }
  *n_ids = 0;
  if (n_bytes > INT32_MAX) {
    return fail(EMEL_UNSUPPORTED, "a text of %llu bytes; at most 2147483647", static_cast<unsigned long long>(n_bytes));
  }
  if (capacity < n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "emel_bpe_encode: room for fewer ids than bytes");
  uint64_t begin = 0;
  uint64_t written = 0;
  for (uint64_t i = 0; i < n_words; ++i) {
    const uint64_t end = word_ends[i];
    if (end < begin || end > n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "word ends must ascend and stay in the text");
    if (end == begin) continue;
    size_t n = 0;
    const Slice word{text + begin, static_cast<size_t>(end - begin)};
    if (emel_status status = encode_word(bpe, word, ids + written, &n)) return status;
    written += n;
    begin = end;
  }
  if (begin != n_bytes) return fail(EMEL_INVALID_ARGUMENT, "the words end before the text does");
  *n_ids = written;
  return EMEL_OK;
}
