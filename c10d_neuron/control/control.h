// Control: how the processes of a job find each other, talk beside the data path, and learn of a death. A resource,
// owned by the composition root; runs its own thread(s). It carries bytes between ranks and does not look into them:
// what they say (poison, connection addresses, ...) is the engine's business. gRPC, Protobuf and Asio stay behind this
// header, which includes neither them nor torch.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/topology.h"
#include "transport/base/config.h"
#include "transport/base/rank.h"
#include "transport/base/status.h"

namespace neuron::control {

/// The key-value store that the ranks already share (torch's c10d store, through an adapter; tests: in memory).
/// Any thread. Calls may block up to the given timeout.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(const std::string& key, const std::string& value) = 0;
  /// Waits until the key exists. Errors: timeout, unavailable (the store's server is gone).
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

/// What a rank says of itself when it joins, and hears of every other in the Shape.
struct Member {
  Rank rank = kNoRank;
  std::uint64_t nonce = 0;  // of this incarnation of the process
  std::uint32_t pid = 0;
  std::string host_name;                         // for messages to people
  std::string host_identity;                     // HostFacts::identity()
  std::string version;                           // of c10d-neuron, with the protocol's number and libfabric's version
  std::vector<std::byte> shared_memory_address;  // where to ask for the descriptors; empty: no shared memory
};

/// The job's shape, the same on every rank.
struct Shape {
  std::uint64_t generation = 0;  // of this join; random
  std::vector<Member> members;   // index = rank
  Topology topology;
};

/// What the engine hears. On Control's thread: must not block, nor call leave(); may be called from before join returns
/// until leave does.
class Listener {
 public:
  virtual ~Listener() = default;
  /// Bytes from a rank, as it gave them to send() or broadcast(). Per sender and path in order.
  virtual void on_message(Rank source, std::span<const std::byte> bytes) = 0;
  /// The process of `rank` has ended without leaving: said once per rank, never of this one. `why`: "its process has
  /// ended (host trn-3, pid 4711)" or "its host cannot be reached (host trn-3, pid 4711): Connection timed out".
  virtual void on_death(Rank rank, const std::string& why) = 0;
  /// `rank` has left in good order (destroy_process_group or exit); it will not answer any more.
  virtual void on_leave(Rank rank) = 0;
};

struct JoinOptions {
  Rank rank = 0;
  Rank world = 1;
  Member self;  // rank and nonce filled in by the caller too
  std::chrono::milliseconds timeout{30 * 60 * 1000};
  std::string token_file;         // empty: the token travels through the store
  std::string network_interface;  // empty: all, the one of the default route first
};

class Control {
 public:
  /// Joins the job: rank 0 serves, one leader per host (elected on the spot) speaks for the others of its host. Blocks
  /// until all `world` ranks have joined. The listener may be called before join returns.
  /// Errors: timeout (who has not joined, or why rank 0 is not reached: its key may be an old one, so that is tried
  /// again until then), mismatch (world size, rank, version: who and what, on all ranks), refused (token), unavailable
  /// (store, interface).
  static Result<std::unique_ptr<Control>> join(const JoinOptions& options, KeyValueStore& store, Listener& listener);

  virtual ~Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  [[nodiscard]] virtual const Shape& shape() const = 0;
  /// The job's secret, for handing over descriptors inside a host. Never logged.
  [[nodiscard]] virtual const std::string& token() const = 0;
  /// Queues at most 8 MiB for one rank; routed through the two hosts' leaders; in order, once. Any thread; never
  /// blocks. Silently dropped when the rank is dead (on_death says so) and, like all calls, in a forked child.
  virtual void send(Rank destination, std::vector<std::byte> bytes) = 0;
  /// Queues at most 8 MiB for every other rank; flooded along the lifelines; in order, once. Any thread; never blocks.
  virtual void broadcast(std::vector<std::byte> bytes) = 0;
  /// A local process that was found dead or alive by someone else (shared memory has its pidfd, and keeps it): watched
  /// too.
  virtual void watch(Rank rank, int pidfd) = 0;
  /// Tells the others that this rank leaves, and stops the thread. Never waits for a peer longer than a second.
  /// Idempotent.
  virtual void leave() = 0;

 protected:
  Control() = default;
};

}  // namespace neuron::control
