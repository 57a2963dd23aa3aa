// CHECK: an assertion about this program's own logic, kept in release builds. Only a bug can trip
// it; what the world can do (files, flags, requests) is reported through Result instead.
#pragma once

namespace wader {

// Prints "file:line: CHECK failed: expression" to stderr and aborts. Never returns.
[[noreturn]] void check_failed(const char* file, int line, const char* expression);

}  // namespace wader

#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::wader::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

// Where control cannot get; never returns.
#define UNREACHABLE(reason) ::wader::check_failed(__FILE__, __LINE__, reason)
