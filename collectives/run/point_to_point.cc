// The part of the Executor that ends one send or receive in error: the pair's two operations fail, the group goes on.
#include <algorithm>

#include "collectives/run/executor.h"
#include "transport/base/decode.h"

namespace neuron {
namespace {

constexpr std::uint32_t kSegmentsRefused = 64;  // more than a sender has on its way at once
constexpr std::size_t kReasonBytes = 4000;

std::uint32_t first_unfinished_segment(const Execution& execution) {
  std::uint32_t first = execution.next_segment;
  for (const Lane& lane : execution.lanes) {
    if (lane.is_running) first = std::min(first, lane.segment);
  }
  return first;
}

}  // namespace

/// Of the first segment.
MessageKey Executor::message_key(const Execution& execution) {
  const CommunicatorState& group = *execution.operation->group_;
  const Request& request = execution.operation->request_;
  return {group.spec.id, execution.sequence, request.tag, group.epoch, group.global(request.root), true};
}

void Executor::fail_point_to_point(Execution& execution, const Status& status, bool tell) {
  const MessageKey key = message_key(execution);
  const bool is_receive = execution.operation->collective() == Collective::receive;
  const std::uint32_t first_segment = first_unfinished_segment(execution);
  finish(execution, status);
  if (tell) {  // the reason first: what is refused below says none
    Header header;
    header.kind = MessageKind::refuse;
    key.write_to(header);
    header.slot = is_receive ? 1 : 0;
    const auto bytes = Encoder().text(status.message().substr(0, kReasonBytes)).take();
    messenger_.send_control(key.peer, header, bytes);
  }
  if (is_receive) refuse_the_rest(key, first_segment);
}

/// A receive that ended in error consumes its message: what still comes of it is dropped, and its sender told.
void Executor::refuse_the_rest(const MessageKey& key, std::uint32_t first_segment) {
  for (std::uint32_t segment = first_segment; segment < first_segment + kSegmentsRefused; ++segment) {
    MessageKey late = key;
    late.tag |= std::uint64_t{segment} << 32;
    messenger_.refuse_late(late);
  }
}

/// Whether the receive for this message has been issued and is over.
bool Executor::has_ended(CommunicatorState& group, const Header& header, Rank source) {
  const auto pair =
      (static_cast<std::uint64_t>(group.group_rank_of(source)) << 32) | static_cast<std::uint32_t>(header.tag);
  const auto next = group.receive_sequences.find(pair);
  if (next == group.receive_sequences.end() || header.sequence >= next->second) return false;
  return find(group, header, source, Collective::receive) == nullptr;
}

Status Executor::given_up_error(const Execution& execution, const std::string& why) const {
  const CommunicatorState& group = *execution.operation->group_;
  return {Code::aborted, execution.operation->describe() + ": the other side, " +
                             name_of_rank(group.global(execution.operation->request_.root)) + ", has given up: " + why};
}

/// The other half of a point-to-point operation has ended in error.
void Executor::on_refused(Rank source, const Header& header, std::span<const std::byte> payload) {
  CommunicatorState* group = find_group(header.group);
  if (group == nullptr || group->epoch != header.epoch) return;
  const bool receive_has_ended = header.slot == 1;
  Execution* execution = find(*group, header, source, receive_has_ended ? Collective::send : Collective::receive);
  if (execution == nullptr) {
    if (!receive_has_ended && !has_ended(*group, header, source)) given_up_.add(MessageKey::of(header, source));
    return;
  }
  std::string why = "it has ended there";
  if (!payload.empty()) why = Decoder(payload).text();
  fail_point_to_point(*execution, given_up_error(*execution, why), false);
}

/// Of a collective, the poison that ended it on the other side is on its way.
void Executor::on_withdrawn(ReceivePost& post) {
  Execution& execution = *static_cast<StepReceive&>(post).execution;
  if (!execution.is_point_to_point) return;
  fail_point_to_point(execution, given_up_error(execution, "its send has ended in error"), false);
}

void Executor::on_view_lost(ReceivePost& post) {
  Execution& execution = *static_cast<StepReceive&>(post).execution;
  if (execution.is_finished) return;
  if (execution.is_point_to_point) return fail_point_to_point(execution, lost_view_error(execution), true);
  poison(*execution.operation->group_, lost_view_error(execution), true);
}

}  // namespace neuron
