#include "server/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wader {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    CHECK(!stop.empty());
    longest_ = std::max(longest_, stop.size());
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t begin = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
      begin = at;
      end = at + stop.size();
    }
  }
  if (end != std::string::npos) {
    found_ = true;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  const auto can_grow = [&](size_t at) {
    const std::string_view tail = std::string_view(held_).substr(at);
    return std::any_of(stops_.begin(), stops_.end(), [&](const std::string& stop) {
      return stop.size() > tail.size() && std::string_view(stop).substr(0, tail.size()) == tail;
    });
  };
  size_t keep = held_.size() - std::min(held_.size(), longest_ > 0 ? longest_ - 1 : 0);
  while (keep < held_.size() && !can_grow(keep)) ++keep;
  std::string certain = held_.substr(0, keep);
  held_.erase(0, keep);
  return certain;
}

std::string StopMatcher::flush() {
  return found_ ? std::string() : std::exchange(held_, {});
}

}  // namespace wader
