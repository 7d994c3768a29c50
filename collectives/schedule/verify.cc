#include "collectives/schedule/verify.h"

#include "collectives/schedule/interleaving.h"
#include "collectives/schedule/job.h"
#include "collectives/schedule/races.h"
#include "collectives/schedule/symbolic.h"

namespace neuron {

Status verify(const std::vector<Schedule>& schedules, const VerifyOptions& options) {
  const Result<Job> job = Job::create(schedules);
  if (!job) return job.status();
  std::vector<Memory> memories;
  memories.reserve(schedules.size());
  for (const Schedule& schedule : schedules) memories.emplace_back(schedule, options.in_place);
  if (Status status = check_memory(*job, memories); !status) return status;

  Expressions expressions(options.seed);
  for (int k = 0; k < options.interleavings; ++k) {
    const std::uint64_t seed = Random::mix(options.seed + static_cast<std::uint64_t>(k));
    const bool has_eager_budget = k % 2 == 1;
    if (Status status = Interleaving(*job, memories, expressions, seed, has_eager_budget).run(); !status) return status;
  }
  return {};
}

Status verify(Rank world, const std::function<Schedule(Rank rank)>& build, const VerifyOptions& options) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(world));
  for (Rank rank = 0; rank < world; ++rank) schedules.push_back(build(rank));
  return verify(schedules, options);
}

}  // namespace neuron
