#include "install/curl_library.h"

#include <dlfcn.h>

#include "base/check.h"
#include "base/error.h"

// curl.h wraps these in macros that check types and call the functions by name.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace wader {
namespace {

constexpr const char* kName = "libcurl.so.4";

Result<CurlLibrary> load() {
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return unsupported_error("{}: downloads need libcurl; install the package libcurl4", dlerror());
  CurlLibrary library;
#define WADER_CURL_LOAD(name)                                                            \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, "curl_" #name)); \
  if (library.name == nullptr) return unsupported_error("{} has no curl_" #name, kName);
  WADER_CURL_FUNCTIONS(WADER_CURL_LOAD)
#undef WADER_CURL_LOAD
  if (const CURLcode code = library.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
    return io_error("libcurl cannot start: {}", library.easy_strerror(code));
  return library;
}

const Result<CurlLibrary>& loaded() {
  static const Result<CurlLibrary> library = load();
  return library;
}

}  // namespace

Status load_curl() {
  const Result<CurlLibrary>& library = loaded();
  return library.ok() ? Status() : Status(library.error());
}

const CurlLibrary& curl() {
  return *loaded();
}

}  // namespace wader
