// Result<T>: a value or an Error. Library code never prints, throws or exits for something the
// world can cause; it returns one of these. Status is Result<void>.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace wader {

enum class ErrorCode {
  invalid_argument,  // the caller or user asked for something that makes no sense
  not_found,         // a file, model, tensor or name that is not there
  already_exists,    // the target is taken
  corrupt,           // bytes that contradict themselves or their checksum
  unsupported,       // well-formed, but this version cannot do it
  io,                // the operating system refused; the message has its reason
  over_budget,       // does not fit into --memory, the context or the disk
  cancelled,         // the caller asked to stop
};

struct Error {
  ErrorCode code;
  std::string message;  // names the thing and says what to do; no trailing full stop or newline

  // "context: message", for callers that know which file or tensor it was.
  Error within(std::string_view context) && {
    message.insert(0, ": ").insert(0, context);
    return std::move(*this);
  }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T value() && {
    CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }  // by value: safe in a range-for
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace wader

#define WADER_CONCAT_(a, b) a##b
#define WADER_CONCAT(a, b) WADER_CONCAT_(a, b)

// Returns from the enclosing function with the error of `expression`, if it has one.
#define RETURN_IF_ERROR(expression)                                                    \
  do {                                                                                 \
    if (auto status_ = (expression); !status_.ok()) return std::move(status_).error(); \
  } while (false)

// ASSIGN_OR_RETURN(auto x, f()): declares or assigns x, or returns f's error.
#define ASSIGN_OR_RETURN(declaration, expression)              \
  auto WADER_CONCAT(result_, __LINE__) = (expression);         \
  if (!WADER_CONCAT(result_, __LINE__).ok())                   \
    return std::move(WADER_CONCAT(result_, __LINE__)).error(); \
  declaration = std::move(WADER_CONCAT(result_, __LINE__)).value()
