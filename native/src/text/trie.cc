// Building tries, and the encoders that take the longest token at each place.
#include "text/trie.h"

#include <string.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"

namespace emel::text {
namespace {

struct Entry {
  uint64_t head;  // the first eight bytes, so that numbers order as texts do
  Slice text;
  uint32_t id;
};

uint64_t head_of(Slice text) {
  uint64_t head = 0;
  for (size_t i = 0; i < std::min<size_t>(text.size, 8); ++i)
    head |= static_cast<uint64_t>(text.data[i]) << (56 - 8 * i);
  return head;
}

int compare(Slice a, Slice b) {
  const int order = memcmp(a.data, b.data, std::min(a.size, b.size));
  if (order != 0) return order;
  return a.size < b.size ? -1 : a.size > b.size;
}

bool is_before(const Entry& a, const Entry& b) {
  if (a.head != b.head) return a.head < b.head;
  const int order = compare(a.text, b.text);
  return order != 0 ? order < 0 : a.id < b.id;
}

// Orders n entries by their heads, equal ones as they stand; to and fro between two arrays, a byte with each pass.
// Comparing instead would mispredict every second of some millions of branches.
void sort_by_heads(Entry* entries, Entry* other, uint32_t n) {
  constexpr int kBytes = 8;
  uint32_t ends[kBytes][256] = {};
  for (uint32_t i = 0; i < n; ++i) {
    for (int byte = 0; byte < kBytes; ++byte) ++ends[byte][entries[i].head >> (8 * byte) & 255];
  }
  Entry* from = entries;
  Entry* to = other;
  for (int byte = 0; byte < kBytes; ++byte) {
    uint32_t begin = 0;
    for (uint32_t& end : ends[byte]) {
      const uint32_t n_here = end;
      end = begin;
      begin += n_here;
    }
    for (uint32_t i = 0; i < n; ++i) to[ends[byte][from[i].head >> (8 * byte) & 255]++] = from[i];
    std::swap(from, to);
  }
  static_assert(kBytes % 2 == 0, "the last pass ends where the first began");
}

// Orders entries as is_before does; those of equal heads are few.
void sort_entries(Entry* entries, Entry* other, uint32_t n) {
  sort_by_heads(entries, other, n);
  for (uint32_t begin = 0; begin < n;) {
    uint32_t end = begin + 1;
    while (end < n && entries[end].head == entries[begin].head) ++end;
    std::sort(entries + begin, entries + end, is_before);
    begin = end;
  }
}

size_t common_size(Slice a, Slice b) {
  size_t size = 0;
  while (size < a.size && size < b.size && a.data[size] == b.data[size]) ++size;
  return size;
}

// The entries of a trie on their way into it.
struct Builder {
  emel_trie* trie;
  uint8_t* texts;  // unescaped ones; nullptr where the vocabulary's own serve
  Entry* entries;
  Entry* sorting;  // as many, for the sort
  uint32_t n_entries;
  uint32_t* begins;  // (n_nodes + 1,) of each node's entries; those of node i end where those of the next node begin
  uint32_t* ends;

  uint32_t count_texts(uint32_t type_mask) const {
    uint32_t n = 0;
    for (uint32_t id = 0; id < trie->vocab->n_tokens; ++id) n += type_mask >> trie->vocab->types[id] & 1;
    return n;
  }

  void collect(uint32_t type_mask) {
    const emel_vocab* vocab = trie->vocab;
    size_t written = 0;
    for (uint32_t id = 0; id < vocab->n_tokens; ++id) {
      if ((type_mask >> vocab->types[id] & 1) == 0) continue;
      Slice text = token_text(vocab, id);
      if (texts != nullptr) {
        text = {texts + written, write_token(vocab, id, texts + written)};
        written += text.size;
      }
      if (text.size > 0) entries[n_entries++] = {head_of(text), text, id};
    }
    sort_entries(entries, sorting, n_entries);
    // Of tokens with equal texts the first is found.
    const auto same = [](const Entry& a, const Entry& b) { return equals(a.text, b.text); };
    n_entries = static_cast<uint32_t>(std::unique(entries, entries + n_entries, same) - entries);
  }

  uint64_t count_nodes() const {
    uint64_t n = 1;
    for (uint32_t i = 0; i < n_entries; ++i) {
      n += entries[i].text.size - (i == 0 ? 0 : common_size(entries[i - 1].text, entries[i].text));
    }
    return n;
  }

  // Level by level: the entries of a node share depth bytes, and are cut where the next byte changes.
  void build() {
    uint32_t n_nodes = 1;
    begins[0] = 0;
    ends[0] = n_entries;
    uint32_t end_of_level = 1;
    for (uint32_t node = 0, depth = 0; node < n_nodes; ++node) {
      if (node == end_of_level) {
        ++depth;
        end_of_level = n_nodes;
      }
      trie->first_child[node] = n_nodes;
      uint32_t i = begins[node];
      trie->tokens[node] = kNoToken;
      if (i < ends[node] && entries[i].text.size == depth) trie->tokens[node] = entries[i++].id;
      while (i < ends[node]) {
        const uint8_t label = entries[i].text.data[depth];
        trie->labels[n_nodes] = label;
        begins[n_nodes] = i;
        while (i < ends[node] && entries[i].text.data[depth] == label) ++i;
        ends[n_nodes] = i;
        if (node == 0) trie->of_first_byte[label] = n_nodes;
        ++n_nodes;
      }
    }
    trie->first_child[n_nodes] = n_nodes;
  }
};

emel_status fill(emel_trie* trie, Builder* builder, uint32_t type_mask) {
  const emel_vocab* vocab = trie->vocab;
  const uint32_t n_texts = builder->count_texts(type_mask);
  builder->entries = allocate_array<Entry>(n_texts);
  builder->sorting = allocate_array<Entry>(n_texts);
  const bool is_escaped = vocab->spelling == EMEL_SPELLING_ESCAPED;
  if (is_escaped) builder->texts = allocate_array<uint8_t>(vocab->offsets[vocab->n_tokens]);
  if (builder->entries == nullptr || builder->sorting == nullptr || (is_escaped && builder->texts == nullptr)) {
    return fail(EMEL_OUT_OF_MEMORY, "no memory to sort %u tokens", n_texts);
  }
  builder->collect(type_mask);
  const uint64_t n_nodes = builder->count_nodes();
  if (n_nodes >= UINT32_MAX) return fail(EMEL_UNSUPPORTED, "the tokens are too long to be searched");
  trie->n_nodes = static_cast<uint32_t>(n_nodes);
  trie->first_child = allocate_array<uint32_t>(n_nodes + 1);
  trie->labels = allocate_array<uint8_t>(n_nodes);
  trie->tokens = allocate_array<uint32_t>(n_nodes);
  builder->begins = allocate_array<uint32_t>(n_nodes);
  builder->ends = allocate_array<uint32_t>(n_nodes);
  if (!trie->first_child || !trie->labels || !trie->tokens || !builder->begins || !builder->ends) {
    return fail(EMEL_OUT_OF_MEMORY, "no memory for a trie of %u nodes", trie->n_nodes);
  }
  builder->build();
  return EMEL_OK;
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_trie_create(const emel_vocab* vocab, uint32_t type_mask, emel_trie** out) {
  if (vocab == nullptr || out == nullptr) return fail(EMEL_INVALID_ARGUMENT, "emel_trie_create: a null argument");
  *out = nullptr;
  emel_trie* trie = allocate_array<emel_trie>(1);
  if (trie == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for a trie");
  trie->vocab = vocab;
  Builder builder{trie, nullptr, nullptr, nullptr, 0, nullptr, nullptr};
  const emel_status status = fill(trie, &builder, type_mask);
  release(builder.texts);
  release(builder.entries);
  release(builder.sorting);
  release(builder.begins);
  release(builder.ends);
  if (status != EMEL_OK) {
    emel_trie_destroy(trie);
    return status;
  }
  *out = trie;
  return EMEL_OK;
}

void emel_trie_destroy(emel_trie* trie) {
  if (trie == nullptr) return;
  release(trie->first_child);
  release(trie->labels);
  release(trie->tokens);
  release(trie);
}

emel_status emel_trie_find(const emel_trie* trie, const uint8_t* text, uint64_t n_bytes, uint64_t* position,
                           emel_match* matches, uint64_t capacity, uint64_t* n_matches) {
  if (!trie || !position || !n_matches || (n_bytes > 0 && !text) || (capacity > 0 && !matches)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_trie_find: a null argument");
  }
  uint64_t n = 0;
  uint64_t at = *position;
  while (at < n_bytes && n < capacity) {
    const Match match = find_longest(trie, text + at, n_bytes - at);
    if (match.size == 0) {
      ++at;
      continue;
    }
    matches[n++] = {at, at + match.size, static_cast<int32_t>(match.id), 0};
    at += match.size;
  }
  *position = at;
  *n_matches = n;
  return EMEL_OK;
}

emel_status emel_trie_encode(const emel_trie* trie, const uint8_t* text, uint64_t n_bytes, int32_t unknown,
                             int32_t* ids, uint64_t capacity, uint64_t* n_ids) {
  if (!trie || !n_ids || (n_bytes > 0 && (!text || !ids))) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_trie_encode: a null argument");
  }
  if (capacity < n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "emel_trie_encode: room for fewer ids than bytes");
  uint64_t n = 0;
  for (uint64_t at = 0; at < n_bytes;) {
    const Match match = find_longest(trie, text + at, n_bytes - at);
    if (match.size > 0) ids[n++] = static_cast<int32_t>(match.id);
    else if (unknown >= 0) ids[n++] = unknown;
    at += std::max<uint64_t>(match.size, 1);
  }
  *n_ids = n;
  return EMEL_OK;
}

emel_status emel_trie_encode_words(const emel_trie* trie, const uint8_t* text, uint64_t n_bytes,
                                   const uint64_t* word_ends, uint64_t n_words, int32_t unknown, int32_t* ids,
                                   uint64_t capacity, uint64_t* n_ids) {
  if (!trie || !n_ids || (n_bytes > 0 && (!text || !ids)) || (n_words > 0 && !word_ends)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_trie_encode_words: a null argument");
  }
  if (capacity < n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "emel_trie_encode_words: room for fewer ids than bytes");
  uint64_t n = 0;
  uint64_t at = 0;
  for (uint64_t i = 0; i < n_words; ++i) {
    const uint64_t end = word_ends[i];
    if (end <= at || end > n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "word ends must ascend and stay in the text");
    const uint64_t n_before = n;
    while (at < end) {
      const Match match = find_longest(trie, text + at, end - at);
      if (match.size == 0) break;
      ids[n++] = static_cast<int32_t>(match.id);
      at += match.size;
    }
    if (at < end) {  // one place without a token spoils the word
      n = n_before;
      if (unknown >= 0) ids[n++] = unknown;
    }
    at = end;
  }
  if (at != n_bytes) return fail(EMEL_INVALID_ARGUMENT, "the words end before the text does");
  *n_ids = n;
  return EMEL_OK;
}
