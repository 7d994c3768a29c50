// What must hold when an interleaving has come to its end.
#include "collectives/schedule/interleaving.h"

namespace neuron {

Status Interleaving::check_end() const {
  for (Rank rank = 0; rank < job_.world(); ++rank) {
    if (of(rank).next == job_.instances(rank).size()) continue;
    return {Code::internal, job_.describe(rank, of(rank).next) + ": deadlock: " + why_blocked(rank)};
  }
  return {};
}

std::string Interleaving::why_blocked(Rank rank) const {
  const std::uint32_t k = of(rank).waiting_for;
  const Instance& it = job_.instances(rank)[k];
  std::string text = "it waits for " + job_.describe(rank, k);
  if (job_.step(rank, k).kind == StepKind::send) {
    const Message& message = job_.messages()[it.first];
    return text + ", whose receive is never posted: " + job_.describe(message.destination, message.receive);
  }
  for (std::uint32_t j = 0; j < it.operand_count; ++j) {
    const std::uint32_t number = job_.operands()[it.first + j];
    if (number == kOwnOperand || messages_[number].is_captured) continue;
    const Message& message = job_.messages()[number];
    return text + ", whose message is never sent: " + job_.describe(message.source, message.send);
  }
  return text;
}

std::string Interleaving::last_writer(Rank rank, std::uint32_t slot) const {
  const std::uint32_t writer = of(rank).writers[slot];
  if (writer > 0) return job_.describe(rank, writer - 1);
  return "rank " + std::to_string(rank) + " (no step writes it)";
}

Status Interleaving::check_result(Rank rank, std::uint32_t chunk) {
  const Memory::Expected expected = memory(rank).expected(chunk);
  const std::uint32_t slot = memory(rank).slot(Space::output, chunk);
  const Expression value = of(rank).values[slot];
  const auto wrong = [&](const std::string& what) -> Status {
    return {Code::internal, last_writer(rank, slot) + ": output[" + std::to_string(chunk) + "] holds " +
                                expressions_.to_text(value) + " (rank:chunk) at the end, " + what};
  };
  if (!expected.is_reduction || job_.world() == 1) {
    const Expression leaf = expressions_.leaf(expected.rank, expected.chunk);
    return value == leaf ? Status{} : wrong("instead of " + expressions_.to_text(leaf));
  }
  std::uint64_t leaves = 0;
  for (Rank r = 0; r < job_.world(); ++r) leaves += expressions_.leaves_of(expressions_.leaf(r, expected.chunk));
  if (value == kUndefined || expressions_.leaves_of(value) != leaves) {
    return wrong("instead of chunk " + std::to_string(expected.chunk) + " of every rank once");
  }
  if (!expressions_.is_complete(value)) return wrong("and the last step does not complete the reduction");
  if (expressions_.completions_of(value) > 1) return wrong("and more than one step completes the reduction");
  return {};
}

/// Replicas of a reduction must be combined in the same order on all ranks, or they drift apart by rounding.
Status Interleaving::check_same_order(Rank rank, std::uint32_t chunk) const {
  if (job_.schedule(rank).collective != Collective::all_reduce) return {};
  const std::uint32_t slot = memory(rank).slot(Space::output, chunk);
  const Expression here = of(rank).values[slot];
  const Expression there = of(0).values[memory(0).slot(Space::output, chunk)];
  if (here == there) return {};
  return {Code::internal, last_writer(rank, slot) + ": output[" + std::to_string(chunk) + "] is combined as " +
                              expressions_.to_text(here) + ", on rank 0 as " + expressions_.to_text(there)};
}

Status Interleaving::check_heard(Rank rank) const {
  std::vector<bool> heard = of(rank).heard_of;
  for (const Message& message : job_.messages()) {
    if (message.destination != rank) continue;
    const std::vector<bool>& news = news_[static_cast<std::size_t>(&message - job_.messages().data())];
    for (std::size_t r = 0; r < heard.size(); ++r) {
      if (news[r]) heard[r] = true;
    }
  }
  for (std::size_t r = 0; r < heard.size(); ++r) {
    if (heard[r]) continue;
    const auto count = static_cast<std::uint32_t>(job_.instances(rank).size());
    const std::string last = count > 0 ? job_.describe(rank, count - 1) : "rank " + std::to_string(rank) + " (no step)";
    return {Code::internal, last + ": leaves the barrier without having heard of rank " + std::to_string(r)};
  }
  return {};
}

}  // namespace neuron
