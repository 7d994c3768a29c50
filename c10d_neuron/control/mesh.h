// Mesh: a rank of a running job: its links, what travels over them, and who has left or died. Ranks of a host have a
// link to their leader; leaders have links to the leaders of some other hosts (lifeline_graph.h), and to more on
// demand. Nothing relies on who leads: broadcasts and departures flood over whatever links there are and are told again
// to links that come up later (BroadcastLog), messages are repeated until confirmed (Courier). So a leader may leave or
// die; the others of its host elect another one, and nothing is lost. A shared resource on Control's thread, which also
// calls the listener. Nothing here fails; deaths are what it reports.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "c10d_neuron/control/broadcast_log.h"
#include "c10d_neuron/control/courier.h"
#include "c10d_neuron/control/dialer.h"
#include "c10d_neuron/control/join_attempt.h"
#include "c10d_neuron/control/pid_watch.h"

namespace neuron::control {

class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  struct Setup {
    Identity identity;
    std::vector<Participant> participants;
    Topology topology;
    std::shared_ptr<asio::ip::tcp::acceptor> acceptor;  // for links from other hosts
  };
  Mesh(asio::io_context& io, Setup setup, Listener& listener);

  void start(Seat seat);
  /// `done` once the links that this rank starts with are up, or their hosts given up.
  void when_settled(std::function<void()> done);
  void send(Rank destination, std::vector<std::byte> bytes);
  void broadcast(const std::vector<std::byte>& bytes);
  void watch(Rank rank, Descriptor pidfd);
  /// `done` once the others know, or after a second.
  void leave(std::function<void()> done);
  [[nodiscard]] proto::StatusReply status() const;

 private:
  enum class Presence : std::uint8_t { active, left, dead };
  struct Host {
    explicit Host(asio::io_context& io) : retry(io) {}
    bool was_linked = false;
    bool is_dialing = false;
    int failures = 0;
    Nanoseconds retry_at = kNever;
    asio::steady_timer retry;
    std::deque<Encoded> waiting;  // for a link to this host
  };

  // mesh.cc: who is there
  void depart(Rank rank, Presence how, const std::string& reason, const Link* from);
  void host_lost(int host, const std::string& why);
  void on_exit(Rank rank, int checks);
  [[nodiscard]] bool is_active(Rank rank) const { return presence_[index(rank)] == Presence::active; }
  [[nodiscard]] bool is_rank(Rank rank) const { return rank >= 0 && rank < topology_.world(); }
  [[nodiscard]] std::vector<Rank> active_ranks(int host) const;
  [[nodiscard]] std::string ended_text(Rank rank) const;
  void check_drained();
  [[nodiscard]] bool is_ready_to_leave() const;
  void say_left();

  // mesh_links.cc: links, leaders and lifelines
  void accept();
  void on_incoming(LinkPointer link, std::shared_ptr<Descriptor> pidfd);
  void add_link(const LinkPointer& link, Descriptor pidfd);
  void on_link_closed(Link* link, const Error& error);
  void drop_link(Link* link);
  void elect();
  void elect_later();
  void become_leader(std::shared_ptr<Door> door, bool is_first);
  void expect_locals();
  [[nodiscard]] std::set<int> neighbour_hosts() const;
  void maintain_lifelines(bool is_takeover);
  void check_settled();
  void reach(int host);
  void reach_later(int host, std::chrono::milliseconds delay);
  void on_dialed(int host, Rank candidate, Dialed dialed);
  [[nodiscard]] bool has_settled_without_old_leader() const;
  void shed_old_leader();
  void beat();
  [[nodiscard]] LinkPointer link_to(Rank rank) const;
  [[nodiscard]] LinkPointer link_to_host(int host) const;
  [[nodiscard]] bool is_remote(const Link& link) const { return topology_.host_of(link.peer) != own_host_; }

  // mesh_frames.cc: what travels
  void on_frame(Link* link, proto::Frame& frame);
  void on_sync(Link* link, const proto::Sync& sync);
  void on_broadcast(Link* link, proto::Frame& frame);
  void send_sync(Link* link);
  void flood(const Encoded& frame, const Link* except, bool only_synchronised);
  void route(Rank destination, const Encoded& frame);
  void arm_courier(Nanoseconds due);
  void on_courier_timer();
  Courier::Outlet outlet();

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  [[nodiscard]] static Nanoseconds now() { return SteadyClock().now(); }

  asio::io_context& io_;
  Identity identity_;
  std::vector<Participant> participants_;
  Topology topology_;
  Rank self_;
  int own_host_;
  Listener& listener_;
  std::shared_ptr<asio::ip::tcp::acceptor> acceptor_;

  std::vector<Presence> presence_;
  std::vector<std::string> reasons_;
  std::vector<LinkPointer> links_;  // authenticated, oldest first
  PidWatch pids_;
  std::vector<std::unique_ptr<Host>> hosts_;
  BroadcastLog log_;
  std::uint64_t next_broadcast_ = 0;
  Courier courier_;
  asio::steady_timer courier_timer_;
  Nanoseconds courier_due_ = kNever;

  LinkPointer leader_;  // of those that follow
  std::shared_ptr<Door> door_;
  std::shared_ptr<Election> election_;
  bool leads_ = false;
  Nanoseconds leads_since_ = 0;
  asio::steady_timer heartbeat_;
  asio::steady_timer patience_;  // with locals that do not come to a new leader, with an old leader
  std::function<void()> settled_;
  bool leaving_ = false;
  bool said_left_ = false;
  asio::steady_timer leave_deadline_;
  std::function<void()> leave_done_;
};

}  // namespace neuron::control
