#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace wader {
namespace {

constexpr uint32_t kFirstExtra = 0x100;
constexpr uint32_t kExtraCount = 68;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         (byte >= 174 && byte <= 255);
}

constexpr std::array<uint8_t, kExtraCount> make_extra_bytes() {
  std::array<uint8_t, kExtraCount> bytes{};
  size_t count = 0;
  for (uint32_t byte = 0; byte < 256; ++byte)
    if (!stands_for_itself(byte)) bytes[count++] = static_cast<uint8_t>(byte);
  return bytes;
}
constexpr std::array<uint8_t, kExtraCount> kExtraBytes = make_extra_bytes();
static_assert(kExtraBytes[32] == ' ' && kExtraBytes[67] == 173);

}  // namespace

uint32_t byte_to_character(uint8_t byte) {
  if (stands_for_itself(byte)) return byte;
  uint32_t index = 0;
  while (kExtraBytes[index] != byte) ++index;
  return kFirstExtra + index;
}

bool append_spelt_bytes(std::string_view text, std::string& bytes) {
  const size_t old_size = bytes.size();
  while (!text.empty()) {
    const uint32_t character = take_code_point(text);
    if (character < 256 && stands_for_itself(character)) {
      bytes.push_back(static_cast<char>(character));
    } else if (character >= kFirstExtra && character < kFirstExtra + kExtraCount) {
      bytes.push_back(static_cast<char>(kExtraBytes[character - kFirstExtra]));
    } else {
      bytes.resize(old_size);
      return false;
    }
  }
  return true;
}

}  // namespace wader
