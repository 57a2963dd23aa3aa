#include "server/sse.h"

#include <algorithm>

namespace wader {

std::string sse_event(std::string_view data, std::string_view event) {
  std::string text;
  text.reserve(data.size() + event.size() + 24);
  if (!event.empty()) text.append("event: ").append(event).append("\n");
  for (;;) {
    const size_t end = std::min(data.find_first_of("\r\n"), data.size());
    text.append("data: ").append(data.substr(0, end)).append("\n");
    if (end == data.size()) break;
    data.remove_prefix(end + (data.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  return text += "\n";
}

std::string sse_comment(std::string_view text) {
  std::string comment = ": ";
  for (const char c : text) comment += c == '\r' || c == '\n' ? ' ' : c;
  return comment += "\n\n";
}

HttpResponse sse_head() {
  HttpResponse head;
  head.content_type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-cache, no-store"}, {"X-Accel-Buffering", "no"}};
  return head;
}

}  // namespace wader
