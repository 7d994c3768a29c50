#include "collectives/schedule/cost.h"

#include <algorithm>
#include <queue>

namespace neuron {
namespace {

/// Plays all ranks' instances in the order of time.
class Clockwork {
 public:
  Clockwork(const Job& job, const CostModel& model, double bytes)
      : job_(job), model_(model), bytes_(bytes), ranks_(static_cast<std::size_t>(job.world())), spans_(ranks_.size()) {
    for (Rank rank = 0; rank < job.world(); ++rank) {
      of(rank).is_complete.resize(job.instances(rank).size());
      of(rank).missing.resize(job.instances(rank).size());
      spans_[static_cast<std::size_t>(rank)].resize(job.instances(rank).size());
    }
    for (const Message& message : job.messages()) ++of(message.destination).missing[message.receive];
  }

  Result<Timeline> run() {
    for (Rank rank = 0; rank < job_.world(); ++rank) advance(rank, 0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      switch (event.kind) {
        case EventKind::arrive:
          arrive(event.number, event.time);
          break;
        case EventKind::land:
          land(event.number, event.time);
          break;
        case EventKind::complete:
          complete(event.rank, event.number, event.time);
          break;
      }
    }
    for (Rank rank = 0; rank < job_.world(); ++rank) {
      const std::uint32_t next = of(rank).next;
      if (next == job_.instances(rank).size()) continue;
      return Status{Code::internal, job_.describe(rank, next) + ": deadlock"};
    }
    return std::move(spans_);
  }

 private:
  enum class EventKind : std::uint8_t { arrive, land, complete };
  struct Event {
    double time;
    std::uint64_t order;  // of creation: equal times keep it
    EventKind kind;
    Rank rank;                                  // complete
    std::uint32_t number;                       // message, or instance (complete)
    bool operator<(const Event& other) const {  // a priority queue yields the largest first
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct RankState {
    std::uint32_t next = 0;
    double out_free = 0;
    double in_free = 0;
    double processor_free = 0;
    std::vector<bool> is_complete;
    std::vector<std::uint32_t> missing;  // messages that have not landed, by instance
  };

  RankState& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void at(double time, EventKind kind, Rank rank, std::uint32_t number) {
    events_.push({time, created_++, kind, rank, number});
  }

  [[nodiscard]] double bytes_of(Rank rank, std::uint32_t extent) const {
    return bytes_ * extent / job_.schedule(rank).chunks;
  }

  void advance(Rank rank, double now) {
    RankState& state = of(rank);
    while (state.next < job_.instances(rank).size()) {
      bool is_ready = true;
      job_.for_each_awaited(rank, state.next, [&](std::uint32_t awaited) { is_ready &= state.is_complete[awaited]; });
      if (!is_ready) return;
      issue(rank, state.next++, now);
    }
  }

  void issue(Rank rank, std::uint32_t k, double now) {
    spans_[static_cast<std::size_t>(rank)][k].issued = now;
    const Step& step = job_.step(rank, k);
    if (step.kind != StepKind::send) {
      if (of(rank).missing[k] == 0) finish(rank, k, now);
      return;
    }
    const std::uint32_t message = job_.instances(rank)[k].first;
    const double start = std::max(now, of(rank).out_free);
    of(rank).out_free = start + model_.beta * bytes_of(rank, job_.messages()[message].extent);
    at(of(rank).out_free, EventKind::complete, rank, k);
    at(start + model_.alpha, EventKind::arrive, 0, message);
  }

  /// The head of the message is at the receiver's port.
  void arrive(std::uint32_t message, double now) {
    const Message& it = job_.messages()[message];
    double& free = of(it.destination).in_free;
    free = std::max(now, free) + model_.beta * bytes_of(it.destination, it.extent);
    at(free, EventKind::land, 0, message);
  }

  void land(std::uint32_t message, double now) {
    const Message& it = job_.messages()[message];
    const bool is_posted = it.receive < of(it.destination).next;
    if (--of(it.destination).missing[it.receive] == 0 && is_posted) finish(it.destination, it.receive, now);
  }

  /// All messages of a receive, reduction or copy are there, and it has been issued.
  void finish(Rank rank, std::uint32_t k, double now) {
    const Step& step = job_.step(rank, k);
    if (step.kind == StepKind::receive) return at(now, EventKind::complete, rank, k);
    const Instance& instance = job_.instances(rank)[k];
    const auto extent = static_cast<std::uint32_t>(step.target.extent.at(instance.iteration));
    std::uint32_t operands = step.kind == StepKind::copy ? 1 : instance.operand_count;
    const auto first = job_.operands().begin() + instance.first;
    const bool has_own =
        std::find(first, first + instance.operand_count, kOwnOperand) != first + instance.operand_count;
    if (step.kind == StepKind::reduce && step.source.space != Space::none && !has_own) ++operands;
    double& free = of(rank).processor_free;
    free = std::max(now, free) + model_.gamma * bytes_of(rank, extent) * operands;
    at(free, EventKind::complete, rank, k);
  }

  void complete(Rank rank, std::uint32_t k, double now) {
    spans_[static_cast<std::size_t>(rank)][k].completed = now;
    of(rank).is_complete[k] = true;
    advance(rank, now);
  }

  const Job& job_;
  CostModel model_;
  double bytes_;
  std::vector<RankState> ranks_;
  Timeline spans_;
  std::priority_queue<Event> events_;
  std::uint64_t created_ = 0;
};

}  // namespace

Result<Timeline> timeline(const Job& job, const CostModel& model, double bytes) {
  return Clockwork(job, model, bytes).run();
}

Result<Cost> cost(const std::vector<Schedule>& schedules, const CostModel& model, double bytes) {
  const Result<Job> job = Job::create(schedules);
  if (!job) return job.status();
  const Result<Timeline> times = timeline(*job, model, bytes);
  if (!times) return times.status();
  Cost total;
  for (const std::vector<Span>& rank : *times) {
    for (const Span& span : rank) total.seconds = std::max(total.seconds, span.completed);
  }
  std::vector<double> sent(schedules.size());
  total.messages = job->messages().size();
  for (const Message& message : job->messages()) {
    const auto source = static_cast<std::size_t>(message.source);
    sent[source] += bytes * message.extent / schedules[source].chunks;
  }
  for (const double rank : sent) {
    total.bytes += rank;
    total.most_bytes = std::max(total.most_bytes, rank);
  }
  return total;
}

}  // namespace neuron
