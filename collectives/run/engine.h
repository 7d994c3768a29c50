// Engine: one process's part of a job: its transports, its groups, and whoever drives them.
// A resource made by the composition root (or by tests: several in one process, one per rank). Public calls: any
// thread. Driving: exactly one thread holds the baton and runs transports and executor; a blocked caller takes it,
// otherwise the background thread has it. Nothing here waits for a peer without a deadline.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/run/communicator.h"
#include "collectives/run/flight_record.h"
#include "collectives/run/operation.h"
#include "topology/topology.h"
#include "transport/base/clock.h"
#include "transport/base/config.h"
#include "transport/base/wait_set.h"
#include "transport/transport.h"

namespace neuron {

/// Bytes between engines beside the data path (implemented over control::Control). Any thread; never blocks.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual void send(Rank destination, std::vector<std::byte> bytes) = 0;
  virtual void broadcast(std::vector<std::byte> bytes) = 0;
};

/// Hears of finished operations that asked for it (Operation::notify_when_done, keep_until_done). Called by the driver:
/// must only queue.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void completed(OperationRef operation) = 0;
};

/// A rank of the job, for messages to people and for reaching it.
struct PeerInfo {
  std::uint64_t nonce = 0;
  std::uint32_t pid = 0;
  std::string host_name;
  std::vector<std::byte> shared_memory_address;  // empty: not offered
};

struct EngineOptions {
  Rank rank = 0;
  std::uint32_t generation = 0;  // of this incarnation in the job
  std::vector<PeerInfo> peers;   // index = global rank, this rank included
  Topology topology;
  std::size_t ranks_on_machine = 0;          // that share its cores, whatever host they count as; 0: those of the host
  std::unique_ptr<Transport> shared_memory;  // null: none
  std::unique_ptr<Transport> fabric;         // null: not yet; loopback in tests
  /// Opens the fabric when a peer turns out to be out of reach for shared memory. Empty: there is none to open.
  std::function<Result<std::unique_ptr<Transport>>()> open_fabric;
  ControlChannel* control = nullptr;      // null: peers connect by `fabric`'s own means (loopback)
  CompletionSink* completions = nullptr;  // null: futures and kept memory are released by the driver
  std::shared_ptr<Doorbell> doorbell;     // the one that shared_memory hands over; null: a new one
  const Clock* clock = nullptr;           // null: steady clock
  Config config;
  bool background_thread = true;  // false: only waiters drive (deterministic tests)
};

enum class WaitOutcome : std::uint8_t {
  done,
  expired,  // the given deadline has passed; the operation goes on
  look_up,  // 100 ms have passed or a signal came: check for Ctrl-C, then wait again
};

/// Bytes that left for one peer through one transport, and what the schedules wanted to send to it.
struct PeerTraffic {
  Rank peer = kNoRank;
  std::string transport;  // "shared_memory", "net", ...
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;            // payload bytes handed to the transport
  std::uint64_t scheduled_bytes = 0;  // payload bytes that schedules sent to this peer, over any transport
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  /// Ends all operations as aborted and stops the background thread; never waits for a peer.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] const Topology& topology() const;
  [[nodiscard]] const Config& config() const;
  /// Empty: not open.
  [[nodiscard]] std::string fabric_name() const;

  std::unique_ptr<Communicator> make_communicator(GroupSpec spec);

  /// Drives the engine until the operation is done. `until`: on the engine's clock, kNever: none.
  WaitOutcome wait(Operation& operation, Nanoseconds until);
  [[nodiscard]] Nanoseconds now() const;
  /// Wakes the background thread for what was issued as Urgency::deferred.
  void ring();

  // ---- from the control plane; any thread ----
  void deliver(Rank source, std::span<const std::byte> bytes);
  void report_death(Rank dead, const std::string& why);
  void report_leave(Rank gone);

  [[nodiscard]] std::vector<PeerTraffic> traffic() const;
  [[nodiscard]] std::vector<FlightRecord> flight_records() const;
  /// Bytes held for unmatched messages, queued sends and executions: what stays bounded.
  [[nodiscard]] std::size_t memory_in_use() const;

 private:
  friend class Communicator;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace neuron
