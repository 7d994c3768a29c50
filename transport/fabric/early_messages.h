// EarlyMessages: what arrived from ranks that connect() has not told us of yet, so that nothing is lost when one side
// of a pair is faster. A resource of the Rail, used under the engine's baton. Bounded, since strangers can send, too:
// `keep` is false when there is no room.
#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/rank.h"
#include "transport/header.h"

namespace neuron::fabric {

class EarlyMessages {
 public:
  struct Message {
    Header header;
    std::vector<std::byte> payload;
    [[nodiscard]] Rank source() const { return static_cast<Rank>(header.source); }
  };

  bool keep(const Header& header, std::span<const std::byte> payload);
  [[nodiscard]] bool has(Rank source) const;
  /// The oldest message of that rank.
  std::optional<Message> take(Rank source);

 private:
  std::deque<Message> messages_;
  std::size_t bytes_ = 0;
};

}  // namespace neuron::fabric
