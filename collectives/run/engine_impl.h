// Engine::Impl: the inside of the Engine: who drives, what waits to be taken over, which way leads to which peer.
// A resource of the Engine. Members say which thread may use them.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/run/baton.h"
#include "collectives/run/engine.h"
#include "collectives/run/executor.h"
#include "collectives/run/group.h"

namespace neuron {

class Engine::Impl final : public ExecutorHost {
 public:
  explicit Impl(EngineOptions options);
  ~Impl() override;

  // ---- any thread ----
  Result<OperationRef> issue(const std::shared_ptr<CommunicatorState>& group, Request request);
  /// Runs `job` under the baton, soon; in order with other jobs.
  void post(std::function<void(Executor&)> job);
  /// Runs `job` under the baton and returns after it.
  void run_exclusively(const std::function<void()>& job);
  WaitOutcome wait(Operation& operation, Nanoseconds until);
  void ring();
  void deliver(Rank source, std::span<const std::byte> bytes);

  const EngineOptions& options() const { return options_; }
  const Clock& clock() const { return *clock_; }
  Executor& executor() { return executor_; }
  FlightRing& flight() { return flight_; }
  [[nodiscard]] std::vector<PeerTraffic> traffic() const;
  const std::string& fabric_name() const { return fabric_name_; }

  // ---- ExecutorHost: the driver ----
  void on_finished(Operation& operation) override;
  void on_connection_needed(Rank peer) override;
  void on_route_lost(Rank peer, Transport& route, const Status& why) override;
  void broadcast(const ControlMessage& message) override;

 private:
  /// How the background thread sleeps; written by it, read by whoever gives the baton back.
  enum class Background : std::uint8_t {
    none,  // there is no such thread
    awake,
    watch,  // looks in every few milliseconds
    deep,   // sleeps until a transport or somebody rings; the transports are armed
    idle,   // sleeps until somebody rings: another thread had the baton when it looked
  };

  // engine_drive.cc
  bool step();
  bool take_over();
  void submit_all(Operation* newest);
  WaitOutcome drive(Operation& operation, Nanoseconds until, Nanoseconds look_up_at);
  WaitSet::Wake relax(Nanoseconds idle_since, Nanoseconds now, Nanoseconds until);
  WaitSet::Wake block(Nanoseconds timeout);
  void ring_soon();
  bool arm();
  void disarm();
  void give_back();
  void wake_driver();
  void wake_background();
  [[nodiscard]] bool has_work() const;
  void background();
  void background_drive();
  void background_sleep();
  void hear_background_bell();
  void drain_on_close();

  // engine_connect.cc
  void watch(Transport& transport);
  Status need_fabric();
  void connect_shared_memory(Rank peer);
  void connect_fabric(Rank peer);
  void on_connect(Rank source, const Connect& connect);

  EngineOptions options_;
  std::unique_ptr<SteadyClock> own_clock_;
  const Clock* clock_;
  std::string fabric_name_;
  FlightRing flight_;
  Executor executor_;  // the driver's
  Nanoseconds spin_ = 0;
  bool yields_ = false;     // more ranks than cores: let others run instead of spinning
  bool must_poll_ = false;  // a transport has nothing to wait for

  Baton baton_;
  std::atomic<bool> is_blocked_{false};  // the holder sleeps in wait_set_
  WaitSet wait_set_;
  Nanoseconds next_tick_ = 0;  // the driver's
  Nanoseconds last_activity_ = 0;

  std::atomic<Operation*> submitted_{nullptr};
  std::mutex inbox_mutex_;
  std::vector<std::function<void(Executor&)>> inbox_;
  std::atomic<bool> has_inbox_{false};

  std::atomic<Background> background_state_{Background::none};
  std::atomic<bool> stops_{false};
  Doorbell background_bell_;
  Timer background_timer_;  // rings later, unless a waiter comes first
  std::atomic<bool> is_timer_set_{false};
  WaitSet background_deep_;  // its bell, the engine's doorbell and the transports
  WaitSet background_idle_;  // its bell only
  std::thread background_thread_;
};

}  // namespace neuron
