#include "install/dynamic_library.h"

#include <dlfcn.h>

namespace wader {

Result<DynamicLibrary> DynamicLibrary::open(const char* soname, std::string_view package) {
  void* const handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return unsupported_error("{}: downloads need it; install the package {}", dlerror(), package);
  return DynamicLibrary(soname, handle);
}

Result<void*> DynamicLibrary::address_of(const char* symbol) const {
  void* const address = dlsym(handle_, symbol);
  if (address == nullptr) return unsupported_error("{} has no {}", soname_, symbol);
  return address;
}

}  // namespace wader
