#include "tokenizer/utf8.h"

#include <cstring>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace wader {
namespace {

uint8_t byte_at(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  CHECK(!text.empty());
  const uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {Utf8Step::Kind::valid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Step::Kind::invalid, 1};
  const uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte's range depends on the lead: it excludes overlong forms, surrogates and >
  // U+10FFFF.
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (uint8_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {Utf8Step::Kind::incomplete, i};
    const uint8_t next = byte_at(text, i);
    if (next < low || next > high) return {Utf8Step::Kind::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::Kind::valid, length};
}

size_t valid_utf8_prefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;  // eight ASCII characters at a time
    while (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if (word & kHighBits) break;
      at += sizeof word;
    }
    if (at == text.size()) break;
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::valid) break;
    at += step.bytes;
  }
  return at;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const size_t valid = valid_utf8_prefix(text);
    result.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return result;
    result.append(kReplacementCharacter);
    text.remove_prefix(utf8_step(text).bytes);
  }
}

uint32_t take_code_point(std::string_view& text) {
  const Utf8Step step = utf8_step(text);
  CHECK(step.kind == Utf8Step::Kind::valid);
  // The lead byte keeps 7, 5, 4 or 3 bits.
  uint32_t code_point = byte_at(text, 0) & (step.bytes == 1 ? 0x7Fu : 0x7Fu >> step.bytes);
  for (size_t i = 1; i < step.bytes; ++i) code_point = code_point << 6 | (byte_at(text, i) & 0x3Fu);
  text.remove_prefix(step.bytes);
  return code_point;
}

void append_utf8(uint32_t code_point, std::string& text) {
  const auto put = [&text](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    held_.clear();
    joined.append(bytes);
    bytes = joined;
  }
  std::string result;
  result.reserve(bytes.size());
  for (;;) {
    const size_t valid = valid_utf8_prefix(bytes);
    result.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return result;
    const Utf8Step step = utf8_step(bytes);
    if (step.kind == Utf8Step::Kind::incomplete) {
      held_ = bytes;
      return result;
    }
    result.append(kReplacementCharacter);
    bytes.remove_prefix(step.bytes);
  }
}

std::string Utf8Stream::finish() {
  // What is held is always the beginning of one character: one maximal subpart.
  std::string result(held_.empty() ? std::string_view() : kReplacementCharacter);
  held_.clear();
  return result;
}

}  // namespace wader
