#include "collectives/schedule/schedule.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/random.h"

namespace neuron {
namespace {

/// The residue in [0, modulus).
std::uint32_t wrap(std::int64_t value, std::int64_t modulus) {
  if (modulus <= 0) return 0;
  const std::int64_t rest = value % modulus;
  return static_cast<std::uint32_t>(rest < 0 ? rest + modulus : rest);
}

std::string to_text(const Index& index) {
  std::string text = std::to_string(index.base);
  if (index.step == 0) return text;
  text += index.step < 0 ? "-" : "+";
  const std::string step = std::to_string(index.step < 0 ? -static_cast<std::int64_t>(index.step) : index.step);
  switch (index.growth) {
    case Growth::linear:
      return text + (step == "1" ? "" : step) + "i";
    case Growth::doubling:
      return text + step + "*2^i";
    case Growth::halving:
      return text + step + "/2^i";
  }
  return text;
}

std::string to_text(const Chunk& chunk) {
  if (chunk.space == Space::none) return "nothing";
  std::string text = std::string(name_of(chunk.space)) + "[" + to_text(chunk.first) + "]";
  if (chunk.extent != Index{1, 0, Growth::linear}) text += "x(" + to_text(chunk.extent) + ")";
  return text;
}

std::string to_text(const Step& step) {
  std::string text{name_of(step.kind)};
  if (step.kind == StepKind::reduce) text += " " + std::to_string(step.fan) + "-way";
  if (step.source.space != Space::none) text += " " + to_text(step.source);
  if (step.kind == StepKind::send) text += " to rank " + to_text(step.peer);
  if (step.kind == StepKind::receive || step.kind == StepKind::reduce) text += " from rank " + to_text(step.peer);
  if (step.target.space != Space::none) text += " into " + to_text(step.target);
  if (step.kind != StepKind::copy) text += ", label " + std::to_string(step.stage) + ":" + to_text(step.label);
  if (step.completes_reduction) text += ", completes the reduction";
  for (const After& after : step.after) {
    if (after.scope == Scope::none) continue;
    text += ", after " + std::string(name_of(after.scope)) + " of step " + std::to_string(after.step);
  }
  return text;
}

/// Mixes words one by one: independent of the layout and byte order of the machine.
class Hasher {
 public:
  void add(std::int64_t word) {
    state_ = Random::mix(state_ ^ (static_cast<std::uint64_t>(word) + 0x9E3779B97F4A7C15ULL));
  }
  void add(const Index& index) {
    add(index.base);
    add(index.step);
    add(static_cast<std::int64_t>(index.growth));
  }
  void add(const Chunk& chunk) {
    add(static_cast<std::int64_t>(chunk.space));
    add(chunk.first);
    add(chunk.extent);
  }
  void add(const Step& step) {
    add(static_cast<std::int64_t>(step.kind));
    add(step.stage);
    add(static_cast<std::int64_t>(step.completes_reduction));
    add(step.fan);
    add(step.peer);
    add(step.label);
    add(step.source);
    add(step.target);
    for (const After& after : step.after) {
      add(after.step);
      add(static_cast<std::int64_t>(after.scope));
    }
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x6E6575726F6E3031ULL;
};

}  // namespace

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::barrier:
      return "barrier";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
  }
  return "unknown";
}

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::direct:
      return "direct";
    case Algorithm::ring:
      return "ring";
    case Algorithm::binomial:
      return "binomial";
    case Algorithm::pairwise:
      return "pairwise";
    case Algorithm::dissemination:
      return "dissemination";
    case Algorithm::point_to_point:
      return "point_to_point";
  }
  return "unknown";
}

std::string_view name_of(Space space) {
  switch (space) {
    case Space::none:
      return "none";
    case Space::input:
      return "input";
    case Space::output:
      return "output";
    case Space::scratch:
      return "scratch";
  }
  return "unknown";
}

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::receive:
      return "receive";
    case StepKind::reduce:
      return "reduce";
    case StepKind::copy:
      return "copy";
  }
  return "unknown";
}

std::string_view name_of(Scope scope) {
  switch (scope) {
    case Scope::none:
      return "none";
    case Scope::same:
      return "same";
    case Scope::previous:
      return "previous";
    case Scope::last:
      return "last";
    case Scope::all:
      return "all";
  }
  return "unknown";
}

Schedule& Schedule::loop(std::uint32_t iterations, std::span<const Step> body) {
  NEURON_CHECK(step_count + body.size() <= kMaxSteps, "a schedule has too many steps");
  const std::uint8_t first = step_count;
  std::copy(body.begin(), body.end(), steps.begin() + first);
  step_count = static_cast<std::uint8_t>(step_count + body.size());
  if (iterations == 0 || body.empty()) return *this;
  NEURON_CHECK(phase_count < kMaxPhases, "a schedule has too many phases");
  phases[phase_count++] = Phase{iterations, first, static_cast<std::uint8_t>(body.size())};
  return *this;
}

Rank Schedule::peer_at(const Step& step, std::int64_t i) const {
  return static_cast<Rank>(wrap(step.peer.at(i), world));
}

std::uint32_t Schedule::chunk_at(const Index& index, std::int64_t i) const { return wrap(index.at(i), chunks); }

std::uint32_t Schedule::chunk_at(const Chunk& chunk, std::int64_t i) const {
  return wrap(chunk.first.at(i), chunks_in(chunk.space));
}

std::uint32_t Schedule::chunks_in(Space space) const {
  switch (space) {
    case Space::none:
      return 0;
    case Space::scratch:
      return scratch_chunks;
    case Space::input:
      return collective == Collective::all_gather || collective == Collective::gather ? 1 : chunks;
    case Space::output:
      return collective == Collective::reduce_scatter || collective == Collective::scatter ? 1 : chunks;
  }
  return 0;
}

InstanceRange Schedule::awaited(const After& after, std::int64_t i) const {
  if (after.scope == Scope::none) return {};
  std::size_t start = 0;
  for (std::uint8_t p = 0; p < phase_count; ++p) {
    const Phase& phase = phases[p];
    const std::size_t stride = phase.step_count;
    if (after.step >= phase.first_step && after.step < phase.first_step + phase.step_count) {
      const std::size_t first = start + (after.step - phase.first_step);
      const std::int64_t count = phase.iterations;
      if (after.scope == Scope::all) return {first, stride, phase.iterations};
      std::int64_t wanted = i;
      if (after.scope == Scope::last) wanted = count - 1;
      if (after.scope == Scope::previous) wanted = i - 1;
      if (wanted < 0 || wanted >= count) return {};
      return {first + stride * static_cast<std::size_t>(wanted), stride, 1};
    }
    start += stride * phase.iterations;
  }
  return {};
}

std::size_t Schedule::instances() const {
  std::size_t count = 0;
  for (std::uint8_t p = 0; p < phase_count; ++p) count += std::size_t{phases[p].iterations} * phases[p].step_count;
  return count;
}

std::uint64_t Schedule::hash() const {
  Hasher hasher;
  hasher.add(static_cast<std::int64_t>(collective));
  hasher.add(static_cast<std::int64_t>(algorithm));
  hasher.add(rank);
  hasher.add(world);
  hasher.add(root);
  hasher.add(chunks);
  hasher.add(scratch_chunks);
  hasher.add(step_count);
  hasher.add(phase_count);
  for (const Phase& phase : phases) {
    hasher.add(phase.iterations);
    hasher.add(phase.first_step);
    hasher.add(phase.step_count);
  }
  for (const Step& step : steps) hasher.add(step);
  return hasher.value();
}

std::string Schedule::to_string() const {
  std::string text = std::string(name_of(algorithm)) + " " + std::string(name_of(collective)) + ", rank " +
                     std::to_string(rank) + " of " + std::to_string(world);
  if (root != kNoRank) text += ", root " + std::to_string(root);
  text += ", " + std::to_string(chunks) + " chunks";
  if (scratch_chunks > 0) text += ", " + std::to_string(scratch_chunks) + " scratch chunks";
  text += "\n";
  for (std::uint8_t p = 0; p < phase_count; ++p) {
    const Phase& phase = phases[p];
    text += "phase " + std::to_string(p) + ", " + std::to_string(phase.iterations) + " iterations\n";
    for (std::uint8_t s = phase.first_step; s < phase.first_step + phase.step_count; ++s) {
      text += "  step " + std::to_string(s) + ": " + to_text(steps[s]) + "\n";
    }
  }
  return text;
}

}  // namespace neuron
