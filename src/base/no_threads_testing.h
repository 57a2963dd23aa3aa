// NoThreads, for tests: while it lives the system gives this process no more threads. Their stacks
// are to be larger than any address space, which no limit that root is exempt from could do.
#pragma once

#include <pthread.h>

#include <cstddef>

#include "base/check.h"

namespace wader::testing {

class NoThreads {
 public:
  NoThreads() {
    CHECK(pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t wanted;
    CHECK(pthread_getattr_default_np(&wanted) == 0);
    CHECK(pthread_attr_setstacksize(&wanted, size_t{1} << 60) == 0);
    CHECK(pthread_setattr_default_np(&wanted) == 0);
    pthread_attr_destroy(&wanted);
  }
  ~NoThreads() {
    CHECK(pthread_setattr_default_np(&before_) == 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace wader::testing
