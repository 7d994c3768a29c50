// Descriptor: owns one file descriptor, closes it at its end, and sees to it that a forked child does not keep it.
// A resource that moves; any one thread at a time. Nothing here fails.
#pragma once
#include <unistd.h>

#include <utility>

#include "transport/base/fork_guard.h"

namespace neuron {

class Descriptor {
 public:
  Descriptor() = default;
  /// Takes ownership; a negative number is an empty Descriptor.
  explicit Descriptor(int number) : number_(number) {
    if (number_ >= 0) register_descriptor(number_);
  }
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this == &other) return *this;
    reset();
    number_ = std::exchange(other.number_, -1);
    return *this;
  }

  void reset() {
    const int number = std::exchange(number_, -1);
    if (number >= 0 && unregister_descriptor(number)) ::close(number);
  }
  [[nodiscard]] bool is_valid() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_ = -1;
};

}  // namespace neuron
