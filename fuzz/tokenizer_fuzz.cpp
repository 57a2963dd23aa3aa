// Any bytes as tokenizer.json. A file that is accepted must encode and decode without loss,
// whatever its pattern and merges are; encode() may refuse a pattern that needs too much work, in
// bounded time.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void round_trip(const wader::Tokenizer& tokenizer, std::string_view text) {
  using Markup = wader::Tokenizer::Markup;
  for (const Markup markup : {Markup::off, Markup::on}) {
    const auto ids = tokenizer.encode(text, markup);
    if (!ids.ok()) continue;
    wader::Utf8Stream stream;
    for (const wader::TokenId id : *ids) {
      require(id >= 0 && static_cast<uint32_t>(id) < tokenizer.vocab_size());
      require(!tokenizer.bytes_of(id).empty());
      require(markup == Markup::on || !tokenizer.is_special(id));
      stream.push(tokenizer.bytes_of(id));
    }
    stream.finish();
    const std::string decoded = tokenizer.decode(*ids, /*with_special=*/true);
    require(wader::valid_utf8_prefix(decoded) == decoded.size());
    // What was decoded is repaired and normalized already: a second time changes nothing. (With
    // markup on it may: text after an added token can compose with the end of it.)
    if (markup == Markup::on) continue;
    const std::string repaired = wader::replace_invalid_utf8(text);
    if (wader::is_trivially_nfc(repaired)) require(decoded == repaired);
    const auto again = tokenizer.encode(decoded, markup);
    if (again.ok()) require(tokenizer.decode(*again, true) == decoded);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = wader::Tokenizer::parse(bytes);
  if (!tokenizer.ok()) return 0;
  round_trip(*tokenizer, bytes.substr(0, 512));
  round_trip(*tokenizer, bytes.substr(size > 256 ? size - 256 : 0));
  round_trip(*tokenizer,
             "I don't  know <|end|> Cafe\xCC\x81 \xE4\xB8\xAD\xF0\x9F\x98\x80\xFF\xE2\x82\r\n\t "
             "1234567aaaaaaaaaaaaaaaaaaaaaaaa");
  return 0;
}
