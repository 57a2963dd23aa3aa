// start_thread: a std::thread as a Result. The standard library's only way to say that the system
// gives no more threads (a limit on processes, no memory for a stack) is an exception.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/result.h"

namespace wader {

// io when there is no thread to be had; nothing of `work` ran then.
template <typename Work>
Result<std::thread> start_thread(Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    return io_error("the system gives no more threads ({}): a limit on processes or memory?",
                    error.code().message());
  }
}

}  // namespace wader
