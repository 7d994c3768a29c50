// One random execution of a whole job on symbolic memory: the part of verify that finds deadlocks and wrong results.
// A resource of verify's, one thread. Fails with what is wrong, naming rank, phase, iteration and step.
//
// Events happen in random order: an instance is issued, a send's source is read, a message lands, an instance
// completes. A send completes only when its receive is posted, except that with an eager budget the first message of
// each pair that is caught waiting may complete without.
#pragma once
#include <cstdint>
#include <vector>

#include "collectives/schedule/job.h"
#include "collectives/schedule/symbolic.h"
#include "transport/base/random.h"
#include "transport/base/status.h"

namespace neuron {

class Interleaving {
 public:
  Interleaving(const Job& job, const std::vector<Memory>& memories, Expressions& expressions, std::uint64_t seed,
               bool has_eager_budget);

  /// Runs to the end and checks the results.
  Status run();

 private:
  enum class EventKind : std::uint8_t {
    issue,     // the rank's next instance
    capture,   // the send's source is read
    land,      // the message's payload reaches its receiver
    perform,   // a reduction or copy is computed
    complete,  // an instance
  };
  struct Event {
    EventKind kind;
    Rank rank;             // issue, perform, complete
    std::uint32_t number;  // message (capture, land) or instance (perform, complete)
  };
  static constexpr std::uint32_t kNothing = ~std::uint32_t{0};
  struct MessageState {
    bool is_posted = false;
    bool is_captured = false;
    bool is_send_completed = false;  // its completion has been scheduled
    std::uint32_t payload = 0;       // first in payloads_
  };
  struct RankState {
    std::uint32_t next = 0;
    std::uint32_t waiting_for = kNothing;  // the instance that `next` waits for
    std::vector<Expression> values;
    std::vector<std::uint32_t> writers;  // of each slot: instance + 1
    std::vector<bool> is_complete;
    std::vector<std::uint32_t> missing;  // of each instance: messages that have not landed
    std::vector<bool> heard_of;          // barrier: ranks that are known to have entered
  };

  Status handle(const Event& event);
  void advance(Rank rank);
  void issue(Rank rank);
  void post(std::uint32_t message);
  void capture(std::uint32_t message);
  Status land(std::uint32_t message);
  Status perform(Rank rank, std::uint32_t instance);
  Status perform_chunk(Rank rank, std::uint32_t instance, std::uint32_t chunk);
  void complete(Rank rank, std::uint32_t instance);
  void complete_send(std::uint32_t message);

  /// Writes and checks that a chunk of this size belongs there.
  Status write(Rank rank, std::uint32_t instance, std::uint32_t chunk, Expression value, std::uint64_t size);
  [[nodiscard]] std::uint32_t slot_of(Rank rank, const Chunk& chunk, std::uint32_t instance,
                                      std::uint32_t offset) const;
  void learn(Rank rank, std::uint32_t instance);

  [[nodiscard]] Status check_end() const;
  [[nodiscard]] Status check_result(Rank rank, std::uint32_t chunk);
  [[nodiscard]] Status check_same_order(Rank rank, std::uint32_t chunk) const;
  [[nodiscard]] Status check_heard(Rank rank) const;
  [[nodiscard]] std::string why_blocked(Rank rank) const;
  [[nodiscard]] std::string last_writer(Rank rank, std::uint32_t slot) const;

  RankState& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const RankState& of(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Memory& memory(Rank rank) const { return memories_[static_cast<std::size_t>(rank)]; }

  const Job& job_;
  const std::vector<Memory>& memories_;
  Expressions& expressions_;
  Random random_;
  bool has_eager_budget_;
  bool is_barrier_;
  std::vector<RankState> ranks_;
  std::vector<MessageState> messages_;
  std::vector<Expression> payloads_;
  std::vector<std::uint64_t> payload_sizes_;
  std::vector<std::vector<bool>> news_;  // barrier: what each message's sender had heard of
  std::vector<bool> is_budget_used_;     // by pair
  std::vector<Event> pool_;
  std::vector<Expression> operands_;  // scratch of perform_chunk
};

}  // namespace neuron
