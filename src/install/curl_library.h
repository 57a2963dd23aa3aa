// libcurl, loaded when a hub is first asked for something. With the forty libraries that it brings
// it makes 4.5 MiB of a process resident, which --memory would have to count for every chat.
#pragma once

#include <curl/curl.h>

#include "base/result.h"

namespace wader {

struct CurlLibrary {
  // clang-format off
#define WADER_CURL_FUNCTIONS(use)                                                                 \
  use(easy_init) use(easy_cleanup) use(easy_setopt) use(easy_getinfo) use(easy_strerror)          \
  use(multi_init) use(multi_cleanup) use(multi_add_handle) use(multi_remove_handle)               \
  use(multi_perform) use(multi_poll) use(multi_wakeup) use(multi_info_read)                       \
  use(slist_append) use(slist_free_all) use(url) use(url_cleanup) use(url_set) use(url_get)       \
  use(global_init) use(getdate) use(free)
#define WADER_CURL_MEMBER(name) decltype(&::curl_##name) name = nullptr;
  WADER_CURL_FUNCTIONS(WADER_CURL_MEMBER)
#undef WADER_CURL_MEMBER
  // clang-format on
};

// unsupported, and which package to install, where it is not there. From any thread; the result
// lives as long as the program.
Status load_curl();
// After load_curl() has succeeded.
const CurlLibrary& curl();

}  // namespace wader
