// The one door for JSON that we did not write: bounded depth, duplicate keys refused, no
// exceptions. Getters check type and range and name the key in their error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

// Objects keep the order of the text: chat renderers and manifests depend on it.
using Json = nlohmann::ordered_json;

constexpr int kMaxJsonDepth = 128;
constexpr size_t kMaxJsonKeys = 16384;  // of one object; larger tables have parsers of their own

// `what` names the text in errors ("config.json"). Refuses invalid UTF-8, NaN/Infinity, trailing
// text, nesting over max_depth, over kMaxJsonKeys keys, and an object that names one key twice
// (parsers differ on which counts).
Result<Json> parse_json(std::string_view text, std::string_view what,
                        int max_depth = kMaxJsonDepth);

// Value of `key` in `object`, which must be an object. Errors say "key 'x' is missing" or "… must
// be …".
Result<const Json*> json_member(const Json& object, std::string_view key);
Result<uint64_t> json_uint(const Json& object, std::string_view key, uint64_t min, uint64_t max);
Result<double> json_number(const Json& object, std::string_view key, double min, double max);
Result<bool> json_bool(const Json& object, std::string_view key);
Result<std::string> json_string(const Json& object, std::string_view key);

// True when `object` has the key with a value other than null.
bool json_has(const Json& object, std::string_view key);

// Text of a value; invalid UTF-8 in it becomes U+FFFD instead of an exception. indent < 0: one
// line.
std::string json_text(const Json& value, int indent = -1);

}  // namespace wader
