// PLaMo-2: the cheapest way to put a text together from tokens, found from its end, in whole ten-thousandths of a score
// (tokenization_plamo.py of https://huggingface.co/pfnet/plamo-2-1b).
#include <math.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/trie.h"
#include "text/utf8.h"

namespace emel::text {
namespace {

constexpr int64_t kUnknownCost = 10'000'000;
constexpr int64_t kInvalidCost = 20'000'000;
constexpr double kCostsPerScore = 1e4;

struct Step {
  int64_t cost;  // from here to the end
  uint32_t size;  // bytes of the token that begins here
  uint32_t id;  // kNoToken: the bytes one by one
};

// Costs of a token as whole numbers, rounded half away from zero; kInvalidCost and above: the token is not used.
int64_t cost_of(float score) {
  if (!(fabsf(score) < 1e12f)) return kInvalidCost;
  return -static_cast<int64_t>(round(static_cast<double>(score) * kCostsPerScore));
}

void find_steps(const emel_trie* trie, const float* scores, Slice text, Step* steps) {
  steps[text.size] = {0, 0, kNoToken};
  size_t end = text.size;
  while (end > 0) {
    size_t begin = end - 1;  // of the unit that ends here: at most four bytes back
    for (size_t size = std::min<size_t>(end, 4); size > 1; --size) {
      if (valid_character_size(text.data + end - size, size) == size) {
        begin = end - size;
        break;
      }
    }
    const uint32_t unit = static_cast<uint32_t>(end - begin);
    Step best{steps[end].cost + kUnknownCost, unit, kNoToken};
    find_all(trie, text.data + begin, text.size - begin, [&](size_t size, uint32_t id) {
      const int64_t cost = cost_of(scores[id]);
      if (cost >= kInvalidCost || steps[begin + size].size == UINT32_MAX) return;
      const int64_t whole = steps[begin + size].cost + cost;
      if (whole <= best.cost) best = {whole, static_cast<uint32_t>(size), id};  // of equals the longest
    });
    steps[begin] = best;
    for (size_t i = begin + 1; i < end; ++i) steps[i] = {0, UINT32_MAX, kNoToken};  // inside a character
    end = begin;
  }
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_plamo2_encode(const emel_trie* trie, const float* scores, const uint8_t* text, uint64_t n_bytes,
                               int32_t* ids, uint64_t capacity, uint64_t* n_ids) {
  if (!trie || !scores || !n_ids || (n_bytes > 0 && (!text || !ids))) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_plamo2_encode: a null argument");
  }
  *n_ids = 0;
  if (n_bytes >= INT32_MAX) return fail(EMEL_UNSUPPORTED, "a text of more than 2147483646 bytes");
  if (capacity < n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "emel_plamo2_encode: room for fewer ids than bytes");
  Step* steps = allocate_array<Step>(n_bytes + 1);
  if (steps == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory to tokenize a text");
  find_steps(trie, scores, {text, static_cast<size_t>(n_bytes)}, steps);
  uint64_t n = 0;
  for (uint64_t at = 0; at < n_bytes; at += steps[at].size) {
    if (steps[at].id != kNoToken) {
      ids[n++] = static_cast<int32_t>(steps[at].id);
      continue;
    }
    for (uint64_t i = at; i < at + steps[at].size; ++i) {
      const uint32_t id = trie->vocab->byte_token[text[i]];
      if (id != kNoToken) ids[n++] = static_cast<int32_t>(id);
    }
  }
  release(steps);
  *n_ids = n;
  return EMEL_OK;
}
