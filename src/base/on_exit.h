// OnExit: runs something when its scope is left, also by an exception or when a coroutine's frame
// is destroyed.
#pragma once

#include <utility>

namespace wader {

template <typename Action>  // must not throw
class [[nodiscard]] OnExit {
 public:
  explicit OnExit(Action action) : action_(std::move(action)) {}
  ~OnExit() { action_(); }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;

 private:
  const Action action_;
};

}  // namespace wader
