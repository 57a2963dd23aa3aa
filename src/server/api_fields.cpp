#include "server/api_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tokenizer/utf8.h"

namespace wader {

ApiError bad_field(std::string_view param, std::string_view problem) {
  return {400, fmt::format("{} {}", param, problem), std::string(param), "invalid_value"};
}

ApiError unsupported_field(std::string_view param, std::string_view reason) {
  return {400, fmt::format("{} is not supported: {}", param, reason), std::string(param),
          "unsupported_parameter"};
}

ApiError unsupported_field(std::string_view param, std::string_view which,
                           std::string_view reason) {
  return {400, fmt::format("{} {} is not supported: {}", param, which, reason), std::string(param),
          "unsupported_parameter"};
}

namespace {

// A value of two bytes takes up to eighty in memory, so that a body within its limit could take a
// gigabyte. A prompt of ids has as many values as the context tokens; a million take 80 MB.
constexpr size_t kMaxValues = 1'000'000;

// Counted by commas and brackets: never fewer than `text` has where it is JSON.
bool has_too_many_values(std::string_view text) {
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size() && values <= kMaxValues; ++i) {
    const char c = text[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == ',' || c == '[' || c == '{'))
      ++values;
  }
  return values > kMaxValues;
}

}  // namespace

ApiResult<Json> parse_body(std::string_view text) {
  if (text.empty()) return ApiError{400, "the request has no body: send a JSON object", "", ""};
  if (has_too_many_values(text))
    return ApiError{400, fmt::format("the request's body has more than {} values", kMaxValues), "",
                    ""};
  auto parsed = parse_json(text, "the request's body");
  if (!parsed) {
    // It may repeat a key, which may be as long as the body.
    constexpr size_t kMaxBytes = 200;
    std::string message = std::move(parsed).error().message;
    if (message.size() > kMaxBytes) {
      message.resize(valid_utf8_prefix(std::string_view(message).substr(0, kMaxBytes)));
      message += "…";
    }
    return ApiError{400, std::move(message), "", ""};
  }
  if (!parsed->is_object())
    return ApiError{400, "the request's body must be a JSON object", "", ""};
  return std::move(parsed).value();
}

std::optional<uint64_t> whole_number(const Json& value, uint64_t min, uint64_t max) {
  uint64_t number = 0;
  if (value.is_number_unsigned()) {
    number = value.get<uint64_t>();
  } else if (value.is_number_float()) {
    const double read = value.get<double>();
    // Up to 2^53 every whole number is one double and the conversion is exact.
    if (!(read >= 0 && read <= 0x1p53) || read != std::floor(read)) return std::nullopt;
    number = static_cast<uint64_t>(read);
  } else {
    return std::nullopt;
  }
  if (number < min || number > max) return std::nullopt;
  return number;
}

FieldReader::FieldReader(const Json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object_.is_object())
    error_ = bad_field(path_.empty() ? "the request" : path_, "must be an object");
}

std::string FieldReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const Json* FieldReader::find(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool FieldReader::is_blank(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

void FieldReader::fail(std::string_view key, std::string_view problem) {
  fail(bad_field(path_of(key), problem));
}

void FieldReader::fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

bool FieldReader::read(std::string_view key, bool& value) {
  const Json* found = wanted(key);
  if (found == nullptr) return false;
  if (!found->is_boolean()) {
    fail(key, "must be true or false");
    return false;
  }
  value = found->get<bool>();
  return true;
}

bool FieldReader::read(std::string_view key, std::string& value) {
  const Json* found = wanted(key);
  if (found == nullptr) return false;
  if (!found->is_string()) {
    fail(key, "must be a string");
    return false;
  }
  value = found->get_ref<const std::string&>();
  return true;
}

bool FieldReader::read(std::string_view key, double min, double max, double& value) {
  const Json* found = wanted(key);
  if (found == nullptr) return false;
  // A double holds any number of JSON; NaN and infinity cannot be written in it.
  const double number = found->is_number() ? found->get<double>() : std::nan("");
  if (!(number >= min && number <= max)) {
    fail(key, fmt::format("must be a number from {} to {}", min, max));
    return false;
  }
  value = number;
  return true;
}

bool FieldReader::read_count(std::string_view key, uint64_t min, uint64_t max, uint32_t& value) {
  const Json* found = wanted(key);
  if (found == nullptr) return false;
  const auto number = whole_number(*found, min, std::min(max, kMaxCount));
  if (!number) {
    fail(key, fmt::format("must be a whole number from {} to {}", min, std::min(max, kMaxCount)));
    return false;
  }
  value = static_cast<uint32_t>(*number);
  return true;
}

bool FieldReader::read_seed(std::string_view key, uint64_t& value) {
  const Json* found = wanted(key);
  if (found == nullptr) return false;
  if (!found->is_number_integer()) {  // of either sign
    fail(key, "must be a whole number of at most 64 bits");
    return false;
  }
  value = found->is_number_unsigned() ? found->get<uint64_t>()
                                      : static_cast<uint64_t>(found->get<int64_t>());
  return true;
}

}  // namespace wader
