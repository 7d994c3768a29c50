// The part of the Executor that ends what cannot go on, and asks peers why something does not.
#include <algorithm>
#include <set>

#include "collectives/run/executor.h"
#include "transport/base/decode.h"
#include "transport/base/log.h"

namespace neuron {
namespace {

constexpr Nanoseconds kLongestInterval = 1000 * kMillisecond;
constexpr Nanoseconds kGathering = 200 * kMillisecond;  // for the last answers, once a deadline has passed
constexpr std::size_t kAskedAbout = 8;                  // executions of a group
constexpr std::size_t kEarlyPoisons = 1024;             // remembered, of groups that do not exist here yet
constexpr Nanoseconds kLeaveGrace = 2 * kSecond;        // what a peer sent before it left may still arrive

std::string seconds_text(Nanoseconds duration) {
  const auto tenths = (duration + kSecond / 20) / (kSecond / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string list_text(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

}  // namespace

CommunicatorState* Executor::find_group(std::uint64_t id) {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Executor::add_group(std::shared_ptr<CommunicatorState> group) {
  CommunicatorState& added = *group;
  groups_[added.spec.id] = std::move(group);
  closed_groups_.erase(added.spec.id);
  for (const Rank member : added.spec.members) {
    const std::string& why = deaths_[static_cast<std::size_t>(member)];
    if (!why.empty()) added.set_error({Code::peer_lost, name_of_rank(member) + " has died: " + why + "."}, true, true);
  }
  const auto early = early_poisons_.find(added.spec.id);
  if (early == early_poisons_.end()) return;
  const Poison poison = early->second;
  early_poisons_.erase(early);
  on_poison(poison);
}

void Executor::close_group(const std::shared_ptr<CommunicatorState>& group, const Status& reason) {
  if (groups_.erase(group->spec.id) == 0) return;
  if (closed_groups_.size() > 4096) closed_groups_.clear();
  closed_groups_[group->spec.id] = true;
  while (!group->waiting.empty()) {
    const OperationRef operation = std::move(group->waiting.front());
    group->waiting.pop_front();
    --active_;
    finish_operation(*operation, reason);
  }
  while (!group->active.is_empty()) finish(group->active.front(), reason);
  messenger_.drop_arrivals(group->spec.id, UINT32_MAX);
}

void Executor::close_all(const Status& reason) {
  while (!groups_.empty()) close_group(groups_.begin()->second, reason);
}

void Executor::poison(CommunicatorState& group, const Status& reason, bool tell) {
  const std::uint32_t ended_epoch = group.epoch;
  end_epoch(group, ended_epoch + 1, reason);
  if (tell) host_.broadcast(Poison{group.spec.id, ended_epoch, reason.code(), reason.message()});
}

/// The group goes on in `next_epoch`; poisons of several epochs may be still on their way.
void Executor::end_epoch(CommunicatorState& group, std::uint32_t next_epoch, const Status& reason) {
  const bool nobody_hears = group.active.is_empty() && group.waiting.empty();
  group.epoch = next_epoch;
  group.next_sequence = 0;
  group.epoch_and_sequence.store(std::uint64_t{group.epoch} << CommunicatorState::kSequenceBits);
  group.send_sequences.clear();
  group.receive_sequences.clear();
  group.early.fill({});
  group.set_error(reason, nobody_hears, false);
  std::deque<OperationRef> waiting;
  waiting.swap(group.waiting);
  active_ -= waiting.size();
  while (!group.active.is_empty()) finish(group.active.front(), reason);
  for (const OperationRef& operation : waiting) finish_operation(*operation, reason);
  messenger_.drop_arrivals(group.spec.id, next_epoch - 1);
}

void Executor::on_poison(const Poison& told) {
  CommunicatorState* group = find_group(told.group);
  if (group == nullptr) {
    if (closed_groups_.contains(told.group) || early_poisons_.size() >= kEarlyPoisons) return;
    Poison& known = early_poisons_.try_emplace(told.group, told).first->second;
    if (told.epoch > known.epoch) known = told;
    return;
  }
  if (told.epoch >= group->epoch) end_epoch(*group, told.epoch + 1, {told.code, told.reason});
}

void Executor::on_death(Rank rank, const std::string& why) {
  auto& known = deaths_[static_cast<std::size_t>(rank)];
  if (!known.empty()) return;
  known = why;
  const Status reason{Code::peer_lost, name_of_rank(rank) + " has died: " + why + ". "};
  messenger_.lose_peer(rank, reason);
  for (const auto& [id, group] : groups_) {
    if (group->group_rank_of(rank) == kNoRank) continue;
    const std::string what = group->active.is_empty() ? "Group " + group->spec.name + " has lost a member"
                                                      : group->active.front().operation->describe();
    const Status error{Code::peer_lost,
                       what + ": " + reason.message() +
                           "Its log says why; restart the job, or go on with the survivors in a new group."};
    group->set_error(error, false, true);  // first: whoever waits for an operation may issue the next one at once
    poison(*group, error, false);          // every rank hears of the death itself
  }
}

void Executor::on_leave(Rank rank) {
  auto& left = left_at_[static_cast<std::size_t>(rank)];
  if (left == 0) left = clock_.now();
}

void Executor::tick() {
  const Nanoseconds now = clock_.now();
  std::vector<Execution*> due;
  for (const auto& [id, group] : groups_) {
    std::size_t place = 0;  // questions are asked about the oldest: the others wait for those
    group->active.for_each([&](Execution& execution) {
      const bool asks = place++ < kAskedAbout && now >= execution.next_question;
      if (asks || now >= execution.operation->deadline_) due.push_back(&execution);
    });
  }
  for (Execution* execution : due) {
    if (execution->is_finished) continue;  // a poison ended it meanwhile
    if (now >= execution->operation->deadline_) {
      expire(*execution, now);
    } else {
      ask(*execution, now);
    }
  }
}

/// The group ranks that this execution waits for just now.
std::vector<Rank> Executor::awaited(const Execution& execution) const {
  std::set<Rank> ranks;
  const CommunicatorState& group = *execution.operation->group_;
  for (const StepReceive* receive : execution.receives) {
    if (receive->state != ReceivePost::State::kept) ranks.insert(group.group_rank_of(receive->key.peer));
  }
  for (const StepSend* send : execution.sends) ranks.insert(group.group_rank_of(send->key.peer));
  return {ranks.begin(), ranks.end()};
}

void Executor::ask(Execution& execution, Nanoseconds now) {
  execution.next_question = now + execution.question_interval;
  execution.question_interval = std::min(execution.question_interval * 2, kLongestInterval);
  const CommunicatorState& group = *execution.operation->group_;
  if (execution.answers.empty()) execution.answers.resize(static_cast<std::size_t>(group.world()));
  for (const Rank rank : awaited(execution)) {
    const Rank global = group.global(rank);
    const Nanoseconds left = left_at_[static_cast<std::size_t>(global)];
    const PeerAnswer& answer = execution.answers[static_cast<std::size_t>(rank)];
    const bool is_gone = answer.state == PeerAnswer::State::gone && now - answer.since > kLeaveGrace;
    if (is_gone || (left != 0 && now - left > kLeaveGrace)) {
      const std::string what =
          is_gone ? answer.text : "has left the job (destroy_process_group or end of the script) without taking part";
      const Status error{Code::peer_lost, execution.operation->describe() + ": " + name_of_rank(global) + " " + what +
                                              ". Let all ranks issue the same operations before they leave."};
      return execution.is_point_to_point ? fail_point_to_point(execution, error, false)
                                         : poison(*execution.operation->group_, error, true);
    }
    ask_rank(execution, rank);
  }
}

void Executor::ask_rank(Execution& execution, Rank group_rank) {
  const CommunicatorState& group = *execution.operation->group_;
  if (group_rank == group.rank) return;
  Header header;
  header.kind = MessageKind::question;
  header.group = group.spec.id;
  header.epoch = group.epoch;
  header.sequence = execution.sequence;
  header.fingerprint = execution.fingerprint;
  if (execution.is_point_to_point) {
    header.flags |= flag::kPointToPoint;
    header.tag = execution.operation->request_.tag;
    header.slot = execution.operation->collective() == Collective::send ? 1 : 0;
  }
  messenger_.send_control(group.global(group_rank), header, {});
}

/// The operation of this group that the header is about. Point-to-point: the `half` (send or receive) that is with
/// `peer`.
Execution* Executor::find(CommunicatorState& group, const Header& header, Rank peer, Collective half) {
  const bool is_point_to_point = (header.flags & flag::kPointToPoint) != 0;
  Execution* found = nullptr;
  group.active.for_each([&](Execution& execution) {
    if (execution.is_point_to_point != is_point_to_point || execution.sequence != header.sequence) return;
    const Request& request = execution.operation->request_;
    const bool is_other_pair = request.collective != half || request.tag != static_cast<std::uint32_t>(header.tag) ||
                               group.global(request.root) != peer;
    if (is_point_to_point && is_other_pair) return;
    found = &execution;
  });
  return found;
}

void Executor::on_question(Rank source, const Header& header, std::span<const std::byte> /*payload*/) {
  auto state = PeerAnswer::State::not_there;
  std::uint64_t at = 0;
  std::string text = "has not made this group yet";
  const bool is_point_to_point = (header.flags & flag::kPointToPoint) != 0;
  const bool asks_about_send = header.slot == 1;
  CommunicatorState* group = find_group(header.group);
  if (group == nullptr && closed_groups_.contains(header.group)) {
    state = PeerAnswer::State::gone;
    text = "has destroyed this group";
  } else if (group != nullptr && group->epoch > header.epoch) {
    state = PeerAnswer::State::gone;
    text = "has ended this operation: " + group->error().message();
  } else if (group != nullptr) {
    at = group->next_sequence;
    Execution* execution = find(*group, header, source, asks_about_send ? Collective::receive : Collective::send);
    if (execution != nullptr && execution->fingerprint != header.fingerprint) {
      state = PeerAnswer::State::other_operation;
      text = execution->operation->describe();
    } else if (execution != nullptr) {
      state = PeerAnswer::State::in_it;
      std::vector<std::string> ranks;
      for (const Rank rank : awaited(*execution)) ranks.push_back(std::to_string(rank));
      text = "takes part and waits for rank " + list_text(ranks);
    } else if (!is_point_to_point && header.sequence < group->next_sequence) {
      state = PeerAnswer::State::done;
      text = "is done with it";
    } else if (is_point_to_point) {
      text = asks_about_send ? "has not called recv for it" : "has not called send for it";
    } else {
      text = "has issued " + std::to_string(at) + " collectives of this group so far";
    }
  }
  Header answer;
  answer.kind = MessageKind::answer;
  answer.group = header.group;
  answer.epoch = header.epoch;
  answer.sequence = header.sequence;
  answer.tag = header.tag;
  answer.slot = header.slot;
  answer.flags = header.flags & flag::kPointToPoint;
  const auto bytes = Encoder().number(static_cast<std::uint8_t>(state)).number(at).text(text.substr(0, 1000)).take();
  messenger_.send_control(source, answer, bytes);
}

void Executor::on_answer(Rank source, const Header& header, std::span<const std::byte> payload) {
  CommunicatorState* group = find_group(header.group);
  if (group == nullptr || group->epoch != header.epoch) return;
  const bool is_point_to_point = (header.flags & flag::kPointToPoint) != 0;
  Execution* execution = find(*group, header, source, header.slot == 1 ? Collective::send : Collective::receive);
  const Rank rank = group->group_rank_of(source);
  if (execution == nullptr || rank == kNoRank || execution->answers.empty()) return;
  Decoder decoder(payload);
  PeerAnswer answer;
  const auto state = decoder.number<std::uint8_t>();
  answer.at_sequence = decoder.number<std::uint64_t>();
  answer.text = decoder.text();
  if (!decoder.is_finished() || state > static_cast<std::uint8_t>(PeerAnswer::State::gone)) return;
  answer.state = static_cast<PeerAnswer::State>(state);
  if (answer.state == PeerAnswer::State::other_operation && !is_point_to_point) {
    return poison(*group,
                  {Code::mismatch, execution->operation->describe() + " on " + name_of_rank(options_.rank) + " meets " +
                                       answer.text + " on " + name_of_rank(source) +
                                       ". All ranks must issue the same collectives in the same order."},
                  true);
  }
  PeerAnswer& known = execution->answers[static_cast<std::size_t>(rank)];
  answer.since = known.state == answer.state ? known.since : clock_.now();
  known = std::move(answer);
}

/// The operation's own deadline has passed: the answers are completed, then it ends.
void Executor::expire(Execution& execution, Nanoseconds now) {
  CommunicatorState& group = *execution.operation->group_;
  if (execution.gathers_until == 0) {
    execution.gathers_until = now + kGathering;
    execution.answers.resize(static_cast<std::size_t>(group.world()));
    for (Rank rank = 0; rank < group.world(); ++rank) {
      const bool is_concerned = !execution.is_point_to_point || rank == execution.operation->request_.root;
      if (is_concerned) ask_rank(execution, rank);
    }
    return;
  }
  const auto is_settled = [&](Rank rank) {
    const bool is_concerned = !execution.is_point_to_point || rank == execution.operation->request_.root;
    return rank == group.rank || !is_concerned ||
           execution.answers[static_cast<std::size_t>(rank)].state != PeerAnswer::State::none;
  };
  bool is_complete = true;
  for (Rank rank = 0; rank < group.world(); ++rank) is_complete &= is_settled(rank);
  if (now < execution.gathers_until && (!is_complete || now < execution.gathers_until - kGathering * 3 / 4)) return;
  const Status error{Code::timeout, timeout_text(execution)};
  if (execution.is_point_to_point) return fail_point_to_point(execution, error, true);
  poison(group, error, true);
}

std::string Executor::timeout_text(const Execution& execution) const {
  const CommunicatorState& group = *execution.operation->group_;
  const Operation& operation = *execution.operation;
  std::vector<std::string> missing;
  std::vector<std::string> others;
  for (Rank rank = 0; rank < group.world(); ++rank) {
    const bool is_concerned = !execution.is_point_to_point || rank == operation.request_.root;
    if (rank == group.rank || !is_concerned) continue;
    const PeerAnswer& answer = execution.answers[static_cast<std::size_t>(rank)];
    const std::string name = name_of_rank(group.global(rank));
    switch (answer.state) {
      case PeerAnswer::State::none:
        missing.push_back(name + ", which does not answer");
        break;
      case PeerAnswer::State::not_there:
      case PeerAnswer::State::gone:
        missing.push_back(name + ", which " + answer.text);
        break;
      case PeerAnswer::State::other_operation:
        missing.push_back(name + ", which is in " + answer.text);
        break;
      case PeerAnswer::State::in_it:
      case PeerAnswer::State::done:
        others.push_back(name + " " + answer.text);
        break;
    }
  }
  std::string text = operation.describe() + " timed out after " + seconds_text(clock_.now() - operation.issued_at()) +
                     " on " + name_of_rank(options_.rank) + ". ";
  if (!missing.empty()) text += "Not arrived: " + list_text(missing) + ". ";
  if (missing.empty() && !others.empty()) text += "All have arrived: " + list_text(others) + ". ";
  return text +
         "Look at what those ranks do (py-spy dump --pid PID); if they are only slow, raise the timeout of "
         "init_process_group or new_group.";
}

void Executor::on_mismatch(ReceivePost& post, const Header& header) {
  auto& receive = static_cast<StepReceive&>(post);
  Execution& execution = *receive.execution;
  CommunicatorState& group = *execution.operation->group_;
  const std::string peer = name_of_rank(receive.key.peer);
  std::string text = execution.operation->describe() + ": ";
  if (header.fingerprint != receive.fingerprint) {
    text +=
        peer + " issued a different operation under this number (collective, dtype, reduce op, root or size differ).";
  } else {
    text += peer + " sends " + std::to_string(header.length) + " bytes, this rank expects " +
            std::to_string(receive.message_bytes) + ".";
  }
  text += " Call it with the same arguments on both ranks.";
  if (execution.is_point_to_point) return fail_point_to_point(execution, {Code::mismatch, text}, true);
  poison(group, {Code::mismatch, text}, true);
}

Disposition Executor::on_unmatched(Rank source, const Header& header) {
  CommunicatorState* group = find_group(header.group);
  if (group == nullptr) return closed_groups_.contains(header.group) ? Disposition::drop : Disposition::keep;
  if (header.epoch < group->epoch) return Disposition::drop;
  if (header.epoch > group->epoch) {  // its sender has seen a poison that is still on its way to us
    end_epoch(*group, header.epoch,
              {Code::aborted, "Group " + group->spec.name + " was ended by another rank; its message follows."});
  }
  if ((header.flags & flag::kPointToPoint) != 0)
    return has_ended(*group, header, source) ? Disposition::drop : Disposition::keep;
  if (header.sequence >= group->next_sequence) {
    auto& early = group->early[header.sequence % group->early.size()];
    if (early.sequence != header.sequence) early = {header.sequence, header.fingerprint, source};
    return Disposition::keep;
  }
  Execution* execution = find(*group, header, source, Collective::barrier);
  if (execution == nullptr) return Disposition::drop;
  if (execution->fingerprint == header.fingerprint) return Disposition::keep;
  poison(*group,
         {Code::mismatch,
          execution->operation->describe() + ": " + name_of_rank(source) + " issued a different operation as number " +
              std::to_string(header.sequence) +
              " of this group (collective, dtype, reduce op, root or size differ). All ranks must issue the same "
              "collectives in the same order."},
         true);
  return Disposition::drop;
}

}  // namespace neuron
