#include "server/session_choice.h"

namespace wader {

std::optional<SessionChoice> choose_session(std::span<const SessionView> sessions) {
  std::optional<size_t> best, oldest;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const SessionView& session = sessions[i];
    const auto better = [&](const SessionView& than) {
      if (session.reusable != than.reusable) return session.reusable > than.reusable;
      return than.busy && !session.busy;
    };
    if (session.reusable > 0 && (!best || better(sessions[*best]))) best = i;
    if (!session.busy && (!oldest || session.last_used < sessions[*oldest].last_used)) oldest = i;
  }
  if (!oldest) return {};
  if (!best) return SessionChoice{*oldest, {}};
  const SessionView& found = sessions[*best];
  const bool reaches_its_answer = found.turn_start > 0 && found.reusable >= found.turn_start;
  const bool goes_on =
      !found.busy && (reaches_its_answer || uint64_t{found.reusable} * 2 >= found.tokens);
  if (goes_on || *best == *oldest) return SessionChoice{*best, {}};
  // Where the oldest has as much of its own, a copy would only cost time.
  if (sessions[*oldest].reusable == found.reusable) return SessionChoice{*oldest, {}};
  return SessionChoice{*oldest, *best};
}

}  // namespace wader
