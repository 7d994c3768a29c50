// What a rail does when it is polled: completions, errors, lost peers.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/log.h"
#include "transport/fabric/libfabric_rail.h"

namespace neuron::fabric {
namespace {

constexpr std::size_t kBatch = 16;
constexpr int kBatchesPerPoll = 2;  // 32 messages of 8 KiB are copied in well under 50 us
constexpr Nanoseconds kFlushLimit = 200 * kMillisecond;
class Nobody final : public TransportEvents {
 public:
  void on_message(Rank, const Header&, std::span<const std::byte>) override {}
  void on_written(std::uint32_t) override {}
  void on_write_done(std::uint64_t, const Status&) override {}
  void on_peer_lost(Rank, const Status&) override {}
};

/// What these errors most often mean to an operator.
const char* advice(int error) {
  switch (error) {
    case FI_EHOSTUNREACH:
      return " The peer has never answered: on AWS the security group must allow all traffic from and to itself, by "
             "its "
             "own id, inbound and outbound.";
    case FI_ENOTCONN:
    case FI_ECONNABORTED:
    case FI_ECONNRESET:
    case FI_ECONNREFUSED:
      return " The peer's process has probably ended: look at its log first.";
    case FI_ENOMEM:
      return " Check `ulimit -l` on both hosts.";
    default:
      return "";
  }
}

}  // namespace

// ---- polling ----

bool LibfabricRail::poll(TransportEvents& events) {
  bool happened = false;
  if (!connected_late_.empty()) {
    deliver_early_messages(events);
    happened = true;
  }
  for (int batch = 0; batch < kBatchesPerPoll; ++batch) {
    const std::size_t count = read_completions(events);
    happened |= count > 0;
    if (count < kBatch) break;
  }
  if (!unposted_receives_.empty()) post_missing_receives();
  if (!refusing_.empty()) check_refusals();
  if (!losses_.empty()) happened |= report_losses(events);
  return happened;
}

std::size_t LibfabricRail::read_completions(TransportEvents& events) {
  fi_cq_data_entry entries[kBatch];
  const auto count = fi_cq_read(endpoint_->cq(), entries, std::size(entries));
  if (count > 0) {
    for (std::ptrdiff_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)], events);
    return static_cast<std::size_t>(count);
  }
  if (count == -FI_EAGAIN || count == 0) return 0;
  if (count == -FI_EAVAIL) return read_error(events) ? kBatch : 0;
  lose_all({Code::internal, "The completion queue of provider " + own_.provider +
                                " failed: " + endpoint_->library().error_text(count) + "."});
  return 0;
}

void LibfabricRail::complete(const fi_cq_data_entry& entry, TransportEvents& events) {
  // FI_REMOTE_CQ_DATA alone does not tell: some providers set it on the writer's side, too. Nor does the length, which
  // others leave 0.
  constexpr std::uint64_t kWritten = FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  if ((entry.flags & kWritten) == kWritten) {
    events.on_written(static_cast<std::uint32_t>(entry.data));
    if (!endpoint_->immediates_take_receives()) return;
    if (Request* taken = receives_.find(entry.op_context)) post_receive(taken);
    return;
  }
  if (Request* request = receives_.find(entry.op_context)) return complete_receive(request, entry.len, events);
  if (Request* request = sends_.find(entry.op_context)) return complete_send(request);
  if (Request* request = write_requests_.find(entry.op_context)) complete_write(request, {}, events);
}

void LibfabricRail::complete_receive(Request* request, std::size_t bytes, TransportEvents& events) {
  deliver({request->buffer, std::min(bytes, kMessageBytes)}, events);
  post_receive(request);
}

void LibfabricRail::deliver(std::span<const std::byte> message, TransportEvents& events) {
  Header header;
  if (message.size() < sizeof header) {
    ++dropped_.malformed;
    return;
  }
  std::memcpy(&header, message.data(), sizeof header);
  const auto kind = static_cast<std::uint8_t>(header.kind);
  if (kind == 0 || kind >= kMessageKinds) {
    ++dropped_.malformed;
    return;
  }
  const auto source = static_cast<Rank>(header.source);
  const auto payload = message.subspan(sizeof header);
  const Peer* peer = peers_.find(source);
  if (peer == nullptr) {
    if (!early_.keep(header, payload)) ++dropped_.unknown;
    return;
  }
  if (!peer->is_lost) events.on_message(source, header, payload);
}

void LibfabricRail::deliver_early_messages(TransportEvents& events) {
  for (const Rank rank : std::exchange(connected_late_, {})) {
    while (is_connected(rank)) {
      const auto message = early_.take(rank);
      if (!message) break;
      events.on_message(rank, message->header, message->payload);
    }
  }
}

void LibfabricRail::complete_send(Request* request) {
  Peer* peer = request->peer;
  sends_.give_back(request);
  --peer->sends;
  peer->refused_since = 0;
  peers_.release_if_forgotten(peer);
}

void LibfabricRail::complete_write(Request* request, const Status& status, TransportEvents& events) {
  Peer* peer = request->peer;
  const std::uint64_t cookie = request->cookie;
  const bool is_reported = request->is_reported;
  blocks_.end_write(request->block);
  write_requests_.give_back(request);
  --peer->writes;
  peer->refused_since = 0;
  peers_.release_if_forgotten(peer);
  if (!is_reported) events.on_write_done(cookie, status);
}

// ---- errors ----

bool LibfabricRail::read_error(TransportEvents& events) {
  ErrorEntry error;
  if (fi_cq_readerr(endpoint_->cq(), error.get(), 0) <= 0) return false;
  const Library& library = endpoint_->library();
  std::array<char, 256> room{};
  const char* detail = fi_cq_strerror(endpoint_->cq(), error->prov_errno, error->err_data, room.data(), room.size());
  const std::string text = own_.provider + " reports " + library.error_text(-error->err) + ", provider's number " +
                           std::to_string(error->prov_errno) + (detail == nullptr ? "" : ": " + std::string(detail)) +
                           "." + advice(error->err);
  if (Request* request = receives_.find(error->op_context)) {
    ++dropped_.failed;
    log_once(LogLevel::debug, "A receive failed: " + text);
    post_receive(request);
    return true;
  }
  const bool is_flush = error->err == FI_ECANCELED;
  if (Request* request = sends_.find(error->op_context)) {
    lose(*request->peer,
         {Code::peer_lost, "Sending to rank " + std::to_string(request->peer->rank) + " failed: " + text}, is_flush);
    complete_send(request);
  } else if (Request* write = write_requests_.find(error->op_context)) {
    const Status status(Code::peer_lost, "Writing to rank " + std::to_string(write->peer->rank) + " failed: " + text);
    lose(*write->peer, status, is_flush);
    complete_write(write, status, events);
  } else {
    log_once(LogLevel::warning, "An error that belongs to no operation: " + text);
  }
  return true;
}

void LibfabricRail::lose(Peer& peer, const Status& reason, bool is_flush) {
  if (peer.is_reported) return;
  const bool is_better = peer.is_lost && peer.is_flushed && !is_flush;
  if (!peer.is_lost || is_better) {
    peer.reason = reason;
    peer.is_flushed = is_flush;
  }
  if (peer.is_lost) return;
  peer.is_lost = true;
  losses_.push_back(peer.rank);
}

void LibfabricRail::lose_all(const Status& reason) {
  peers_.for_each([&](Peer& peer) { lose(peer, reason, false); });
}

bool LibfabricRail::report_losses(TransportEvents& events) {
  const auto lost = std::exchange(losses_, {});
  for (const Rank rank : lost) {
    Peer* peer = peers_.find(rank);
    if (peer == nullptr || peer->is_reported) continue;
    peer->is_reported = true;
    std::erase(refusing_, peer);
    const Status reason = peer->reason;  // the listener may forget the peer
    for (Request& request : write_requests_.all()) {
      if (!request.in_flight || request.peer != peer || std::exchange(request.is_reported, true)) continue;
      events.on_write_done(request.cookie, reason);
    }
    events.on_peer_lost(rank, reason);
  }
  return !lost.empty();
}

void LibfabricRail::check_refusals() {
  const Nanoseconds now = clock_.now();
  std::erase_if(refusing_, [&](Peer* peer) {
    if (peer->refused_since == 0) return true;
    if (now - peer->refused_since < stall_limit_) return false;
    lose(*peer,
         {Code::peer_lost, "Rank " + std::to_string(peer->rank) + " has taken nothing over " + own_.provider + " for " +
                               std::to_string((now - peer->refused_since) / kSecond) +
                               " s: its process has ended or hangs, or the network between the hosts is down."},
         false);
    return true;
  });
}

// ---- sleeping and ending ----

bool LibfabricRail::arm() {
  if (!losses_.empty() || !connected_late_.empty() || !unposted_receives_.empty()) return false;
  return endpoint_->try_wait();
}

void LibfabricRail::flush() {
  Nobody nobody;
  const SteadyClock real;  // a clock of a test may stand still
  const Nanoseconds limit = real.now() + kFlushLimit;
  const auto is_busy = [&] {
    bool busy = false;
    peers_.for_each([&](const Peer& peer) { busy |= !peer.is_lost && !peer.is_idle(); });
    return busy;
  };
  while (is_busy() && real.now() < limit) poll(nobody);
}

}  // namespace neuron::fabric
