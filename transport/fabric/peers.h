// Peer: what a rail knows of one other process; PeerTable: all of them, by rank, and their entries in the address
// vector. Resources of the Rail, used under the engine's baton. A peer that is forgotten while operations to it are in
// flight lives on, without a rank, until the last of them has completed: only then may its address leave the vector.
#pragma once
#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/rank.h"
#include "transport/base/status.h"
#include "transport/fabric/address.h"
#include "transport/fabric/endpoint.h"
#include "transport/transport.h"

namespace neuron::fabric {

struct Peer {
  Rank rank = kNoRank;
  Address address;
  fi_addr_t handle = FI_ADDR_NOTAVAIL;
  std::uint32_t sends = 0;        // in flight
  std::uint32_t writes = 0;       // in flight
  Nanoseconds refused_since = 0;  // first refusal (EAGAIN) with nothing accepted or completed since; 0: none
  bool is_lost = false;           // will be reported, or has been; nothing is posted to it any more
  bool is_flushed = false;        // the reason so far is only that something else failed before
  bool is_reported = false;
  Status reason;  // of the loss
  TrafficCount traffic;

  [[nodiscard]] bool is_idle() const { return sends == 0 && writes == 0; }
};

class PeerTable {
 public:
  explicit PeerTable(const Endpoint& endpoint) : endpoint_(endpoint) {}
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  /// The peer of that rank, or null.
  [[nodiscard]] Peer* find(Rank rank) const {
    const auto index = static_cast<std::size_t>(static_cast<std::uint32_t>(rank));
    return index < by_rank_.size() ? by_rank_[index].get() : nullptr;
  }

  /// Errors: invalid_argument for a rank below 0; peer_lost when the provider does not take the address.
  Result<Peer*> add(Rank rank, Address address);
  void forget(Rank rank);
  /// Called when an operation to `peer` has completed.
  void release_if_forgotten(Peer* peer);

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const auto& peer : by_rank_) {
      if (peer) visit(*peer);
    }
  }

 private:
  /// An address in the provider's vector, shared by a dead process and its successor at the same place.
  struct Entry {
    fi_addr_t handle = FI_ADDR_NOTAVAIL;
    std::size_t users = 0;
  };

  Result<fi_addr_t> insert(const std::vector<std::byte>& raw);
  void remove(const std::vector<std::byte>& raw);

  const Endpoint& endpoint_;
  std::unordered_map<std::string, Entry> entries_;  // by raw address
  std::vector<std::unique_ptr<Peer>> by_rank_;
  std::vector<std::unique_ptr<Peer>> forgotten_;
};

}  // namespace neuron::fabric
