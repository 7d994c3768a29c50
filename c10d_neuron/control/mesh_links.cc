// Mesh: links, leaders and lifelines.
#include <algorithm>
#include <cerrno>

#include "c10d_neuron/control/lifeline_graph.h"
#include "c10d_neuron/control/mesh.h"
#include "transport/base/log.h"

namespace neuron::control {
namespace {

// A host that was never reached is given up after so many attempts, a rank of one that was reached after fewer: it may
// have left, and the news of that be under way.
constexpr int kFirstContactFailures = 7;
constexpr int kLaterFailures = 3;
constexpr auto kRetry = std::chrono::milliseconds(150);
// After a link is lost the other host's new leader usually dials first.
constexpr auto kTakeoverPatience = std::chrono::milliseconds(100);
// The side that does not dial helps after this.
constexpr auto kOtherSidePatience = std::chrono::milliseconds(500);
constexpr auto kLocalPatience = std::chrono::seconds(10);
constexpr auto kOldLeaderPatience = std::chrono::milliseconds(150);
constexpr auto kHeartbeat = std::chrono::seconds(5);
constexpr Nanoseconds kSilence = 15 * kSecond;

}  // namespace

void Mesh::accept() {
  acceptor_->async_accept([self = shared_from_this()](const Error& error, asio::ip::tcp::socket socket) {
    if (!self->acceptor_->is_open()) return;
    if (error) {
      log_once(LogLevel::error, "Cannot accept connections from other hosts: " + error.message() +
                                    ". Raise the limit of open files (ulimit -n).");
      self->patience_.expires_after(kRetry);
      return self->patience_.async_wait([self](const Error& cancelled) {
        if (!cancelled && self->acceptor_->is_open()) self->accept();
      });
    }
    guard(socket);
    set_liveness_options(socket);
    auto link = std::make_shared<Link>(StreamSocket(std::move(socket)), /*is_local=*/false);
    answer(link, self->identity_, [self, link](const Status& status, Rank) {
      if (status) return self->on_incoming(link, std::make_shared<Descriptor>());
      if (status.code() != Code::refused) return;
      log(LogLevel::warning, "Refused a connection from another host: " + status.message() + ".");
    });
    self->accept();
  });
}

// Its first frame says whether it is a rank of this job or one that wants to join, by a key that is no longer true.
void Mesh::on_incoming(LinkPointer link, std::shared_ptr<Descriptor> pidfd) {
  link->listen(
      [self = shared_from_this(), weak = std::weak_ptr<Link>(link), pidfd](proto::Frame& frame) {
        const auto incoming = weak.lock();
        if (!incoming) return;
        if (!frame.has_record()) {
          self->add_link(incoming, std::move(*pidfd));
          if (incoming->is_open()) self->on_frame(incoming.get(), frame);
          return;
        }
        proto::Frame reply;
        reply.mutable_retry()->set_text("the join that the store's key names is over");
        incoming->send(reply);
        incoming->listen(nullptr, nullptr);
        incoming->finish();
      },
      nullptr);
}

void Mesh::add_link(const LinkPointer& link, Descriptor pidfd) {
  if (!link->is_open() || !is_rank(link->peer) || link->peer == self_ || !is_active(link->peer)) return link->close();
  Link* raw = link.get();
  links_.push_back(link);
  raw->listen([self = shared_from_this(), raw](proto::Frame& frame) { self->on_frame(raw, frame); },
              [self = shared_from_this(), raw](const Error& error) { self->on_link_closed(raw, error); });
  if (link->is_local() && pidfd.is_valid()) pids_.add(link->peer, std::move(pidfd));
  send_sync(raw);
  if (said_left_) raw->finish();  // the peer hears from it that this rank has left
}

void Mesh::drop_link(Link* link) {
  link->close();
  std::erase_if(links_, [&](const LinkPointer& each) { return each.get() == link; });
}

void Mesh::on_link_closed(Link* raw, const Error& error) {
  const auto found =
      std::find_if(links_.begin(), links_.end(), [&](const LinkPointer& each) { return each.get() == raw; });
  if (found == links_.end()) return;
  const auto link = *found;
  links_.erase(found);
  if (leader_ == link) leader_.reset();
  // A peer that closed before it told what it knows may just have left: somebody else will say which.
  if (is_active(link->peer) && link->is_synchronised && !link->said_farewell && !said_left_) {
    if (is_remote(*link) && says_unreachable(error)) {
      host_lost(topology_.host_of(link->peer), error.message());
    } else {
      depart(link->peer, Presence::dead, ended_text(link->peer), nullptr);
    }
  }
  if (!leads_ && !leader_) elect();
  if (is_remote(*link) && leads_) reach_later(topology_.host_of(link->peer), kTakeoverPatience);
  check_drained();
}

LinkPointer Mesh::link_to(Rank rank) const {
  const auto found =
      std::find_if(links_.rbegin(), links_.rend(), [&](const LinkPointer& each) { return each->peer == rank; });
  return found == links_.rend() ? nullptr : *found;
}

LinkPointer Mesh::link_to_host(int host) const {
  const auto leads_there = [&](const LinkPointer& each) {
    return topology_.host_of(each->peer) == host && is_active(each->peer) && !each->is_finishing();
  };
  const auto found = std::find_if(links_.rbegin(), links_.rend(), leads_there);
  return found == links_.rend() ? nullptr : *found;
}

void Mesh::elect() {
  if (said_left_ || leads_ || election_) return;
  election_ = std::make_shared<Election>(
      io_, leader_endpoint(identity_.token, identity_.generation, participants_[index(self_)].member.host_identity),
      identity_,
      Election::Events{[self = shared_from_this()](std::shared_ptr<Door> door) {
                         self->election_.reset();
                         self->become_leader(std::move(door), /*is_first=*/false);
                       },
                       [self = shared_from_this()](LinkPointer link, Descriptor pidfd) {
                         self->election_.reset();
                         self->add_link(link, std::move(pidfd));
                         if (!link->is_open()) return self->elect_later();
                         self->leader_ = std::move(link);
                       }});
  const auto election = election_;  // which may end, and be released, at once
  election->start();
}

// The name is held by a rank that is known to have gone: it will be free in a moment.
void Mesh::elect_later() {
  patience_.expires_after(kTakeoverPatience);
  patience_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error) self->elect();
  });
}

void Mesh::become_leader(std::shared_ptr<Door> door, bool is_first) {
  if (said_left_) return door->close();
  door_ = std::move(door);
  leads_ = true;
  leads_since_ = now();
  door_->welcome([self = shared_from_this()](LinkPointer link, Descriptor pidfd) {
    self->on_incoming(std::move(link), std::make_shared<Descriptor>(std::move(pidfd)));
  });
  expect_locals();
  maintain_lifelines(/*is_takeover=*/!is_first);
  if (topology_.hosts() > 1) beat();
  shed_old_leader();
}

// Somebody must notice the death of a local that does not come to the new leader.
void Mesh::expect_locals() {
  const std::uint64_t own_namespace = own_pid_namespace();
  for (const Rank rank : active_ranks(own_host_)) {
    if (rank == self_ || link_to(rank) || pids_.watches(rank)) continue;
    const Participant& local = participants_[index(rank)];
    if (local.pid_namespace != own_namespace) continue;
    Descriptor pidfd = pidfd_of(local.member.pid);
    if (pidfd.is_valid()) {
      pids_.add(rank, std::move(pidfd));
    } else if (errno == ESRCH) {
      depart(rank, Presence::dead, ended_text(rank), nullptr);
    }
  }
  patience_.expires_after(kOldLeaderPatience);
  patience_.async_wait([self = shared_from_this()](const Error& cancelled) {
    if (cancelled) return;
    self->shed_old_leader();
    self->patience_.expires_after(kLocalPatience);
    self->patience_.async_wait([self](const Error& error) {
      if (error || self->said_left_) return;
      for (const Rank rank : self->active_ranks(self->own_host_)) {
        if (rank == self->self_ || self->link_to(rank) || self->pids_.watches(rank)) continue;
        self->depart(rank, Presence::dead, "it did not come to its host's new leader within 10 s", nullptr);
      }
    });
  });
}

std::set<int> Mesh::neighbour_hosts() const {
  std::vector<int> live;
  for (int host = 0; host < topology_.hosts(); ++host) {
    if (host == own_host_ || !active_ranks(host).empty()) live.push_back(host);
  }
  return lifeline_neighbours(live, own_host_);
}

void Mesh::when_settled(std::function<void()> done) {
  settled_ = std::move(done);
  check_settled();
}

void Mesh::check_settled() {
  if (!settled_) return;
  const auto neighbours = neighbour_hosts();
  const bool is_settled = leads_ ? std::all_of(neighbours.begin(), neighbours.end(),
                                               [&](int host) {
                                                 const auto link = link_to_host(host);
                                                 return link && link->is_synchronised;
                                               })
                                 : leader_ && leader_->is_synchronised;
  if (is_settled) std::exchange(settled_, nullptr)();
}

// The higher host dials the lower one; after a takeover the new leader dials all, since nobody else knows it yet.
void Mesh::maintain_lifelines(bool is_takeover) {
  if (said_left_ || topology_.hosts() == 1) return;
  for (const int host : neighbour_hosts()) {
    if (link_to_host(host)) continue;
    if (is_takeover || host < own_host_) {
      reach(host);
    } else {
      reach_later(host, hosts_[static_cast<std::size_t>(host)]->was_linked ? kTakeoverPatience : kOtherSidePatience);
    }
  }
}

void Mesh::reach_later(int number, std::chrono::milliseconds delay) {
  Host& host = *hosts_[static_cast<std::size_t>(number)];
  const Nanoseconds due = now() + std::chrono::nanoseconds(delay).count();
  if (said_left_ || host.is_dialing || host.retry_at <= due) return;
  host.retry_at = due;
  host.retry.expires_after(delay);
  host.retry.async_wait([self = shared_from_this(), number](const Error& error) {
    if (error) return;
    self->hosts_[static_cast<std::size_t>(number)]->retry_at = kNever;
    self->reach(number);
  });
}

void Mesh::reach(int number) {
  Host& host = *hosts_[static_cast<std::size_t>(number)];
  if (said_left_ || !leads_ || host.is_dialing || link_to_host(number)) return;
  const auto candidates = active_ranks(number);
  if (candidates.empty()) return;
  const auto leader =
      std::find_if(candidates.begin(), candidates.end(), [&](Rank rank) { return participants_[index(rank)].leads; });
  const Rank candidate = leader == candidates.end() ? candidates.front() : *leader;
  host.is_dialing = true;
  dial(io_, participants_[index(candidate)], identity_, [self = shared_from_this(), number, candidate](Dialed dialed) {
    self->on_dialed(number, candidate, std::move(dialed));
  });
}

void Mesh::on_dialed(int number, Rank candidate, Dialed dialed) {
  Host& host = *hosts_[static_cast<std::size_t>(number)];
  host.is_dialing = false;
  if (dialed.how == Dialed::How::linked) return add_link(dialed.link, {});
  if (said_left_ || link_to_host(number) || !is_active(candidate)) return;
  host.failures += 1;
  if (host.failures < (host.was_linked ? kLaterFailures : kFirstContactFailures)) return reach_later(number, kRetry);
  const std::string advice = host.was_linked ? "" : ". Check the firewall between the hosts and C10D_NEURON_INTERFACE";
  if (dialed.how == Dialed::How::unreachable) return host_lost(number, dialed.why + advice);
  depart(candidate, Presence::dead, ended_text(candidate) + ", nobody answers at " + dialed.why + advice, nullptr);
  reach(number);
}

// Until the new way works the old leader relays; it waits for this farewell.
bool Mesh::has_settled_without_old_leader() const {
  if (!leads_) return leader_ && leader_->is_synchronised;
  if (std::chrono::nanoseconds(now() - leads_since_) >= kOldLeaderPatience) return true;
  const auto is_linked = [&](Rank rank) {
    const auto link = link_to(rank);
    return rank == self_ || (link && link->is_synchronised);
  };
  const auto locals = active_ranks(own_host_);
  const bool has_remote = std::any_of(links_.begin(), links_.end(), [&](const LinkPointer& link) {
    return is_remote(*link) && link->is_synchronised && is_active(link->peer);
  });
  return std::all_of(locals.begin(), locals.end(), is_linked) && (has_remote || neighbour_hosts().empty());
}

void Mesh::shed_old_leader() {
  if (!has_settled_without_old_leader()) return;
  proto::Frame farewell;
  farewell.mutable_farewell();
  for (const auto& link : links_) {
    if (!link->is_local() || is_active(link->peer) || link->is_finishing()) continue;
    link->send(farewell);
    link->finish();
  }
}

// A stopped process keeps its connections; that it is silent is worth a line, but it may come back.
void Mesh::beat() {
  heartbeat_.expires_after(kHeartbeat);
  heartbeat_.async_wait([self = shared_from_this()](const Error& error) {
    if (error || self->said_left_) return;
    proto::Frame frame;
    frame.mutable_heartbeat();
    const auto encoded = encode(frame);
    for (const auto& link : self->links_) {
      if (!self->is_remote(*link)) continue;
      link->send(encoded);
      if (now() - link->last_heard() < kSilence) continue;
      log_once(LogLevel::warning, rank_text(self->participants_[index(link->peer)].member) +
                                      " has been silent for 15 s: it may be stopped or its host overloaded.");
    }
    self->beat();
  });
}

}  // namespace neuron::control
