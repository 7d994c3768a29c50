#include "collectives/schedule/races.h"

#include <algorithm>

namespace neuron {
namespace {

/// Walks along the instances of one rank.
class Walk {
 public:
  Walk(const Job& job, Rank rank, const Memory& memory)
      : job_(job), rank_(rank), memory_(memory), slots_(memory.slots()), is_complete_(job.instances(rank).size()) {
    Expressions unused(0);
    const std::vector<Expression> initial = memory.initial(unused);
    for (std::size_t s = 0; s < initial.size(); ++s) slots_[s].is_defined = initial[s] != kUndefined;
  }

  Status run() {
    for (std::uint32_t k = 0; k < job_.instances(rank_).size(); ++k) {
      job_.for_each_awaited(rank_, k, [this](std::uint32_t awaited) { is_complete_[awaited] = true; });
      if (Status status = use(k); !status) return status;
    }
    return {};
  }

 private:
  struct Slot {
    bool is_defined = false;
    std::int64_t writer = -1;
    std::vector<std::uint32_t> readers;  // since the last write
  };
  /// A chunk and the slot where it lies.
  struct Place {
    Space space = Space::none;
    std::uint32_t chunk = 0;
    std::uint32_t slot = 0;
  };

  Status use(std::uint32_t k) {
    const Step& step = job_.step(rank_, k);
    const std::int64_t i = job_.instances(rank_)[k].iteration;
    const bool reads = step.kind != StepKind::receive && step.source.space != Space::none;
    const bool writes = step.kind != StepKind::send && step.target.space != Space::none;
    const auto count = static_cast<std::uint32_t>((reads ? step.source : step.target).extent.at(i));
    if (!reads && !writes) return {};
    for (std::uint32_t c = 0; c < count; ++c) {
      const Place source = reads ? place_of(step.source, i, c) : Place{};
      const Place target = writes ? place_of(step.target, i, c) : Place{};
      if (step.kind == StepKind::copy && source.slot == target.slot) continue;
      if (reads) {
        if (Status status = read(k, source); !status) return status;
      }
      if (writes) {
        if (Status status = write(k, target); !status) return status;
      }
    }
    return {};
  }

  Status read(std::uint32_t k, const Place& place) {
    Slot& slot = slots_[place.slot];
    if (slot.writer >= 0 && !is_complete(slot.writer)) {
      return wrong(k, place, "may be read while it is still being written by ", slot.writer);
    }
    if (!slot.is_defined) return wrong(k, place, "is read before it is written", -1);
    slot.readers.push_back(k);
    return {};
  }

  Status write(std::uint32_t k, const Place& place) {
    Slot& slot = slots_[place.slot];
    if (!memory_.is_writable(place.slot)) return wrong(k, place, "must not be written on this rank", -1);
    if (slot.writer >= 0 && !is_complete(slot.writer)) {
      return wrong(k, place, "may be written while it is still being written by ", slot.writer);
    }
    for (const std::uint32_t reader : slot.readers) {
      if (reader != k && !is_complete(reader)) {
        return wrong(k, place, "may be written while it is still being read by ", reader);
      }
    }
    slot.readers.clear();
    slot.writer = k;
    slot.is_defined = true;
    return {};
  }

  [[nodiscard]] bool is_complete(std::int64_t instance) const {
    return is_complete_[static_cast<std::size_t>(instance)];
  }

  [[nodiscard]] Place place_of(const Chunk& chunk, std::int64_t i, std::uint32_t c) const {
    const std::uint32_t number = job_.schedule(rank_).chunk_at(chunk, i) + c;
    return {chunk.space, number, memory_.slot(chunk.space, number)};
  }

  [[nodiscard]] Status wrong(std::uint32_t k, const Place& place, const std::string& what, std::int64_t other) const {
    std::string text = job_.describe(rank_, k) + ": " + std::string(name_of(place.space)) + "[" +
                       std::to_string(place.chunk) + "] " + what;
    if (other >= 0) text += job_.describe(rank_, static_cast<std::uint32_t>(other)) + "; a dependency is missing";
    return {Code::internal, text};
  }

  const Job& job_;
  Rank rank_;
  const Memory& memory_;
  std::vector<Slot> slots_;
  std::vector<bool> is_complete_;
};

}  // namespace

Status check_memory(const Job& job, const std::vector<Memory>& memories) {
  for (Rank rank = 0; rank < job.world(); ++rank) {
    if (Status status = Walk(job, rank, memories[static_cast<std::size_t>(rank)]).run(); !status) return status;
  }
  return {};
}

}  // namespace neuron
