// The byte-level alphabet of GPT-2 (Radford et al. 2019): a tokenizer.json spells each byte of a
// token as one printable character. The bytes that Latin-1 prints (33-126, 161-172, 174-255) stand
// for themselves, the other 68, in order, for U+0100 and up: space is U+0120.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wader {

// The character that spells `byte`.
uint32_t byte_to_character(uint8_t byte);

// Appends the bytes that `text` (valid UTF-8) spells. False, with `bytes` as it was, when a
// character is not of the alphabet.
bool append_spelt_bytes(std::string_view text, std::string& bytes);

}  // namespace wader
