#include "c10d_neuron/control/roster.h"

namespace neuron::control {
namespace {

constexpr std::size_t kRangesShown = 12;

}  // namespace

std::string ranks_text(std::span<const Rank> ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t shown = 0;
  for (std::size_t i = 0; i < ranks.size(); ++shown) {
    if (shown == kRangesShown) return out + " and " + std::to_string(ranks.size() - i) + " more";
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (shown > 0) out += ", ";
    out += std::to_string(ranks[i]);
    if (last > i) out += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return out;
}

Status Roster::check(const Participant& participant) const {
  const Member& member = participant.member;
  if (participant.world != world_) {
    return {Code::mismatch, rank_text(member) + " was started with world size " + std::to_string(participant.world) +
                                ", rank 0 with " + std::to_string(world_) +
                                ". Start all processes with the same world size."};
  }
  if (member.rank < 0 || member.rank >= world_) {
    return {Code::invalid_argument, rank_text(member) + " is not a rank of a job of " + std::to_string(world_) +
                                        ": ranks go from 0 to " + std::to_string(world_ - 1) + "."};
  }
  if (member.version != version_) {
    return {Code::mismatch, rank_text(member) + " runs " + member.version + ", rank 0 runs " + version_ +
                                ". Install the same c10d-neuron on all hosts."};
  }
  const auto other = entries_.find(member.rank);
  if (other == entries_.end() || other->second.participant.member.nonce == member.nonce) return {};
  return {Code::mismatch, "Two processes say that they are rank " + std::to_string(member.rank) + ": " +
                              process_text(other->second.participant.member) + " and " + process_text(member) +
                              ". Give each process a rank of its own."};
}

Status Roster::add(std::uint64_t stream, Participant participant) {
  if (!failure_) return failure_;
  if (failure_ = check(participant); !failure_) return failure_;
  const Rank rank = participant.member.rank;
  entries_.insert_or_assign(rank, Entry{stream, std::move(participant)});
  return {};
}

void Roster::remove(Rank rank, std::uint64_t nonce) {
  const auto entry = entries_.find(rank);
  if (entry != entries_.end() && entry->second.participant.member.nonce == nonce) entries_.erase(entry);
}

void Roster::remove_stream(std::uint64_t stream) {
  std::erase_if(entries_, [&](const auto& item) { return item.second.stream == stream; });
}

std::vector<Rank> Roster::missing() const {
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < world_; ++rank) {
    if (!entries_.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::vector<Participant> Roster::participants() const {
  std::vector<Participant> all;
  all.reserve(entries_.size());
  for (const auto& [rank, entry] : entries_) all.push_back(entry.participant);
  return all;
}

}  // namespace neuron::control
