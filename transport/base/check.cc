#include "transport/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace neuron {

void fail_check(const char* condition, const char* reason, const char* file, int line) {
  std::fprintf(stderr, "c10d-neuron: internal check failed: %s (%s) at %s:%d. Please report this.\n", reason, condition,
               file, line);
  std::abort();
}

}  // namespace neuron
