#include "c10d_neuron/control/courier.h"

#include <algorithm>

namespace neuron::control {

bool Courier::send(Rank to, std::vector<std::byte> bytes, Nanoseconds now) {
  Outbox& outbox = outboxes_[to];
  if (outbox.bytes + bytes.size() > kMostQueuedBytes) return false;
  outbox.bytes += bytes.size();
  outbox.parcels.push_back({outbox.next_sequence++, std::move(bytes)});
  pump(to, outbox, now);
  return true;
}

void Courier::pump(Rank to, Outbox& outbox, Nanoseconds now) {
  while (outbox.under_way < outbox.parcels.size() && outbox.under_way < kWindow &&
         outbox.bytes_under_way < kWindowBytes) {
    const Parcel& parcel = outbox.parcels[outbox.under_way];
    outbox.under_way += 1;
    outbox.bytes_under_way += parcel.bytes.size();
    if (outbox.repeat_at == kNever) outbox.repeat_at = now + outbox.patience;
    outlet_.transmit(to, parcel.sequence, parcel.bytes);
  }
}

void Courier::on_message(Rank from, std::uint64_t sequence, std::span<const std::byte> bytes) {
  std::uint64_t& expected = expected_[from];
  int& unconfirmed = unconfirmed_[from];
  unconfirmed += 1;
  const bool is_next = sequence == expected;
  if (is_next) expected += 1;
  if (unconfirmed >= kMostUnconfirmed) {
    outlet_.confirm(from, expected);
    unconfirmed_.erase(from);
  }
  // A gap is left to the sender, who will say everything again from the first that was lost.
  if (is_next) outlet_.deliver(from, bytes);
}

void Courier::on_confirmation(Rank from, std::uint64_t next, Nanoseconds now) {
  const auto found = outboxes_.find(from);
  if (found == outboxes_.end()) return;
  Outbox& outbox = found->second;
  bool progressed = false;
  while (!outbox.parcels.empty() && outbox.parcels.front().sequence < next) {
    const std::size_t size = outbox.parcels.front().bytes.size();
    outbox.bytes -= size;
    if (outbox.under_way > 0) {
      outbox.under_way -= 1;
      outbox.bytes_under_way -= size;
    }
    outbox.parcels.pop_front();
    progressed = true;
  }
  if (!progressed) return;
  outbox.patience = kFirstRepeat;
  outbox.repeat_at = outbox.under_way > 0 ? now + outbox.patience : kNever;
  pump(from, outbox, now);
}

void Courier::confirm_all() {
  for (const auto& [source, count] : unconfirmed_) outlet_.confirm(source, expected_[source]);
  unconfirmed_.clear();
}

void Courier::repeat(Rank to, Nanoseconds now) {
  const auto found = outboxes_.find(to);
  if (found == outboxes_.end() || found->second.parcels.empty()) return;
  Outbox& outbox = found->second;
  outbox.under_way = outbox.bytes_under_way = 0;
  outbox.repeat_at = kNever;
  pump(to, outbox, now);
}

void Courier::repeat_all(Nanoseconds now) {
  for (const auto& [to, outbox] : outboxes_) repeat(to, now);
}

void Courier::repeat_due(Nanoseconds now) {
  for (auto& [to, outbox] : outboxes_) {
    if (outbox.repeat_at > now) continue;
    outbox.patience = std::min(outbox.patience * 2, kLastRepeat);
    repeat(to, now);
  }
}

void Courier::forget(Rank rank) {
  outboxes_.erase(rank);
  unconfirmed_.erase(rank);
}

Nanoseconds Courier::next_repeat() const {
  Nanoseconds next = kNever;
  for (const auto& [to, outbox] : outboxes_) next = std::min(next, outbox.repeat_at);
  return next;
}

}  // namespace neuron::control
