// A library of the system, loaded when it is first needed and kept while the program lives: what a
// chat never calls should not be counted against its --memory.
#pragma once

#include <string_view>

#include "base/error.h"
#include "base/result.h"

namespace wader {

class DynamicLibrary {
 public:
  // unsupported, and which package to install, where it is not there.
  static Result<DynamicLibrary> open(const char* soname, std::string_view package);

  // unsupported where it has no such symbol.
  template <class Function>
  Status find(const char* symbol, Function*& function) const {
    ASSIGN_OR_RETURN(void* const address, address_of(symbol));
    function = reinterpret_cast<Function*>(address);
    return {};
  }

 private:
  DynamicLibrary(const char* soname, void* handle) : soname_(soname), handle_(handle) {}
  Result<void*> address_of(const char* symbol) const;

  const char* soname_;
  void* handle_;
};

}  // namespace wader
