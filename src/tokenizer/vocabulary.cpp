#include "tokenizer/vocabulary.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

// Linear probing at half load needs some 50 probes at worst over 2^20 keys; more means chosen
// collisions.
constexpr int kMaxProbes = 512;
constexpr size_t kMaxArenaBytes = size_t{1} << 30;
// The table by id takes 8 bytes an id, named or not; released vocabularies leave gaps of a few
// hundred.
constexpr size_t kMaxIdsPerName = 16;
constexpr size_t kFreeIds = size_t{1} << 20;

}  // namespace

size_t Vocabulary::Index::home(std::string_view bytes) const {
  return static_cast<size_t>((xxh3_64(bytes) >> 32) * slots_.size() >> 32);
}

Vocabulary::Index::Inserted Vocabulary::Index::insert(uint32_t id, const Vocabulary& vocabulary) {
  const std::string_view bytes = vocabulary.bytes(id);
  size_t at = home(bytes);
  for (int probes = 0; slots_[at] != kEmpty; ++probes) {
    if (vocabulary.bytes(slots_[at]) == bytes) return Inserted::duplicate;
    if (probes == kMaxProbes) return Inserted::too_many_collisions;
    if (++at == slots_.size()) at = 0;
  }
  slots_[at] = id;
  return Inserted::yes;
}

std::optional<uint32_t> Vocabulary::Index::find(std::string_view bytes,
                                                const Vocabulary& vocabulary) const {
  if (slots_.empty()) return std::nullopt;
  size_t at = home(bytes);
  for (int probes = 0; probes <= kMaxProbes && slots_[at] != kEmpty; ++probes) {
    if (vocabulary.bytes(slots_[at]) == bytes) return slots_[at];
    if (++at == slots_.size()) at = 0;
  }
  return std::nullopt;
}

Status Vocabulary::add(std::string_view text, uint32_t id) {
  CHECK(id <= kMaxTokenId && tokens_.empty());
  if (text.empty()) return corrupt_error("model.vocab: id {} is an empty token", id);
  if (text.size() > kMaxArenaBytes - arena_.size())
    return corrupt_error("model.vocab: more than {} bytes of tokens", kMaxArenaBytes);
  const size_t offset = arena_.size();
  const bool literal = !append_spelt_bytes(text, arena_);
  if (literal) arena_.append(text);
  arrivals_.push_back(
      {.token = {.offset = static_cast<uint32_t>(offset),
                 .length = static_cast<uint32_t>(arena_.size() - offset) & 0x7FFFFFFFu,
                 .special = 0},
       .id = id,
       .literal = literal});
  return {};
}

Status Vocabulary::grow_to(uint32_t id) {
  if (id < tokens_.size()) return {};
  if (id >= named_count_ * kMaxIdsPerName + kFreeIds)
    return corrupt_error("id {} lies far beyond the {} tokens that the file names", id,
                         named_count_);
  tokens_.resize(size_t{id} + 1);
  return {};
}

Status Vocabulary::seal() {
  CHECK(tokens_.empty());
  if (arrivals_.empty()) return corrupt_error("model.vocab is empty");
  uint32_t max_id = 0;
  size_t literal_count = 0;
  for (const Arrival& arrival : arrivals_) {
    max_id = std::max(max_id, arrival.id);
    literal_count += arrival.literal;
  }
  named_count_ = arrivals_.size();
  RETURN_IF_ERROR(grow_to(max_id));
  spelt_ = Index(arrivals_.size() - literal_count);
  literal_ = Index(literal_count);
  for (const Arrival& arrival : arrivals_) {
    Token& token = tokens_[arrival.id];
    if (token.length > 0) {
      return corrupt_error(
          "model.vocab: {} and {} have the same id {}", quote(bytes(arrival.id)),
          quote(std::string_view(arena_).substr(arrival.token.offset, arrival.token.length)),
          arrival.id);
    }
    token = arrival.token;
    switch ((arrival.literal ? literal_ : spelt_).insert(arrival.id, *this)) {
      case Index::Inserted::yes:
        break;
      case Index::Inserted::duplicate:
        return corrupt_error("model.vocab: token {} occurs twice", quote(bytes(arrival.id)));
      case Index::Inserted::too_many_collisions:
        return corrupt_error("model.vocab: tokens chosen to collide in a hash table");
    }
  }
  arrivals_ = {};
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = find(std::string_view(&text, 1));
    if (!id) return corrupt_error("model.vocab has no token for the single byte 0x{:02X}", byte);
    byte_ids_[byte] = *id;
  }
  return {};
}

std::optional<uint32_t> Vocabulary::find_text(std::string_view text) const {
  std::string spelt;
  return append_spelt_bytes(text, spelt) ? find(spelt) : literal_.find(text, *this);
}

Status Vocabulary::add_added(std::string_view content, uint32_t id, bool special) {
  CHECK(id <= kMaxTokenId);
  const std::optional<uint32_t> in_vocabulary = find_text(content);
  if (in_vocabulary && *in_vocabulary != id) {
    return corrupt_error("added token {} has id {}, but {} in model.vocab", quote(content), id,
                         *in_vocabulary);
  }
  if (!in_vocabulary) {
    ++named_count_;
    RETURN_IF_ERROR(grow_to(id));
    if (tokens_[id].length > 0)
      return corrupt_error("added token {} and {} have the same id {}", quote(content),
                           quote(bytes(id)), id);
    if (content.size() > kMaxArenaBytes - arena_.size())
      return corrupt_error("more than {} bytes of tokens", kMaxArenaBytes);
    tokens_[id] = {.offset = static_cast<uint32_t>(arena_.size()),
                   .length = static_cast<uint32_t>(content.size()) & 0x7FFFFFFFu,
                   .special = 0};
    arena_.append(content);
  }
  tokens_[id].special = special;
  return {};
}

std::optional<uint32_t> Vocabulary::find(std::string_view bytes) const {
  return spelt_.find(bytes, *this);
}

std::string_view Vocabulary::bytes(uint32_t id) const {
  if (id >= tokens_.size()) return {};
  return std::string_view(arena_).substr(tokens_[id].offset, tokens_[id].length);
}

}  // namespace wader
