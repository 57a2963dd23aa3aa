// Reading the fields of a request that anybody may have sent. null counts as absent, as all of
// OpenAI's clients mean it. A wrong type or value is a 400 whose `param` is the field's path
// ("stream_options.include_usage"); numbers are compared before they are converted, so that −1,
// 2^63 and 1e308 are refused like any other value that is out of range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api.h"

namespace wader {

// Wherever a count is wanted: more than any machine can do, and nothing overflows that adds some.
constexpr uint64_t kMaxCount = (1ull << 31) - 1;

// A 400. `param` is a path in the request; the message names it again where a client shows only
// that.
ApiError bad_field(std::string_view param, std::string_view problem);
// A 400 for what is well-formed, but not to be had here: all of the field, or what `which` says of
// it.
ApiError unsupported_field(std::string_view param, std::string_view reason);
ApiError unsupported_field(std::string_view param, std::string_view which, std::string_view reason);
// One object of a request. The first problem is kept and ends all reading: later reads leave their
// target as it is. Holds a reference to `object`.
class FieldReader {
 public:
  // `path` stands before the names in errors: "" or "stream_options". A problem, if `object` is
  // none.
  explicit FieldReader(const Json& object, std::string path = {});

  // The value of a field; nullptr when absent or null.
  const Json* find(std::string_view key) const;
  // Each sets `value` when the field is there and right, and says whether it is.
  bool read(std::string_view key, bool& value);
  bool read(std::string_view key, std::string& value);
  bool read(std::string_view key, double min, double max, double& value);
  // Whole numbers, also when written as 5.0.
  bool read_count(std::string_view key, uint64_t min, uint64_t max, uint32_t& value);
  // Any 64-bit number, negative ones as their two's complement.
  bool read_seed(std::string_view key, uint64_t& value);
  // One of OpenAI's names for nothing: false, "", [] and {}.
  static bool is_blank(const Json& value);

  void fail(std::string_view key, std::string_view problem);
  void fail(ApiError error);
  bool ok() const { return !error_.has_value(); }
  const ApiError& error() const { return *error_; }
  std::string path_of(std::string_view key) const;

 private:
  const Json* wanted(std::string_view key) const { return ok() ? find(key) : nullptr; }

  const Json& object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// The whole number in `value`, when it is one from min to max.
std::optional<uint64_t> whole_number(const Json& value, uint64_t min, uint64_t max);

}  // namespace wader
