// What bytes a token's text in the file stands for.
#include "text/byte_level.h"
#include "text/vocab.h"

namespace emel::text {
namespace {

// Matched in text as it is, so written as it is.
bool is_raw(uint8_t type) {
  return type == EMEL_TOKEN_UNKNOWN || type == EMEL_TOKEN_CONTROL || type == EMEL_TOKEN_USER_DEFINED;
}

int hex_digit(uint8_t character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  if (character >= 'A' && character <= 'F') return character - 'A' + 10;
  return -1;
}

// "<0xE6>": the one byte it names.
bool read_byte(Slice text, uint8_t* out) {
  if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return false;
  const int high = hex_digit(text.data[3]);
  const int low = hex_digit(text.data[4]);
  if (high < 0 || low < 0) return false;
  *out = static_cast<uint8_t>(high << 4 | low);
  return true;
}

size_t write_spaces_for_marks(Slice text, uint8_t* out) {
  size_t written = 0;
  for (size_t i = 0; i < text.size;) {
    if (text.size - i >= sizeof kSpaceMark && memcmp(text.data + i, kSpaceMark, sizeof kSpaceMark) == 0) {
      out[written++] = ' ';
      i += sizeof kSpaceMark;
    } else {
      out[written++] = text.data[i++];
    }
  }
  return written;
}

// RWKV writes its tokens as Python writes bytes: \t \n \r \xE6, and any other character after a backslash as itself.
size_t write_unescaped(Slice text, uint8_t* out) {
  size_t written = 0;
  for (size_t i = 0; i < text.size; ++i) {
    uint8_t character = text.data[i];
    if (character == '\\' && i + 1 < text.size) {
      character = text.data[++i];
      if (character == 't') character = '\t';
      else if (character == 'n') character = '\n';
      else if (character == 'r') character = '\r';
      else if (character == 'x' && i + 2 < text.size && hex_digit(text.data[i + 1]) >= 0 &&
               hex_digit(text.data[i + 2]) >= 0) {
        character = static_cast<uint8_t>(hex_digit(text.data[i + 1]) << 4 | hex_digit(text.data[i + 2]));
        i += 2;
      }
    }
    out[written++] = character;
  }
  return written;
}

}  // namespace

size_t write_token(const emel_vocab* vocab, uint32_t id, uint8_t* out) {
  const Slice text = token_text(vocab, id);
  const uint8_t type = vocab->types[id];
  if (vocab->spelling == EMEL_SPELLING_ESCAPED) return write_unescaped(text, out);
  if (vocab->spelling == EMEL_SPELLING_BYTE_LEVEL) {
    size_t size = 0;
    if (!is_raw(type) && decode_characters(text.data, text.size, out, &size)) return size;
  } else if (type == EMEL_TOKEN_BYTE) {
    if (read_byte(text, out)) return 1;
  } else if (vocab->spelling == EMEL_SPELLING_SPACE_MARK && !is_raw(type)) {
    return write_spaces_for_marks(text, out);
  }
  memcpy(out, text.data, text.size);
  return text.size;
}

}  // namespace emel::text
