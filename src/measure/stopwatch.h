// Seconds that a piece of work takes on its caller's clock.
#pragma once

#include <chrono>

namespace wader {

template <typename Work>
double seconds_of(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace wader
