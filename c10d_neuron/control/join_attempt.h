// JoinAttempt: one try to join the generation that the store's key names: elect the host's leader, and as leader speak
// to rank 0 for the host. A shared resource on Control's thread; `waiting_for` and `polls_store` may be asked by any
// thread. Ends with exactly one Outcome, unless cancelled.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c10d_neuron/control/election.h"
#include "c10d_neuron/control/join_client.h"
#include "c10d_neuron/control/participant.h"

namespace neuron::control {

/// A rank's place on its host after the join: the links it starts with.
struct Seat {
  struct Neighbour {
    LinkPointer link;
    Descriptor pidfd;
  };
  std::shared_ptr<Door> door;         // of the leader only
  std::vector<Neighbour> neighbours;  // the leader's locals, or the one leader
  std::vector<Participant> participants;
};

class JoinAttempt : public std::enable_shared_from_this<JoinAttempt> {
 public:
  struct Setup {
    proto::JoinKey key;
    std::string token;
    std::vector<std::string> addresses;  // of rank 0, numeric
    Participant self;
  };
  enum class End : std::uint8_t { joined, failed, again };
  struct Outcome {
    End end = End::again;
    Status failure;  // failed: final; again: why, for a message at the timeout
    Seat seat;
  };
  using Done = std::function<void(Outcome)>;

  JoinAttempt(Runtime& runtime, Setup setup, Done done);

  void start();
  /// Somebody who knows that this generation is over. Locals are told to read the key again.
  void abandon(const std::string& why);

  [[nodiscard]] std::string waiting_for() const;
  /// A leader looks at the key while it has not been admitted, and rarely afterwards; the others wait for their leader.
  [[nodiscard]] bool leads() const { return leads_; }
  [[nodiscard]] bool is_admitted() const { return admitted_; }

 private:
  struct Guest {
    Seat::Neighbour neighbour;
    bool has_record = false;
    proto::MemberRecord record;
  };

  void lead(std::shared_ptr<Door> door);
  void follow(LinkPointer link, Descriptor pidfd);
  void on_guest(LinkPointer link, Descriptor pidfd);
  void on_guest_frame(Link* link, proto::Frame& frame);
  void on_guest_gone(Link* link);
  void on_leader_frame(proto::Frame& frame);
  void dial();
  void on_admitted();
  void on_server_message(const proto::ToLeader& message);
  void on_dial_end(JoinClient::End how, const std::string& why);
  void tell_guests(const proto::Frame& frame);
  void take_part(const proto::ShapePart& part);
  void end(End how, Status failure);
  void wait_for(std::string what);

  Runtime& runtime_;
  Setup setup_;
  Done done_;
  asio::steady_timer redial_;
  std::shared_ptr<Election> election_;
  std::shared_ptr<Door> door_;
  std::vector<Guest> guests_;
  Seat::Neighbour leader_;
  std::shared_ptr<JoinClient> client_;
  std::size_t next_address_ = 0;
  int dials_ = 0;
  ShapeAssembly assembly_;
  std::atomic<bool> leads_{false};
  std::atomic<bool> admitted_{false};
  mutable std::mutex mutex_;  // waiting_for_
  std::string waiting_for_;
};

}  // namespace neuron::control
