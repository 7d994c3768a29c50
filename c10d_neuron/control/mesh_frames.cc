// Mesh: what travels over its links.
#include <algorithm>

#include "c10d_neuron/control/mesh.h"
#include "transport/base/log.h"

namespace neuron::control {
namespace {

constexpr std::size_t kCongestedBytes = 32 << 20;  // messages are dropped, and repeated later
constexpr std::size_t kBrokenBytes = 128 << 20;    // the peer does not read
constexpr std::size_t kMostWaiting = 4096;
constexpr std::uint32_t kMostHops = 8;
constexpr Nanoseconds kConfirmationDelay = 2 * kMillisecond;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Courier::Outlet Mesh::outlet() {
  return {[this](Rank to, std::uint64_t sequence, std::span<const std::byte> bytes) {
            proto::Frame frame;
            auto* message = frame.mutable_message();
            message->set_from(self_);
            message->set_to(to);
            message->set_sequence(sequence);
            message->set_payload(bytes.data(), bytes.size());
            route(to, encode(frame));
          },
          [this](Rank to, std::uint64_t next) {
            proto::Frame frame;
            auto* confirmation = frame.mutable_acknowledgement();
            confirmation->set_from(self_);
            confirmation->set_to(to);
            confirmation->set_next(next);
            route(to, encode(frame));
          },
          [this](Rank from, std::span<const std::byte> bytes) { listener_.on_message(from, bytes); }};
}

void Mesh::send(Rank destination, std::vector<std::byte> bytes) {
  if (!is_rank(destination) || said_left_) return;
  if (destination == self_) return listener_.on_message(self_, bytes);
  if (!is_active(destination)) return;
  if (courier_.send(destination, std::move(bytes), now())) return arm_courier(now() + Courier::kFirstRepeat);
  log_once(LogLevel::error, "Messages for " + rank_text(participants_[index(destination)].member) +
                                " are dropped: 64 MiB of them wait already. It may be stopped.");
}

void Mesh::broadcast(const std::vector<std::byte>& bytes) {
  if (said_left_) return;
  proto::Frame frame;
  auto* message = frame.mutable_broadcast();
  message->set_origin(self_);
  message->set_sequence(next_broadcast_++);
  message->set_payload(bytes.data(), bytes.size());
  const auto encoded = encode(frame);
  log_.accept(self_, message->sequence(), encoded);
  flood(encoded, nullptr, /*only_synchronised=*/true);
}

void Mesh::flood(const Encoded& frame, const Link* except, bool only_synchronised) {
  std::vector<LinkPointer> broken;
  for (const auto& link : links_) {
    if (link.get() == except || (only_synchronised && !link->is_synchronised)) continue;
    link->send(frame);
    if (link->queued_bytes() > kBrokenBytes) broken.push_back(link);
  }
  for (const auto& link : broken) {
    log(LogLevel::error, rank_text(participants_[index(link->peer)].member) +
                             " does not read its control connection; 128 MiB wait for it. It is treated as lost.");
    link->close();
    on_link_closed(link.get(), asio::error::make_error_code(asio::error::no_buffer_space));
  }
}

void Mesh::route(Rank destination, const Encoded& frame) {
  LinkPointer link = link_to(destination);
  const int number = topology_.host_of(destination);
  if (!link || link->is_finishing()) {
    if (!leads_) {
      link = leader_;
    } else if (number != own_host_) {
      link = link_to_host(number);
    }
  }
  if (link && !link->is_finishing()) {
    if (link->queued_bytes() < kCongestedBytes) link->send(frame);
    return;
  }
  if (!leads_ || number == own_host_) return;  // repeated once there is a way
  Host& host = *hosts_[static_cast<std::size_t>(number)];
  if (host.waiting.size() < kMostWaiting) host.waiting.push_back(frame);
  if (host.failures == 0) reach(number);  // otherwise the next attempt is due soon
}

void Mesh::on_frame(Link* link, proto::Frame& frame) {
  switch (frame.body_case()) {
    case proto::Frame::kSync:
      return on_sync(link, frame.sync());
    case proto::Frame::kBroadcast:
      return on_broadcast(link, frame);
    case proto::Frame::kFarewell:
      link->said_farewell = true;
      return;
    case proto::Frame::kDeparture: {
      const auto& departure = frame.departure();
      if (!is_rank(departure.rank())) return;
      return depart(departure.rank(), departure.dead() ? Presence::dead : Presence::left, departure.reason(), link);
    }
    case proto::Frame::kMessage: {
      auto* message = frame.mutable_message();
      if (!is_rank(message->from()) || !is_rank(message->to())) return;
      if (message->to() == self_) {
        courier_.on_message(message->from(), message->sequence(), bytes_of(message->payload()));
        return arm_courier(now() + kConfirmationDelay);
      }
      message->set_hops(message->hops() + 1);
      if (message->hops() < kMostHops) route(message->to(), encode(frame));
      return;
    }
    case proto::Frame::kAcknowledgement: {
      auto* confirmation = frame.mutable_acknowledgement();
      if (!is_rank(confirmation->from()) || !is_rank(confirmation->to())) return;
      if (confirmation->to() == self_) {
        courier_.on_confirmation(confirmation->from(), confirmation->next(), now());
        return check_drained();
      }
      confirmation->set_hops(confirmation->hops() + 1);
      if (confirmation->hops() < kMostHops) route(confirmation->to(), encode(frame));
      return;
    }
    default:
      return;
  }
}

void Mesh::send_sync(Link* link) {
  proto::Frame frame;
  auto* sync = frame.mutable_sync();
  for (Rank rank = 0; rank < topology_.world(); ++rank) {
    if (is_active(rank)) continue;
    auto* departure = sync->add_departures();
    departure->set_rank(rank);
    departure->set_dead(presence_[index(rank)] == Presence::dead);
    departure->set_reason(reasons_[index(rank)]);
  }
  for (const auto& [origin, next] : log_.seen()) {
    auto* entry = sync->add_origins();
    entry->set_rank(origin);
    entry->set_next(next);
  }
  link->send(frame);
}

void Mesh::on_sync(Link* link, const proto::Sync& sync) {
  BroadcastLog::Seen seen;
  for (const auto& origin : sync.origins()) seen[origin.rank()] = origin.next();
  for (const auto& frame : log_.lacking(seen)) link->send(frame);
  link->is_synchronised = true;
  for (const auto& departure : sync.departures()) {
    if (!is_rank(departure.rank())) continue;
    depart(departure.rank(), departure.dead() ? Presence::dead : Presence::left, departure.reason(), link);
  }
  if (!link->is_open()) return;
  if (is_remote(*link)) {
    const int number = topology_.host_of(link->peer);
    Host& host = *hosts_[static_cast<std::size_t>(number)];
    host.was_linked = true;
    host.failures = 0;
    const auto waiting = std::exchange(host.waiting, {});
    for (const auto& frame : waiting) link->send(frame);
    for (const Rank rank : topology_.ranks_of(number)) courier_.repeat(rank, now());
  } else if (leader_.get() == link) {
    courier_.repeat_all(now());
  } else {
    courier_.repeat(link->peer, now());
  }
  shed_old_leader();
  check_settled();
  check_drained();
}

void Mesh::on_broadcast(Link* link, proto::Frame& frame) {
  const auto& broadcast = frame.broadcast();
  if (!is_rank(broadcast.origin()) || broadcast.origin() == self_) return;
  const auto encoded = encode(frame);
  if (!log_.accept(broadcast.origin(), broadcast.sequence(), encoded)) return;
  flood(encoded, link, /*only_synchronised=*/true);
  listener_.on_message(broadcast.origin(), bytes_of(broadcast.payload()));
}

void Mesh::arm_courier(Nanoseconds due) {
  if (courier_due_ <= due) return;
  courier_due_ = due;
  courier_timer_.expires_after(std::chrono::nanoseconds(std::max<Nanoseconds>(due - now(), 0)));
  courier_timer_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error) self->on_courier_timer();
  });
}

void Mesh::on_courier_timer() {
  courier_due_ = kNever;
  courier_.confirm_all();
  courier_.repeat_due(now());
  if (const Nanoseconds next = courier_.next_repeat(); next != kNever) arm_courier(next);
}

}  // namespace neuron::control
