#include "collectives/schedule/job.h"

#include <algorithm>
#include <tuple>

namespace neuron {
namespace {

constexpr std::int64_t kMaxLabel = 0xFFFFFF;
/// 2^i of later iterations does not fit the 32-bit Index.
constexpr std::uint32_t kMaxDoublings = 31;

Status malformed(const std::string& what) { return {Code::internal, "malformed schedule: " + what}; }

bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

bool is_point_to_point(Collective collective) {
  return collective == Collective::send || collective == Collective::receive;
}

std::uint32_t extent_at(const Chunk& chunk, std::int64_t i) {
  if (chunk.space == Space::none) return 0;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(chunk.extent.at(i), 0, kMaxLabel));
}

std::string chunk_text(const Schedule& schedule, const Chunk& chunk, std::int64_t i) {
  if (chunk.space == Space::none) return "nothing";
  const std::uint32_t first = schedule.chunk_at(chunk, i);
  const std::uint32_t extent = extent_at(chunk, i);
  std::string text = std::string(name_of(chunk.space)) + "[" + std::to_string(first);
  if (extent != 1) text += ".." + std::to_string(std::int64_t{first} + extent - 1);
  return text + "]";
}

Status check_phases(const Schedule& schedule) {
  const std::string who = "rank " + std::to_string(schedule.rank);
  if (schedule.phase_count > kMaxPhases || schedule.step_count > kMaxSteps) return malformed(who + ": too long");
  for (std::uint8_t p = 0; p < schedule.phase_count; ++p) {
    const Phase& phase = schedule.phases[p];
    const std::string which = who + ", phase " + std::to_string(p);
    if (phase.first_step + phase.step_count > schedule.step_count) return malformed(which + ": steps out of range");
    for (std::uint8_t s = phase.first_step; s < phase.first_step + phase.step_count; ++s) {
      const Step& step = schedule.steps[s];
      const bool is_linear = step.peer.growth == Growth::linear && step.label.growth == Growth::linear &&
                             step.source.first.growth == Growth::linear && step.target.first.growth == Growth::linear &&
                             step.source.extent.growth == Growth::linear && step.target.extent.growth == Growth::linear;
      if (!is_linear && std::uint64_t{phase.iterations} * step.fan > kMaxDoublings) {
        return malformed(which + ", step " + std::to_string(s) + ": doubles or halves more than 31 times");
      }
      for (const After& after : step.after) {
        if (after.scope != Scope::none && after.step >= schedule.step_count) {
          return malformed(which + ", step " + std::to_string(s) + ": comes after a step that does not exist");
        }
      }
    }
  }
  return {};
}

Status check_schedules(const std::vector<Schedule>& schedules) {
  if (schedules.empty()) return malformed("no ranks");
  const Schedule& first = schedules.front();
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    const Schedule& schedule = schedules[r];
    const std::string who = "rank " + std::to_string(r);
    if (schedule.rank != static_cast<Rank>(r)) return malformed(who + " holds the schedule of another rank");
    if (schedule.world != static_cast<Rank>(schedules.size())) return malformed(who + " has another world size");
    if (schedule.chunks == 0) return malformed(who + " cuts its buffers into no chunks");
    if (Status status = check_phases(schedule); !status) return status;
    if (is_point_to_point(schedule.collective) && is_point_to_point(first.collective)) {
      if (schedule.chunks != 1) return malformed(who + " cuts a point-to-point message into chunks");
      continue;
    }
    if (schedule.collective != first.collective) return malformed(who + " runs another collective than rank 0");
    if (schedule.chunks != first.chunks) return malformed(who + " has another number of chunks than rank 0");
    if (!is_rooted(schedule.collective)) continue;
    if (schedule.root != first.root) return malformed(who + " has another root than rank 0");
    if (schedule.root < 0 || schedule.root >= schedule.world) return malformed(who + " has a root out of range");
  }
  return {};
}

}  // namespace

Result<Job> Job::create(const std::vector<Schedule>& schedules) {
  if (Status status = check_schedules(schedules); !status) return status;
  Job job;
  job.schedules_ = &schedules;
  job.instances_.resize(schedules.size());
  std::vector<End> sends;
  std::vector<End> receives;
  for (Rank rank = 0; rank < job.world(); ++rank) {
    if (Status status = job.unroll(rank, sends, receives); !status) return status;
  }
  if (Status status = job.match(sends, receives); !status) return status;
  return job;
}

Status Job::unroll(Rank rank, std::vector<End>& sends, std::vector<End>& receives) {
  const Schedule& plan = schedule(rank);
  std::vector<Instance>& all = instances_[static_cast<std::size_t>(rank)];
  all.reserve(plan.instances());
  for (std::uint8_t p = 0; p < plan.phase_count; ++p) {
    const Phase& phase = plan.phases[p];
    for (std::uint32_t i = 0; i < phase.iterations; ++i) {
      for (std::uint8_t s = phase.first_step; s < phase.first_step + phase.step_count; ++s) {
        const auto index = static_cast<std::uint32_t>(all.size());
        all.push_back({.phase = p, .step = s, .iteration = i});
        if (Status status = check_step(rank, index); !status) return status;
        const Step& step = plan.steps[s];
        if (step.kind == StepKind::send) {
          const std::uint32_t label = message_label(step.stage, step.label.at(i));
          sends.push_back({rank, plan.peer_at(step, i), label, index, 0, extent_at(step.source, i)});
        }
        if (step.kind == StepKind::receive || step.kind == StepKind::reduce) {
          if (Status status = add_operands(rank, all.back(), receives); !status) return status;
        }
      }
    }
  }
  return {};
}

Status Job::add_operands(Rank rank, Instance& instance, std::vector<End>& receives) {
  const Schedule& plan = schedule(rank);
  const Step& step = plan.steps[instance.step];
  const auto index = static_cast<std::uint32_t>(&instance - instances_[static_cast<std::size_t>(rank)].data());
  const std::uint32_t fan = step.kind == StepKind::reduce ? step.fan : 1;
  const std::uint32_t label = message_label(step.stage, step.label.at(instance.iteration));
  instance.first = static_cast<std::uint32_t>(operands_.size());
  instance.operand_count = fan;
  bool has_own = false;
  for (std::uint32_t j = 0; j < fan; ++j) {
    const Rank peer = plan.peer_at(step, std::int64_t{instance.iteration} * fan + j);
    operands_.push_back(kOwnOperand);
    if (peer == rank) {
      if (step.kind == StepKind::receive) return wrong(rank, index, "receives from itself");
      if (has_own) return wrong(rank, index, "takes its own operand twice");
      if (step.source.space == Space::none) return wrong(rank, index, "has no local operand for its own position");
      has_own = true;
      continue;
    }
    const auto place = static_cast<std::uint32_t>(operands_.size() - 1);
    receives.push_back({peer, rank, label, index, place, extent_at(step.target, instance.iteration)});
  }
  return {};
}

Status Job::check_step(Rank rank, std::uint32_t instance) const {
  const Step& it = step(rank, instance);
  const std::int64_t i = instances(rank)[instance].iteration;
  const bool reads = it.kind != StepKind::receive;
  const bool writes = it.kind != StepKind::send;
  if (it.kind == StepKind::send && schedule(rank).peer_at(it, i) == rank) {
    return wrong(rank, instance, "sends to itself");
  }
  if (schedule(rank).collective == Collective::send && schedule(rank).peer_at(it, i) != schedule(rank).root) {
    return wrong(rank, instance, "sends to another rank than the destination");
  }
  if (it.kind == StepKind::reduce && it.fan == 0) return wrong(rank, instance, "has no operands");
  if (it.kind != StepKind::copy && (it.label.at(i) < 0 || it.label.at(i) > kMaxLabel)) {
    return wrong(rank, instance, "has a label out of range");
  }
  const bool needs_memory = it.kind == StepKind::copy || it.kind == StepKind::reduce;
  if (needs_memory && it.target.space == Space::none) return wrong(rank, instance, "has no target");
  if (it.kind == StepKind::copy && it.source.space == Space::none) return wrong(rank, instance, "has no source");
  if (needs_memory && it.source.space != Space::none && it.source.extent.at(i) != it.target.extent.at(i)) {
    return wrong(rank, instance, "has a source and a target of different extents");
  }
  if (reads) {
    if (Status status = check_chunk(rank, instance, it.source); !status) return status;
  }
  if (writes) {
    if (Status status = check_chunk(rank, instance, it.target); !status) return status;
  }
  return check_order(rank, instance);
}

Status Job::check_chunk(Rank rank, std::uint32_t instance, const Chunk& chunk) const {
  if (chunk.space == Space::none) return {};
  const std::int64_t i = instances(rank)[instance].iteration;
  const std::uint32_t count = schedule(rank).chunks_in(chunk.space);
  if (count == 0) return wrong(rank, instance, "uses scratch memory, of which the schedule has none");
  const std::int64_t extent = chunk.extent.at(i);
  if (extent < 1 || schedule(rank).chunk_at(chunk, i) + extent > count) {
    return wrong(rank, instance, "reaches beyond the last chunk of its memory");
  }
  return {};
}

Status Job::check_order(Rank rank, std::uint32_t instance) const {
  Status status;
  for_each_awaited(rank, instance, [&](std::uint32_t awaited) {
    if (awaited < instance || !status) return;
    status = wrong(rank, instance,
                   "deadlock: it waits for step " +
                       std::to_string(awaited < instances(rank).size() ? instances(rank)[awaited].step : 0) +
                       ", which is issued only after it");
  });
  return status;
}

Status Job::check_unique(const std::vector<End>& ends, bool is_send) const {
  for (std::size_t k = 1; k < ends.size(); ++k) {
    const End& a = ends[k - 1];
    const End& b = ends[k];
    if (std::tie(a.source, a.destination, a.label) != std::tie(b.source, b.destination, b.label)) continue;
    const Rank rank = is_send ? b.source : b.destination;
    return wrong(rank, b.instance,
                 "its message has the same label as that of " + describe(rank, a.instance) + ": two candidates");
  }
  return {};
}

Status Job::match(std::vector<End>& sends, std::vector<End>& receives) {
  const auto key = [](const End& end) { return std::tie(end.source, end.destination, end.label); };
  const auto by_key = [&key](const End& a, const End& b) { return key(a) < key(b); };
  const auto in_order = [](const End& a, const End& b) {
    return std::tie(a.source, a.destination, a.label, a.instance, a.operand) <
           std::tie(b.source, b.destination, b.label, b.instance, b.operand);
  };
  std::sort(sends.begin(), sends.end(), in_order);
  std::sort(receives.begin(), receives.end(), in_order);
  if (Status status = check_unique(sends, true); !status) return status;
  if (Status status = check_unique(receives, false); !status) return status;

  messages_.reserve(sends.size());
  std::size_t r = 0;
  for (const End& send : sends) {
    if (r < receives.size() && by_key(receives[r], send)) break;
    if (r == receives.size() || key(receives[r]) != key(send)) {
      return wrong(send.source, send.instance,
                   "unmatched message: rank " + std::to_string(send.destination) + " never receives it");
    }
    const End& receive = receives[r++];
    if (receive.extent != send.extent) {
      return wrong(receive.destination, receive.instance,
                   "its message has another number of chunks than that of " + describe(send.source, send.instance));
    }
    const auto message = static_cast<std::uint32_t>(messages_.size());
    instances_[static_cast<std::size_t>(send.source)][send.instance].first = message;
    operands_[receive.operand] = message;
    messages_.push_back({send.source, send.destination, send.label, send.instance, receive.instance, send.extent});
  }
  if (r == receives.size()) return {};
  return wrong(receives[r].destination, receives[r].instance,
               "unmatched receive: rank " + std::to_string(receives[r].source) + " never sends its message");
}

Status Job::wrong(Rank rank, std::uint32_t instance, const std::string& what) const {
  return {Code::internal, describe(rank, instance) + ": " + what};
}

std::string Job::describe(Rank rank, std::uint32_t instance) const {
  const Instance& at = instances(rank)[instance];
  const Schedule& plan = schedule(rank);
  const Step& it = plan.steps[at.step];
  std::string text = "rank " + std::to_string(rank) + ", phase " + std::to_string(at.phase) + ", iteration " +
                     std::to_string(at.iteration) + ", step " + std::to_string(at.step) + " (" +
                     std::string(name_of(it.kind));
  const std::string peer = std::to_string(plan.peer_at(it, at.iteration));
  if (it.kind != StepKind::receive) text += " " + chunk_text(plan, it.source, at.iteration);
  if (it.kind != StepKind::send) text += " into " + chunk_text(plan, it.target, at.iteration);
  if (it.kind == StepKind::send) text += " to rank " + peer;
  if (it.kind == StepKind::receive || (it.kind == StepKind::reduce && it.fan == 1)) text += " from rank " + peer;
  if (it.kind == StepKind::reduce && it.fan > 1) text += " from " + std::to_string(it.fan) + " positions";
  return text + ")";
}

}  // namespace neuron
