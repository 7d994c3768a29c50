// Job: the schedules of all ranks of one collective, unrolled into instances, with every send matched to its receive.
// A value that verify, cost and draw read; the schedules must outlive it. Any thread.
// Fails (internal, naming rank, phase, iteration and step) when a schedule is malformed or a message has not exactly
// one sender and one receiver.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "transport/base/status.h"

namespace neuron {

/// One step in one iteration. Value.
struct Instance {
  std::uint8_t phase = 0;
  std::uint8_t step = 0;
  std::uint32_t iteration = 0;
  /// send: its message. receive, reduce: the first of its operands in Job::operands().
  std::uint32_t first = 0;
  /// receive: 1; reduce: its fan; else 0.
  std::uint32_t operand_count = 0;
};

/// From instance `send` of rank `source` to instance `receive` of rank `destination`. Value.
struct Message {
  Rank source = 0;
  Rank destination = 0;
  std::uint32_t label = 0;
  std::uint32_t send = 0;
  std::uint32_t receive = 0;
  std::uint32_t extent = 0;  // chunks; 0: an empty message
};

/// In Job::operands(): the local source stands at this position.
inline constexpr std::uint32_t kOwnOperand = std::numeric_limits<std::uint32_t>::max();

class Job {
 public:
  static Result<Job> create(const std::vector<Schedule>& schedules);

  [[nodiscard]] Rank world() const { return static_cast<Rank>(schedules_->size()); }
  [[nodiscard]] const Schedule& schedule(Rank rank) const { return (*schedules_)[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const std::vector<Instance>& instances(Rank rank) const {
    return instances_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const Step& step(Rank rank, std::uint32_t instance) const {
    return schedule(rank).steps[instances(rank)[instance].step];
  }
  [[nodiscard]] const std::vector<Message>& messages() const { return messages_; }
  /// Message indices by operand position, or kOwnOperand.
  [[nodiscard]] const std::vector<std::uint32_t>& operands() const { return operands_; }

  /// Calls visit(index) for every instance that this one comes after.
  template <typename Visit>
  void for_each_awaited(Rank rank, std::uint32_t instance, Visit visit) const {
    const Instance& at = instances(rank)[instance];
    for (const After& after : schedule(rank).steps[at.step].after) {
      const InstanceRange range = schedule(rank).awaited(after, at.iteration);
      for (std::size_t k = 0; k < range.count; ++k) visit(static_cast<std::uint32_t>(range.first + k * range.stride));
    }
  }

  /// "rank 3, phase 1, iteration 2, step 4 (receive into output[5] from rank 2)".
  [[nodiscard]] std::string describe(Rank rank, std::uint32_t instance) const;

 private:
  /// One side of a message before it is matched.
  struct End {
    Rank source;
    Rank destination;
    std::uint32_t label;
    std::uint32_t instance;
    std::uint32_t operand;  // receiving side: its place in operands_
    std::uint32_t extent;
  };

  Status unroll(Rank rank, std::vector<End>& sends, std::vector<End>& receives);
  Status add_operands(Rank rank, Instance& instance, std::vector<End>& receives);
  Status match(std::vector<End>& sends, std::vector<End>& receives);
  Status check_unique(const std::vector<End>& ends, bool is_send) const;
  Status check_order(Rank rank, std::uint32_t instance) const;
  Status check_chunk(Rank rank, std::uint32_t instance, const Chunk& chunk) const;
  Status check_step(Rank rank, std::uint32_t instance) const;
  [[nodiscard]] Status wrong(Rank rank, std::uint32_t instance, const std::string& what) const;

  const std::vector<Schedule>* schedules_ = nullptr;
  std::vector<std::vector<Instance>> instances_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> operands_;
};

}  // namespace neuron
