#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace wader {

void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\nThis is a bug in wader; please report it.\n", file,
               line, expression);
  std::abort();
}

}  // namespace wader
