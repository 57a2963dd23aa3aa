#include "tokenizer/quote.h"

#include "base/json.h"

namespace wader {

std::string quote(std::string_view text) {
  constexpr size_t kMaxBytes = 48;
  const bool cut = text.size() > kMaxBytes;
  const Json value = std::string(text.substr(0, kMaxBytes));
  std::string result = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  result.front() = result.back() = '\'';
  return cut ? result + "…" : result;
}

}  // namespace wader
