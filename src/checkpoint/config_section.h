// Section: an object of an untrusted JSON file whose keys are ticked off as they are read, so that
// at its end whatever nobody read can be refused by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/json_events.h"

namespace wader {

// Errors name the key. `json` is an object and outlives the section.
class Section {
 public:
  // `name` is for messages: "config.json's text_config".
  Section(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // Whether `key` stands there with a value other than null; it then counts as read.
  bool has(std::string_view key) {
    read_.emplace(key);
    return json_has(json_, key);
  }
  Result<uint64_t> whole(std::string_view key, uint64_t min, uint64_t max) {
    read_.emplace(key);
    return json_uint(json_, key, min, max);
  }
  Result<uint64_t> whole_or(std::string_view key, uint64_t min, uint64_t max, uint64_t fallback) {
    if (!has(key)) return fallback;
    return whole(key, min, max);
  }
  Result<double> number(std::string_view key, double min, double max) {
    read_.emplace(key);
    return json_number(json_, key, min, max);
  }
  Result<double> number_or(std::string_view key, double min, double max, double fallback) {
    if (!has(key)) return fallback;
    return number(key, min, max);
  }
  Result<bool> boolean(std::string_view key) {
    read_.emplace(key);
    return json_bool(json_, key);
  }
  Result<bool> boolean_or(std::string_view key, bool fallback) {
    if (!has(key)) return fallback;
    return boolean(key);
  }
  Result<std::string> string(std::string_view key) {
    read_.emplace(key);
    return json_string(json_, key);
  }
  Result<const Json*> object(std::string_view key) {
    read_.emplace(key);
    ASSIGN_OR_RETURN(const Json* value, json_member(json_, key));
    if (!value->is_object()) return invalid_argument_error("key '{}' must be an object", key);
    return value;
  }
  Result<const Json*> array(std::string_view key) {
    read_.emplace(key);
    ASSIGN_OR_RETURN(const Json* value, json_member(json_, key));
    if (!value->is_array()) return invalid_argument_error("key '{}' must be an array", key);
    return value;
  }

  // `key` must be absent or exactly this.
  Status only(std::string_view key, std::string_view value) {
    if (!has(key)) return {};
    ASSIGN_OR_RETURN(const std::string text, string(key));
    if (text == value) return {};
    return unsupported_error("{} is {}; only '{}' is supported", key, in_quotes(text), value);
  }
  Status only_flag(std::string_view key, bool value) {
    ASSIGN_OR_RETURN(const bool is, boolean_or(key, value));
    if (is == value) return {};
    return unsupported_error("{} is {}; only {} is supported", key, is, value);
  }

  // For what is of no matter, whatever its value.
  void ignore(std::initializer_list<std::string_view> keys) {
    read_.insert(keys.begin(), keys.end());
  }

  // Last: every key was read, or is null.
  Status refuse_unread() const {
    for (const auto& [key, value] : json_.items()) {
      if (value.is_null() || read_.contains(key)) continue;
      return unsupported_error(
          "{} has {}, which this version doesn't know and which may change the arithmetic", name_,
          in_quotes(key));
    }
    return {};
  }
  // The same for a key that begins with '_' or that `harmless` accepts.
  template <typename Harmless>
  Status refuse_unread(const Harmless& harmless) {
    for (const auto& [key, value] : json_.items())
      if (key.starts_with('_') || harmless(key)) read_.emplace(key);
    return refuse_unread();
  }

 private:
  const Json& json_;
  std::string name_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace wader
