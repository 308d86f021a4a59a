#include <string.h>

#include "text/unigram.h"
#include "text/utf8.h"

namespace emel::text {
namespace {

constexpr uint8_t kReplacementCharacter[] = {0xef, 0xbf, 0xbd};

// A unit of the double array: a label in its lowest byte, whether a value hangs below it, and where its children are.
struct Unit {
  uint32_t bits;

  bool has_value() const { return bits >> 8 & 1; }
  uint32_t label() const { return bits & (1u << 31 | 0xff); }  // that of a value is no byte
  uint32_t offset() const { return (bits >> 10) << ((bits & 1u << 9) >> 6); }
  uint32_t value() const { return bits & ~(1u << 31); }
};

bool read_unit(const Charsmap& charsmap, uint32_t index, Unit* out) {
  if (index >= charsmap.n_units) return false;
  memcpy(&out->bits, charsmap.units + 4 * static_cast<size_t>(index), 4);
  return true;
}

}  // namespace

Normalized normalize_prefix(const Charsmap& charsmap, const uint8_t* text, size_t n) {
  size_t longest = 0;
  uint32_t value = 0;
  Unit unit;
  uint32_t position = 0;
  bool is_inside = read_unit(charsmap, 0, &unit);
  if (is_inside) position = unit.offset();
  for (size_t size = 1; is_inside && size <= n; ++size) {
    const uint8_t byte = text[size - 1];
    position ^= byte;
    if (byte == 0 || !read_unit(charsmap, position, &unit) || unit.label() != byte) break;
    position ^= unit.offset();
    if (!unit.has_value()) continue;
    Unit leaf;
    if (!read_unit(charsmap, position, &leaf)) break;
    if (leaf.value() >= charsmap.n_replacement_bytes) break;
    longest = size;
    value = leaf.value();
  }
  if (longest > 0) {
    const uint8_t* replacement = charsmap.replacements + value;
    const size_t room = charsmap.n_replacement_bytes - value;
    const void* end = memchr(replacement, 0, room);
    return {{replacement, end ? static_cast<size_t>(static_cast<const uint8_t*>(end) - replacement) : room}, longest};
  }
  const size_t size = valid_character_size(text, n);
  if (size == 0) return {{kReplacementCharacter, sizeof kReplacementCharacter}, 1};
  return {{text, size}, size};
}

}  // namespace emel::text
