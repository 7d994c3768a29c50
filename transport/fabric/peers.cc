#include "transport/fabric/peers.h"

#include <algorithm>
#include <utility>

#include "transport/base/check.h"

namespace neuron::fabric {
namespace {

std::string key_of(const std::vector<std::byte>& raw) {
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

}  // namespace

Result<Peer*> PeerTable::add(Rank rank, Address address) {
  if (rank < 0) return Status(Code::invalid_argument, "Rank " + std::to_string(rank) + " cannot be connected to.");
  NEURON_CHECK(find(rank) == nullptr, "a rank is added once");
  const auto handle = insert(address.raw);
  if (!handle) return handle.status();

  const auto index = static_cast<std::size_t>(rank);
  if (index >= by_rank_.size()) by_rank_.resize(index + 1);
  by_rank_[index] = std::make_unique<Peer>();
  Peer& peer = *by_rank_[index];
  peer.rank = rank;
  peer.address = std::move(address);
  peer.handle = *handle;
  return &peer;
}

void PeerTable::forget(Rank rank) {
  if (find(rank) == nullptr) return;
  auto peer = std::move(by_rank_[static_cast<std::size_t>(rank)]);
  peer->is_lost = peer->is_reported = true;
  peer->refused_since = 0;
  if (peer->is_idle()) {
    remove(peer->address.raw);
  } else {
    forgotten_.push_back(std::move(peer));
  }
}

void PeerTable::release_if_forgotten(Peer* peer) {
  if (forgotten_.empty() || !peer->is_idle()) return;
  const auto place =
      std::find_if(forgotten_.begin(), forgotten_.end(), [&](const auto& one) { return one.get() == peer; });
  if (place == forgotten_.end()) return;
  const auto owner = std::move(*place);
  forgotten_.erase(place);
  remove(owner->address.raw);
}

Result<fi_addr_t> PeerTable::insert(const std::vector<std::byte>& raw) {
  // Inserting what is in the vector already is undefined with some providers.
  Entry& entry = entries_[key_of(raw)];
  if (entry.users == 0) {
    const int inserted = fi_av_insert(endpoint_.av(), raw.data(), 1, &entry.handle, 0, nullptr);
    if (inserted != 1 || entry.handle == FI_ADDR_NOTAVAIL) {
      entries_.erase(key_of(raw));
      return Status(Code::peer_lost, "The provider does not take a peer's address (fi_av_insert returned " +
                                         std::to_string(inserted) + "): is the peer on the same network?");
    }
  }
  ++entry.users;
  return entry.handle;
}

void PeerTable::remove(const std::vector<std::byte>& raw) {
  const auto place = entries_.find(key_of(raw));
  if (--place->second.users > 0) return;
  fi_av_remove(endpoint_.av(), &place->second.handle, 1, 0);
  entries_.erase(place);
}

}  // namespace neuron::fabric
