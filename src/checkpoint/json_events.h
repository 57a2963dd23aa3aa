// JsonEvents: a base for parsers that read JSON as a stream of events. Tables with 100,000 entries
// need it: a document of them would be many times the text, and our ordered objects are searched
// from the front. Everything is refused unless a subclass overrides the event and accepts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace wader {

// A name out of an untrusted file, fit for an error message: in quotes, one line, ASCII, at most 80
// bytes of it.
inline std::string in_quotes(std::string_view name) {
  const bool cut = name.size() > 80;
  const std::string escaped =
      Json(std::string(name.substr(0, 80))).dump(-1, ' ', true, Json::error_handler_t::replace);
  return fmt::format("'{}{}'", std::string_view(escaped).substr(1, escaped.size() - 2),
                     cut ? "..." : "");
}

class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  // Parses the whole text. Invalid UTF-8, trailing text and non-finite numbers are corrupt_error.
  Status parse(std::string_view text) {
    if (Json::sax_parse(text.begin(), text.end(), this)) return {};
    return problem_ ? *std::move(problem_) : corrupt_error("not valid JSON");
  }

  virtual bool null() { return unexpected(); }
  virtual bool boolean(bool) { return unexpected(); }
  virtual bool number_integer(int64_t) { return unexpected(); }    // negative ones
  virtual bool number_unsigned(uint64_t) { return unexpected(); }  // all others of up to 64 bits
  virtual bool number_float(double, const std::string&) { return unexpected(); }
  virtual bool string(std::string&) { return unexpected(); }
  virtual bool binary(Json::binary_t&) { return unexpected(); }
  virtual bool start_object(size_t) { return unexpected(); }
  virtual bool key(std::string&) { return unexpected(); }
  virtual bool end_object() { return unexpected(); }
  virtual bool start_array(size_t) { return unexpected(); }
  virtual bool end_array() { return unexpected(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail(corrupt_error("not valid JSON at byte {}", position));
  }

 protected:
  // Called for an event that has no place here; ends in fail() with what was wanted instead.
  virtual bool unexpected() = 0;

  // Ends the parse with `error`; the first one counts.
  bool fail(Error error) {
    if (!problem_) problem_ = std::move(error);
    return false;
  }

 private:
  std::optional<Error> problem_;
};

}  // namespace wader
