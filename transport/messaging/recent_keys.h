// RecentKeys: remembers the last few message keys, by hash; the oldest is forgotten. A value; one thread.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/messaging/message_key.h"

namespace neuron {

class RecentKeys {
 public:
  [[nodiscard]] bool is_empty() const { return count_ == 0; }

  void add(const MessageKey& key) {
    hashes_[next_] = key.hash();
    next_ = (next_ + 1) % hashes_.size();
    count_ = std::min(count_ + 1, hashes_.size());
  }
  /// Whether the key is remembered; it is then forgotten.
  bool take(const MessageKey& key) {
    if (count_ == 0) return false;
    const auto end = hashes_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto found = std::find(hashes_.begin(), end, key.hash());
    if (found == end) return false;
    *found = 0;
    return true;
  }

 private:
  std::array<std::uint64_t, 1024> hashes_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

}  // namespace neuron
