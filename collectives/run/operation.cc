#include "collectives/run/operation.h"

#include "collectives/run/group.h"

namespace neuron {
namespace {

std::string size_text(std::size_t bytes) {
  constexpr std::size_t kKiB = 1024;
  if (bytes >= kKiB * kKiB && bytes % (kKiB * kKiB) == 0) return std::to_string(bytes / kKiB / kKiB) + " MiB";
  if (bytes >= kKiB && bytes % kKiB == 0) return std::to_string(bytes / kKiB) + " KiB";
  return std::to_string(bytes) + " bytes";
}

}  // namespace

std::size_t Buffers::bytes() const {
  if (pieces.empty()) return whole.bytes;
  std::size_t sum = 0;
  for (const Buffer& piece : pieces) sum += piece.bytes;
  return sum;
}

Operation::Operation(std::shared_ptr<CommunicatorState> group, Request request)
    : group_(std::move(group)), request_(std::move(request)) {}

Operation::~Operation() = default;

std::string Operation::describe() const {
  const bool is_point_to_point = request_.collective == Collective::send || request_.collective == Collective::receive;
  std::string text{name_of(request_.collective)};
  if (is_point_to_point) {
    text += (request_.collective == Collective::send ? " to rank " : " from rank ") + std::to_string(request_.root) +
            " (tag " + std::to_string(request_.tag) + ")";
  } else {
    text += " " + std::to_string(sequence_);
  }
  text += " of group " + group_->spec.name;
  if (request_.collective == Collective::barrier) return text;
  text += " (" + size_text(std::max(request_.input.bytes(), request_.output.bytes()));
  if (request_.data_type != DataType::bytes) {
    text += ", " + std::string(name_of(request_.data_type)) + ", " + std::string(name_of(request_.reduce_op));
  }
  if (!is_point_to_point && request_.root != kNoRank) text += ", root " + std::to_string(request_.root);
  return text + ")";
}

bool Operation::notify_when_done() { return (notify_.fetch_or(kWanted, std::memory_order_acq_rel) & kFinished) == 0; }

void Operation::keep_until_done(std::shared_ptr<void> owner) {
  kept_ = std::move(owner);
  if (!notify_when_done()) kept_.reset();
}

}  // namespace neuron
