// parse_json: any bytes give a value or an error, and a value's text parses back to the same value.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = wader::parse_json(text, "input");
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  const auto again = wader::parse_json(wader::json_text(*parsed), "its own text");
  CHECK(again.ok());
  CHECK(*again == *parsed);
  return 0;
}
