// Token ids and their bytes, both ways. Filled once from an untrusted file, then constant.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace wader {

constexpr uint32_t kMaxTokenId = (1u << 24) - 1;

class Vocabulary {
 public:
  // Filling: add() each entry of model.vocab, then seal() once, then add_added() each added token.

  // `text` is valid UTF-8 as the file spells it; one with characters outside the byte-level
  // alphabet keeps its literal bytes and can be decoded, but never encoded to. id <= kMaxTokenId.
  Status add(std::string_view text, uint32_t id);
  // Builds the tables. Refuses texts and ids that occur twice, a byte that no token spells, and ids
  // so sparse that the table by id would dwarf the file.
  Status seal();
  // A token beside the model: `content` is literal. It may name an entry of the vocabulary again,
  // if text and id both agree.
  Status add_added(std::string_view content, uint32_t id, bool special);

  // After seal().
  std::optional<uint32_t> find(
      std::string_view bytes) const;          // among tokens of the byte-level alphabet
  std::string_view bytes(uint32_t id) const;  // empty when the file does not name the id
  bool is_special(uint32_t id) const { return id < tokens_.size() && tokens_[id].special; }
  uint32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }  // 1 + the largest id

 private:
  struct Token {  // length 0: no such id
    uint32_t offset;
    uint32_t length : 31;
    uint32_t special : 1;
  };
  struct Arrival {
    Token token;
    uint32_t id;
    bool literal;
  };
  // Open-addressing table of ids, keyed by the bytes of their tokens; at most half full.
  class Index {
   public:
    explicit Index(size_t count = 0) : slots_(count * 2, kEmpty) {}
    enum class Inserted : uint8_t { yes, duplicate, too_many_collisions };
    Inserted insert(uint32_t id, const Vocabulary& vocabulary);
    std::optional<uint32_t> find(std::string_view bytes, const Vocabulary& vocabulary) const;

   private:
    static constexpr uint32_t kEmpty = UINT32_MAX;
    size_t home(std::string_view bytes) const;
    std::vector<uint32_t> slots_;
  };

  Status grow_to(uint32_t id);
  std::optional<uint32_t> find_text(std::string_view text) const;

  std::string arena_;  // the bytes of all tokens
  std::vector<Arrival> arrivals_;
  std::vector<Token> tokens_;  // by id
  Index spelt_, literal_;
  std::array<uint32_t, 256> byte_ids_{};
  size_t named_count_ = 0;
};

}  // namespace wader
