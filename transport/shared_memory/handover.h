// Handover: the thread that exchanges descriptors with the other processes of this host, so that neither a stalled peer
// nor a stranger ever holds up the engine. It blocks in poll(2) while nobody talks to it. A resource; the Endpoint owns
// it. Every public function may be called by any thread. Creation fails where there are no abstract Unix sockets; a
// hand-over that fails or passes its deadline becomes an Arrival that says why.
#pragma once
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/wait_set.h"
#include "transport/shared_memory/conversation.h"

namespace neuron::shared_memory {

/// A new peer, or a rank that cannot be reached and why.
struct Arrival {
  Rank rank = kNoRank;
  std::unique_ptr<Peer> peer;
  Status why;
};

/// The socket at which a process can be asked for its descriptors. Opened before the token is known, so that the
/// address can be told to others meanwhile: who comes early waits in its queue. A resource.
struct Listener {
  std::string name;
  Descriptor socket;

  /// Errors: unavailable.
  static Result<Listener> open();
  [[nodiscard]] std::vector<std::byte> address(const Identity& owner) const { return encode(Address{owner, name}); }
};

class Handover {
 public:
  /// `doorbell` is rung when there is an arrival. Errors: unavailable.
  static Result<std::unique_ptr<Handover>> create(Host host, const Doorbell& doorbell, Nanoseconds timeout,
                                                  std::optional<Listener> listener = std::nullopt);
  ~Handover();
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  [[nodiscard]] std::vector<std::byte> address() const { return encode(Address{host_.self, socket_name_}); }

  /// Starts a hand-over unless one is under way or done.
  void connect(const Address& address);
  /// Drops whatever is under way with that rank or has not been taken yet; its successor may be connected.
  void forget(Rank rank);

  /// One look at an atomic, for the hot path.
  [[nodiscard]] bool has_arrivals() const { return has_arrivals_.load(std::memory_order_seq_cst); }
  std::vector<Arrival> take_arrivals();

 private:
  enum class Standing : std::uint8_t { connecting, connected, given_up };

  struct Request {
    Address address;
    Nanoseconds deadline = kNever;
  };
  struct Talk {
    std::unique_ptr<Conversation> conversation;
    Nanoseconds deadline = kNever;
  };

  Handover(Host host, const Doorbell& doorbell, Nanoseconds timeout, std::string socket_name, Descriptor listener);

  void run();
  void wait();
  void accept_all();
  void serve_requests();
  void open(const Request& request);
  void advance_all();
  bool is_finished(Talk& talk, Nanoseconds now);
  void settle(Conversation& conversation, Conversation::Outcome outcome);
  [[nodiscard]] bool is_given_up(Rank rank);
  void report(Arrival arrival);

  const Host host_;
  const Doorbell& doorbell_;
  const Nanoseconds timeout_;
  const std::string socket_name_;
  const SteadyClock clock_;
  const Descriptor listener_;
  const Doorbell wake_;
  std::atomic<bool> stops_{false};

  // Of the thread alone.
  std::list<Talk> talks_;
  std::vector<Request> retries_;  // the listener's queue was full
  bool is_pausing_ = false;       // nobody could be accepted, though somebody waits

  std::atomic<bool> has_arrivals_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<Request> requests_;
  std::vector<Rank> forgotten_;
  std::vector<Arrival> arrivals_;
  std::unordered_map<Rank, Standing> standings_;

  std::thread thread_;
};

}  // namespace neuron::shared_memory
