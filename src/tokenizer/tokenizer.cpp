#include "tokenizer/tokenizer.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/quote.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace wader {

struct Tokenizer::Impl {
  Vocabulary vocabulary;
  MergeTable merges;
  Splitter splitter;
  AddedTokens added;             // looked for in the text as it comes
  AddedTokens normalized_added;  // looked for in the normalized rest
  bool nfc = false;
  bool ignore_merges = false;

  static Result<std::unique_ptr<const Impl>> create(TokenizerFile file);

 private:
  Status set_added_tokens(std::vector<AddedTokenConfig> configs);
  Status set_merges(std::vector<Merge> list);
};

Status Tokenizer::Impl::set_added_tokens(std::vector<AddedTokenConfig> configs) {
  std::vector<AddedTokens::Token> raw, normalized;
  for (AddedTokenConfig& config : configs) {
    RETURN_IF_ERROR(vocabulary.add_added(config.content, config.id, config.special));
    if (config.normalized && nfc) config.content = to_nfc(config.content);
    if (config.content.size() > AddedTokens::kMaxBytes)
      return unsupported_error("added token {} is too long", quote(config.content));
    (config.normalized ? normalized : raw).push_back({std::move(config.content), config.id});
  }
  std::string duplicate;
  if (!added.build(std::move(raw), &duplicate) ||
      !normalized_added.build(std::move(normalized), &duplicate)) {
    return corrupt_error("added token {} occurs twice", quote(duplicate));
  }
  return {};
}

// Text that only spells a special token must never become its id, so no merge may lead to one.
Status Tokenizer::Impl::set_merges(std::vector<Merge> list) {
  for (size_t byte = 0; byte < 256; ++byte) {
    if (vocabulary.is_special(vocabulary.byte_id(static_cast<uint8_t>(byte))))
      return unsupported_error("the single byte 0x{:02X} is a special token", byte);
  }
  for (const Merge& merge : list) {
    if (vocabulary.is_special(merge.result)) {
      return unsupported_error("model.merges make the special token {}",
                               quote(vocabulary.bytes(merge.result)));
    }
  }
  size_t culprit = 0;
  if (!merges.build(std::move(list), &culprit))
    return corrupt_error("model.merges: item {} occurs twice, or was chosen to collide with others",
                         culprit);
  return {};
}

Result<std::unique_ptr<const Tokenizer::Impl>> Tokenizer::Impl::create(TokenizerFile file) {
  ASSIGN_OR_RETURN(TokenizerConfig config, read_tokenizer_config(file.config));
  file.config = nullptr;
  auto impl = std::make_unique<Impl>();
  impl->vocabulary = std::move(file.vocabulary);
  impl->nfc = config.nfc;
  impl->ignore_merges = config.ignore_merges;
  ASSIGN_OR_RETURN(impl->splitter, Splitter::create(config.split_pattern));
  RETURN_IF_ERROR(impl->set_added_tokens(std::move(config.added_tokens)));
  RETURN_IF_ERROR(impl->set_merges(std::move(file.merges)));
  return std::unique_ptr<const Impl>(std::move(impl));
}

namespace {

// One call of encode(): the state that Tokenizer itself, being shared, cannot hold.
template <typename Impl>
class Encoder {
 public:
  Encoder(const Impl& impl, std::vector<TokenId>& ids)
      : impl_(impl), pieces_(impl.splitter), merger_(impl.merges), ids_(ids) {}

  // `text` is valid UTF-8.
  Status run(std::string_view text, Tokenizer::Markup markup) {
    if (markup == Tokenizer::Markup::off) return encode_raw(text, /*with_added=*/false);
    return between(impl_.added, text,
                   [this](std::string_view part) { return encode_raw(part, true); });
  }

 private:
  // Appends the ids of the added tokens in `text` and hands what lies between to `rest`.
  template <typename Rest>
  Status between(const AddedTokens& added, std::string_view text, Rest rest) {
    size_t at = 0;
    while (const auto match = added.find(text, at)) {
      RETURN_IF_ERROR(rest(text.substr(at, match->begin - at)));
      ids_.push_back(static_cast<TokenId>(match->id));
      at = match->end;
    }
    return rest(text.substr(at));
  }

  Status encode_raw(std::string_view text, bool with_added) {
    std::string normalized;
    if (impl_.nfc && !is_trivially_nfc(text)) {
      normalized = to_nfc(text);
      text = normalized;
    }
    if (!with_added || impl_.normalized_added.empty()) return encode_plain(text);
    return between(impl_.normalized_added, text,
                   [this](std::string_view part) { return encode_plain(part); });
  }

  Status encode_plain(std::string_view text) {
    pieces_.start(text);
    std::string_view piece;
    while (pieces_.next(piece)) encode_piece(piece);
    return pieces_.status();
  }

  void encode_piece(std::string_view piece) {
    if (impl_.ignore_merges) {
      const auto whole = impl_.vocabulary.find(piece);
      if (whole && !impl_.vocabulary.is_special(*whole)) {
        ids_.push_back(static_cast<TokenId>(*whole));
        return;
      }
    }
    symbols_.clear();
    for (const char byte : piece)
      symbols_.push_back(impl_.vocabulary.byte_id(static_cast<uint8_t>(byte)));
    merger_.merge(symbols_);
    ids_.insert(ids_.end(), symbols_.begin(), symbols_.end());
  }

  const Impl& impl_;
  PieceCursor pieces_;
  BpeMerger merger_;
  std::vector<uint32_t> symbols_;
  std::vector<TokenId>& ids_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  ASSIGN_OR_RETURN(TokenizerFile file, parse_tokenizer_file(tokenizer_json));
  ASSIGN_OR_RETURN(std::unique_ptr<const Impl> impl, Impl::create(std::move(file)));
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  ASSIGN_OR_RETURN(TokenizerFile file, read_tokenizer_file(path));
  Result<std::unique_ptr<const Impl>> impl = Impl::create(std::move(file));
  if (!impl.ok()) return std::move(impl).error().within(path);
  return Tokenizer(std::move(impl).value());
}

Status Tokenizer::encode(std::string_view text, Markup markup, std::vector<TokenId>& ids) const {
  // Longer texts would not fit any context, and BpeMerger counts in 32 bits.
  constexpr size_t kMaxTextBytes = size_t{1} << 30;
  if (text.size() > kMaxTextBytes)
    return invalid_argument_error("text of {} bytes is too long to encode", text.size());
  std::string repaired;
  if (valid_utf8_prefix(text) < text.size()) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  const size_t old_size = ids.size();
  Status status = Encoder<Impl>(*impl_, ids).run(text, markup);
  if (!status.ok()) ids.resize(old_size);
  return status;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, Markup markup) const {
  std::vector<TokenId> ids;
  RETURN_IF_ERROR(encode(text, markup, ids));
  return ids;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  return id < 0 ? std::string_view() : impl_->vocabulary.bytes(static_cast<uint32_t>(id));
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool with_special) const {
  std::string text;
  for (const TokenId id : ids)
    if (with_special || !is_special(id)) text.append(bytes_of(id));
  return text;
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && impl_->vocabulary.is_special(static_cast<uint32_t>(id));
}

std::optional<TokenId> Tokenizer::added_token(std::string_view text) const {
  auto id = impl_->added.id_of(text);
  if (!id) id = impl_->normalized_added.id_of(text);
  if (!id) return std::nullopt;
  return static_cast<TokenId>(*id);
}

uint32_t Tokenizer::vocab_size() const {
  return impl_->vocabulary.size();
}

}  // namespace wader
