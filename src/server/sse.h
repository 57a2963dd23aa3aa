// Server-sent events as text (HTML standard, 9.2): what a stream's write() sends. Pure.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace wader {

// "data: …" and an empty line; every line of `data` gets a data field of its own. `event` must hold
// no line end.
std::string sse_event(std::string_view data, std::string_view event = {});

// ": …", which clients skip: keeps proxies and idle timers from ending a stream. Line ends in
// `text` become spaces.
std::string sse_comment(std::string_view text);

// The head of a stream of events; proxies are told not to collect it.
HttpResponse sse_head();

}  // namespace wader
