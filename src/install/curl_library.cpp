#include "install/curl_library.h"

#include "base/error.h"
#include "install/dynamic_library.h"

// curl.h wraps these in macros that check types and call the functions by name.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace wader {
namespace {

Result<CurlLibrary> load() {
  ASSIGN_OR_RETURN(const DynamicLibrary file, DynamicLibrary::open("libcurl.so.4", "libcurl4"));
  CurlLibrary library;
#define WADER_CURL_LOAD(name) RETURN_IF_ERROR(file.find("curl_" #name, library.name));
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
