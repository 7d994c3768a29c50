// BroadcastLog: which broadcasts this rank has seen, and the last of them, to be told again to a link that comes up
// later. A plain object of the mesh, used on Control's thread; nothing fails. Flooding plus this log needs no tree and
// no leader: whatever links there are, each message reaches every rank that is connected, once and in its sender's
// order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/rank.h"

namespace neuron::control {

/// An encoded frame, shared by the queues of all links that carry it.
using Encoded = std::shared_ptr<const std::string>;

class BroadcastLog {
 public:
  struct Entry {
    Rank origin;
    std::uint64_t sequence;
    Encoded frame;
  };
  /// Per origin, the first sequence that has not been seen; absent: 0.
  using Seen = std::map<Rank, std::uint64_t>;

  BroadcastLog(std::size_t most_entries, std::size_t most_bytes)
      : most_entries_(most_entries), most_bytes_(most_bytes) {}

  /// False when it was seen before. A gap (its sender's earlier messages were forgotten everywhere) is skipped.
  bool accept(Rank origin, std::uint64_t sequence, Encoded frame) {
    auto& next = seen_[origin];
    if (sequence < next) return false;
    next = sequence + 1;
    bytes_ += frame->size();
    entries_.push_back({origin, sequence, std::move(frame)});
    while (entries_.size() > most_entries_ || bytes_ > most_bytes_) {
      bytes_ -= entries_.front().frame->size();
      entries_.pop_front();
    }
    return true;
  }

  [[nodiscard]] const Seen& seen() const { return seen_; }

  /// What somebody who has seen `theirs` lacks, oldest first.
  [[nodiscard]] std::vector<Encoded> lacking(const Seen& theirs) const {
    std::vector<Encoded> frames;
    for (const Entry& entry : entries_) {
      const auto next = theirs.find(entry.origin);
      if (next == theirs.end() || entry.sequence >= next->second) frames.push_back(entry.frame);
    }
    return frames;
  }

 private:
  std::size_t most_entries_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::deque<Entry> entries_;
  Seen seen_;
};

}  // namespace neuron::control
