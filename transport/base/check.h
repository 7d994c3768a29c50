// NEURON_CHECK: a broken invariant of our own is a bug; the process ends with the reason rather than go on with wrong
// data.
#pragma once

namespace neuron {
[[noreturn]] void fail_check(const char* condition, const char* reason, const char* file, int line);
}  // namespace neuron

#define NEURON_CHECK(condition, reason) \
  (static_cast<bool>(condition) ? void(0) : ::neuron::fail_check(#condition, reason, __FILE__, __LINE__))
