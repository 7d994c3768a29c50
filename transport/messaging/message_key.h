// MessageKey: which message a receive waits for. Exact: sequences make every message of a pair distinct, and FIFO order
// per (source, tag) follows, because point-to-point sequences count per source, destination and tag. A value.
#pragma once
#include <cstddef>
#include <cstdint>

#include "transport/base/random.h"
#include "transport/base/rank.h"
#include "transport/header.h"

namespace neuron {

struct MessageKey {
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;
  std::uint32_t epoch = 0;
  Rank peer = kNoRank;  // global rank of the other side
  bool is_point_to_point = false;

  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t h = Random::mix(group ^ (std::uint64_t{epoch} << 32));
    h = Random::mix(h ^ sequence ^ (is_point_to_point ? 0x5A5A000000000000ULL : 0));
    return Random::mix(h ^ tag ^ (static_cast<std::uint64_t>(static_cast<std::uint32_t>(peer)) << 40));
  }
  friend bool operator==(const MessageKey&, const MessageKey&) = default;

  /// The key under which the receiver of this message finds its receive.
  static MessageKey of(const Header& header, Rank source) {
    return {header.group, header.sequence, header.tag, header.epoch, source, (header.flags & flag::kPointToPoint) != 0};
  }
  void write_to(Header& header) const {
    header.group = group;
    header.sequence = sequence;
    header.tag = tag;
    header.epoch = epoch;
    if (is_point_to_point) header.flags |= flag::kPointToPoint;
  }
};

}  // namespace neuron
