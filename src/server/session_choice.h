// On which session a request runs. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace wader {

struct SessionView {
  bool busy = false;
  uint64_t last_used = 0;   // larger is later; 0: never
  uint32_t tokens = 0;      // of its timeline
  uint32_t turn_start = 0;  // where in it the last answer began
  uint32_t reusable = 0;    // of the request's prompt
};

struct SessionChoice {
  size_t session;
  std::optional<size_t> copy_from;  // whose beginning it takes over first
};

// The idle session that has most of the prompt, where that is at least half of what it holds or
// reaches its last answer, whose reasoning may be dropped: it is that conversation going on, or
// edited near its end. Else the idle one unused longest, with a copy of the beginning that another
// has (busy or not), so that what merely shares a system prompt, or branches off early, costs
// nobody's state. Nothing while all are busy.
std::optional<SessionChoice> choose_session(std::span<const SessionView> sessions);

}  // namespace wader
