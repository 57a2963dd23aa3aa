// For tests: small tokenizer.json texts, right by default, to be bent by each test.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace wader {

// Qwen3's pattern.
inline constexpr std::string_view kTestPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline std::string spelt_byte(uint8_t byte) {
  std::string text;
  append_utf8(byte_to_character(byte), text);
  return text;
}

inline Json added_token(std::string_view content, int64_t id, bool special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// A file with the 256 bytes as ids 0 to 255, then one token per merge of `merges`, in order.
inline Json test_file(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  Json vocab = Json::object();
  Json merge_list = Json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[spelt_byte(static_cast<uint8_t>(byte))] = byte;
  for (const auto& [left, right] : merges) {
    vocab[left + right] = vocab.size();
    merge_list.push_back(Json::array({left, right}));
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kTestPattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}}}};
}

}  // namespace wader
