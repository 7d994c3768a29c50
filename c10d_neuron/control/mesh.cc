#include "c10d_neuron/control/mesh.h"

#include <algorithm>

#include "transport/base/log.h"

namespace neuron::control {
namespace {

// What a link that comes up later can still be told; far more than is under way while a host changes its leader.
constexpr std::size_t kMostBroadcastsKept = 1 << 16;
constexpr std::size_t kMostBroadcastBytesKept = 16 << 20;
// The whole of leave() stays below a second.
constexpr auto kConfirmationPatience = std::chrono::milliseconds(500);
constexpr auto kDrainPatience = std::chrono::milliseconds(400);
// A dead process has nothing more to say than what is in the socket; reading it takes a moment.
constexpr auto kUnreadCheck = std::chrono::milliseconds(2);
constexpr int kUnreadChecks = 50;
// Of a process that is not linked to this one: that it left may still be under way through the leader.
constexpr auto kHearsayPatience = std::chrono::milliseconds(100);

}  // namespace

Mesh::Mesh(asio::io_context& io, Setup setup, Listener& listener)
    : io_(io),
      identity_(std::move(setup.identity)),
      participants_(std::move(setup.participants)),
      topology_(std::move(setup.topology)),
      self_(identity_.rank),
      own_host_(topology_.host_of(self_)),
      listener_(listener),
      acceptor_(std::move(setup.acceptor)),
      presence_(participants_.size(), Presence::active),
      reasons_(participants_.size()),
      pids_(io, [this](Rank rank) { on_exit(rank, 0); }),
      log_(kMostBroadcastsKept, kMostBroadcastBytesKept),
      courier_(outlet()),
      courier_timer_(io),
      heartbeat_(io),
      patience_(io),
      leave_deadline_(io) {
  for (int host = 0; host < topology_.hosts(); ++host) hosts_.push_back(std::make_unique<Host>(io));
}

void Mesh::start(Seat seat) {
  if (topology_.hosts() > 1) {
    accept();
  } else {
    close_guarded(*acceptor_);
  }
  const bool leads = seat.door != nullptr;
  if (!leads && !seat.neighbours.empty()) leader_ = seat.neighbours.front().link;
  for (auto& neighbour : seat.neighbours) add_link(neighbour.link, std::move(neighbour.pidfd));
  if (leads) {
    become_leader(std::move(seat.door), /*is_first=*/true);
  } else if (!leader_) {
    elect();
  }
}

std::vector<Rank> Mesh::active_ranks(int host) const {
  std::vector<Rank> ranks;
  for (const Rank rank : topology_.ranks_of(host)) {
    if (is_active(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Mesh::ended_text(Rank rank) const {
  return "its process has ended (" + process_text(participants_[index(rank)].member) + ")";
}

void Mesh::depart(Rank rank, Presence how, const std::string& reason, const Link* from) {
  if (rank == self_) {
    if (how == Presence::dead && !leaving_) {
      log_once(LogLevel::error,
               "Another rank says that this one is lost: " + reason + ". The network between them is broken.");
    }
    return;
  }
  if (!is_active(rank)) return;
  presence_[index(rank)] = how;
  reasons_[index(rank)] = reason;
  pids_.remove(rank);
  courier_.forget(rank);
  proto::Frame frame;
  frame.mutable_departure()->set_rank(rank);
  frame.mutable_departure()->set_dead(how == Presence::dead);
  frame.mutable_departure()->set_reason(reason);
  flood(encode(frame), from, /*only_synchronised=*/false);
  if (how == Presence::dead) {
    listener_.on_death(rank, reason);
    while (const auto link = link_to(rank)) drop_link(link.get());
  } else {
    listener_.on_leave(rank);
  }
  const int host = topology_.host_of(rank);
  if (active_ranks(host).empty()) hosts_[static_cast<std::size_t>(host)]->waiting.clear();
  if (leader_ && leader_->peer == rank) leader_.reset();
  if (!leads_ && !leader_) elect();
  if (leads_) maintain_lifelines(/*is_takeover=*/false);
  shed_old_leader();
  check_settled();
  check_drained();
}

void Mesh::host_lost(int host, const std::string& why) {
  for (const Rank rank : active_ranks(host)) {
    const Member& member = participants_[index(rank)].member;
    depart(rank, Presence::dead, "its host cannot be reached (" + process_text(member) + "): " + why, nullptr);
  }
}

void Mesh::on_exit(Rank rank, int checks) {
  if (!is_active(rank)) return;
  const auto link = link_to(rank);
  const bool has_unread = link && link->has_unread() && checks < kUnreadChecks;
  if ((link && !has_unread) || (!link && checks > 0)) {
    return depart(rank, Presence::dead, ended_text(rank), nullptr);
  }
  auto timer = std::make_shared<asio::steady_timer>(io_);
  timer->expires_after(link ? kUnreadCheck : kHearsayPatience);
  timer->async_wait(
      [self = shared_from_this(), timer, rank, checks](const Error&) { self->on_exit(rank, checks + 1); });
}

void Mesh::watch(Rank rank, Descriptor pidfd) {
  if (!is_rank(rank) || rank == self_ || !is_active(rank) || pids_.watches(rank)) return;
  pids_.add(rank, std::move(pidfd));
}

void Mesh::leave(std::function<void()> done) {
  leaving_ = true;
  leave_done_ = std::move(done);
  if (is_ready_to_leave()) return say_left();
  leave_deadline_.expires_after(kConfirmationPatience);
  leave_deadline_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error) self->say_left();
  });
}

// Everything sent is confirmed, and somebody is linked to this rank who will pass on that it leaves.
bool Mesh::is_ready_to_leave() const {
  const bool has_way = std::any_of(links_.begin(), links_.end(), [&](const LinkPointer& link) {
    // A leader that has left relays for its locals until they are gone too.
    return link->is_synchronised && !link->is_finishing() && (link->is_local() || is_active(link->peer));
  });
  const bool is_alone = std::count(presence_.begin(), presence_.end(), Presence::active) == 1;
  return !courier_.is_waiting() && (has_way || is_alone);
}

void Mesh::say_left() {
  if (std::exchange(said_left_, true)) return;
  if (election_) election_->cancel();
  election_.reset();
  if (door_) door_->close();  // first, so that the name is free when the locals hear of it
  courier_.confirm_all();
  presence_[index(self_)] = Presence::left;
  proto::Frame frame;
  frame.mutable_departure()->set_rank(self_);
  flood(encode(frame), nullptr, /*only_synchronised=*/false);
  patience_.cancel();
  for (const auto& host : hosts_) host->retry.cancel();
  leave_deadline_.expires_after(kDrainPatience);
  leave_deadline_.async_wait([self = shared_from_this()](const Error& error) {
    if (error) return;
    while (!self->links_.empty()) self->drop_link(self->links_.back().get());
    self->check_drained();
  });
  check_drained();
}

// A leader relays until the locals that stay have found another one; then, or if it only follows, it closes its own
// side of each link and waits until the other side has read everything and closed too.
void Mesh::check_drained() {
  if (!leaving_) return;
  if (!said_left_) {
    if (is_ready_to_leave()) say_left();
    return;
  }
  const bool is_needed = leads_ && std::any_of(links_.begin(), links_.end(), [&](const LinkPointer& link) {
                           return link->is_local() && is_active(link->peer);
                         });
  if (is_needed) return;
  for (const auto& link : links_) link->finish();
  if (!links_.empty() || !leave_done_) return;
  close_guarded(*acceptor_);  // not before: who dials now hears that this rank has left
  leave_deadline_.cancel();
  heartbeat_.cancel();
  courier_timer_.cancel();
  pids_.clear();
  const auto done = std::exchange(leave_done_, nullptr);
  done();
}

proto::StatusReply Mesh::status() const {
  proto::StatusReply reply;
  reply.set_world(topology_.world());
  reply.set_hosts(topology_.hosts());
  for (Rank rank = 0; rank < topology_.world(); ++rank) {
    if (presence_[index(rank)] == Presence::left) reply.add_left(rank);
    if (presence_[index(rank)] != Presence::dead) continue;
    reply.add_dead(rank);
    reply.add_reasons(reasons_[index(rank)]);
  }
  return reply;
}

}  // namespace neuron::control
