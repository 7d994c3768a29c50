// Executor: runs operations: starts them in order, walks their schedules lane by lane, posts to the Messenger, ends
// groups that have failed, asks peers what keeps them. The only one that posts to the Messenger. Ownership: the Engine.
// Thread: the holder of the baton.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/run/control_message.h"
#include "collectives/run/engine.h"
#include "collectives/run/execution.h"
#include "collectives/run/group.h"
#include "collectives/run/pool.h"
#include "collectives/run/tuner.h"
#include "transport/messaging/messenger.h"

namespace neuron {

/// What the Executor needs from the Engine around it.
class ExecutorHost {
 public:
  virtual ~ExecutorHost() = default;
  /// The operation has its final status: publish it, wake who waits for it.
  virtual void on_finished(Operation& operation) = 0;
  virtual void on_connection_needed(Rank peer) = 0;
  virtual void on_route_lost(Rank peer, Transport& route, const Status& why) = 0;
  virtual void broadcast(const ControlMessage& message) = 0;
};

class Executor final : public MessengerEvents {
 public:
  struct Options {
    Rank rank = 0;
    std::uint32_t generation = 0;
    std::vector<PeerInfo> peers;
    Topology topology;
    std::vector<Transport*> transports;
  };
  Executor(Options options, Tuner tuner, const Clock& clock, FlightRing& flight, ExecutorHost& host);
  ~Executor() override;

  Messenger& messenger() { return messenger_; }

  void add_group(std::shared_ptr<CommunicatorState> group);
  /// Ends what is in flight here as `reason`, without telling others, and forgets the group.
  void close_group(const std::shared_ptr<CommunicatorState>& group, const Status& reason);
  /// Takes a newly issued operation.
  void submit(OperationRef operation);
  /// Ends all operations of the group's present epoch; `tell`: on all other ranks too.
  void poison(CommunicatorState& group, const Status& reason, bool tell);
  /// A poison that another rank has sent.
  void on_poison(const Poison& told);
  void on_death(Rank rank, const std::string& why);
  void on_leave(Rank rank);
  /// Ends everything, everywhere here: the engine is going away.
  void close_all(const Status& reason);

  /// Runs what has become ready. Returns whether anything was.
  bool run();
  /// Deadlines and questions. To be called every few milliseconds while has_work().
  void tick();
  [[nodiscard]] bool has_work() const { return active_ > 0; }

  [[nodiscard]] std::uint64_t scheduled_bytes(Rank peer) const {
    return scheduled_bytes_[static_cast<std::size_t>(peer)];
  }
  [[nodiscard]] std::size_t memory_in_use() const;
  [[nodiscard]] std::string name_of_rank(Rank global) const;  // "rank 3 (host trn-1, pid 4711)"

  // ---- MessengerEvents ----
  void on_sent(SendPost& post) override;
  void on_received(ReceivePost& post, std::span<const std::byte> view) override;
  void on_mismatch(ReceivePost& post, const Header& header) override;
  void on_view_lost(ReceivePost& post) override;
  void on_withdrawn(ReceivePost& post) override;
  Disposition on_unmatched(Rank source, const Header& header) override;
  void on_question(Rank source, const Header& header, std::span<const std::byte> payload) override;
  void on_answer(Rank source, const Header& header, std::span<const std::byte> payload) override;
  void on_refused(Rank source, const Header& header, std::span<const std::byte> payload) override;
  void on_connection_needed(Rank peer) override { host_.on_connection_needed(peer); }
  void on_peer_lost(Rank peer, Transport& route, const Status& why) override { host_.on_route_lost(peer, route, why); }

 private:
  friend class Engine;

  // executor.cc: beginning and end of operations
  void start(OperationRef operation);
  void start_waiting(CommunicatorState& group);
  Choice prepare(Execution& execution, const OperationRef& operation);
  void prepare_schedule(Execution& execution, const Choice& choice);
  void prepare_memory(Execution& execution, const Request& request);
  void prepare_sequence(Execution& execution, Operation& operation);
  bool check_early_arrival(Execution& execution);
  void finish(Execution& execution, const Status& status);
  void finish_operation(Operation& operation, const Status& status);
  void release_posts(Execution& execution);
  void enqueue(Execution& execution);
  void retire();

  // stepping.cc: walking a schedule
  void run(Execution& execution);
  bool walk(Execution& execution, std::uint32_t lane_index);
  bool begin_segment(Execution& execution, Lane& lane);
  [[nodiscard]] bool is_ready(const Execution& execution, const Lane& lane, const Step& step,
                              std::uint32_t iteration) const;
  struct StepMemory {
    Buffer source;
    Buffer target;
    std::size_t whole = 0;  // bytes of the chunk that this is a segment of
  };
  static Buffer part_of(const Execution& execution, std::uint32_t lane, const Chunk& chunk, std::uint32_t iteration,
                        std::size_t* whole);
  static StepMemory memory_of(const Execution& execution, std::uint32_t lane, const Step& step,
                              std::uint32_t iteration);
  void issue(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration);
  void issue_send(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                  const StepMemory& memory);
  void issue_receive(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                     const StepMemory& memory);
  void issue_reduce(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                    const StepMemory& memory);
  StepReceive& new_receive(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                           Rank peer, const StepMemory& memory);
  void complete(Execution& execution, std::uint32_t lane, std::uint8_t step, std::uint32_t instance);
  void take_operand(StepReceive& receive, std::span<const std::byte> view);
  void combine(Execution& execution, PendingReduce& pending);
  void end_receive(StepReceive& receive);
  [[nodiscard]] MessageKey key_for(const Execution& execution, std::uint32_t lane, const Step& step,
                                   std::uint32_t iteration, Rank peer) const;
  [[nodiscard]] Status lost_view_error(const Execution& execution) const;

  // inquiry.cc: asking and answering
  void ask(Execution& execution, Nanoseconds now);
  void ask_rank(Execution& execution, Rank group_rank);
  void expire(Execution& execution, Nanoseconds now);
  [[nodiscard]] std::vector<Rank> awaited(const Execution& execution) const;
  [[nodiscard]] std::string timeout_text(const Execution& execution) const;
  [[nodiscard]] std::string advice_text(const Execution& execution) const;
  void end_epoch(CommunicatorState& group, std::uint32_t next_epoch, const Status& reason);
  Execution* find(CommunicatorState& group, const Header& header, Rank peer, Collective half);
  CommunicatorState* find_group(std::uint64_t id);

  // point_to_point.cc: the end of one send or receive, which leaves the group alone
  static MessageKey message_key(const Execution& execution);
  void fail_point_to_point(Execution& execution, const Status& status, bool tell);
  [[nodiscard]] bool has_ended(CommunicatorState& group, const Header& header, Rank source);
  [[nodiscard]] Status given_up_error(const Execution& execution, const std::string& why) const;
  void refuse_the_rest(const MessageKey& key, std::uint32_t first_segment);

  const Options options_;
  const Tuner tuner_;
  const Clock& clock_;
  FlightRing& flight_;
  ExecutorHost& host_;
  Messenger messenger_;

  std::unordered_map<std::uint64_t, std::shared_ptr<CommunicatorState>> groups_;
  std::unordered_map<std::uint64_t, Poison> early_poisons_;  // of groups that do not exist here yet
  std::unordered_map<std::uint64_t, bool> closed_groups_;
  RecentKeys given_up_;               // messages whose send has ended, before their receive was issued
  std::vector<std::string> deaths_;   // index = rank; empty: alive as far as known
  std::vector<Nanoseconds> left_at_;  // 0: has not left
  std::vector<std::uint64_t> scheduled_bytes_;
  std::size_t active_ = 0;  // executions
  IntrusiveList<Execution, ReadyTag> ready_;
  std::vector<Execution*> retired_;
  std::vector<std::shared_ptr<CommunicatorState>> to_refill_;
  std::vector<StepReceive*> posting_;  // of the reduce step that is being issued

  Pool<Execution> executions_;
  Pool<Schedule> schedules_;
  Pool<StepSend> sends_;
  Pool<StepReceive> receives_;
  Pool<PendingReduce> reduces_;
};

}  // namespace neuron
