#include "collectives/schedule/interleaving.h"

namespace neuron {

Interleaving::Interleaving(const Job& job, const std::vector<Memory>& memories, Expressions& expressions,
                           std::uint64_t seed, bool has_eager_budget)
    : job_(job),
      memories_(memories),
      expressions_(expressions),
      random_(seed),
      has_eager_budget_(has_eager_budget),
      is_barrier_(job.schedule(0).collective == Collective::barrier),
      ranks_(static_cast<std::size_t>(job.world())),
      messages_(job.messages().size()),
      is_budget_used_(ranks_.size() * ranks_.size()) {
  for (Rank rank = 0; rank < job.world(); ++rank) {
    RankState& state = of(rank);
    state.values = memory(rank).initial(expressions);
    state.writers.resize(state.values.size());
    state.is_complete.resize(job.instances(rank).size());
    state.missing.resize(job.instances(rank).size());
    state.heard_of.resize(is_barrier_ ? ranks_.size() : 0);
    if (is_barrier_) state.heard_of[static_cast<std::size_t>(rank)] = true;
  }
  std::uint32_t chunks = 0;
  for (std::size_t m = 0; m < messages_.size(); ++m) {
    messages_[m].payload = chunks;
    chunks += job.messages()[m].extent;
    ++of(job.messages()[m].destination).missing[job.messages()[m].receive];
  }
  payloads_.resize(chunks);
  payload_sizes_.resize(chunks);
  news_.resize(is_barrier_ ? messages_.size() : 0);
}

Status Interleaving::run() {
  for (Rank rank = 0; rank < job_.world(); ++rank) advance(rank);
  while (!pool_.empty()) {
    std::swap(pool_[random_.below(pool_.size())], pool_.back());
    const Event event = pool_.back();
    pool_.pop_back();
    if (Status status = handle(event); !status) return status;
  }
  if (Status status = check_end(); !status) return status;
  for (Rank rank = 0; rank < job_.world(); ++rank) {
    if (is_barrier_) {
      if (Status status = check_heard(rank); !status) return status;
    }
    if (!memory(rank).has_output()) continue;
    for (std::uint32_t c = 0; c < job_.schedule(rank).chunks_in(Space::output); ++c) {
      if (Status status = check_result(rank, c); !status) return status;
      if (Status status = check_same_order(rank, c); !status) return status;
    }
  }
  return {};
}

Status Interleaving::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::issue:
      issue(event.rank);
      return {};
    case EventKind::capture:
      capture(event.number);
      return {};
    case EventKind::land:
      return land(event.number);
    case EventKind::perform:
      return perform(event.rank, event.number);
    case EventKind::complete:
      complete(event.rank, event.number);
      return {};
  }
  return {};
}

/// Lets the next instance be issued if all that it comes after is complete, else remembers what it waits for.
void Interleaving::advance(Rank rank) {
  RankState& state = of(rank);
  if (state.next == job_.instances(rank).size()) return;
  state.waiting_for = kNothing;
  job_.for_each_awaited(rank, state.next, [&](std::uint32_t awaited) {
    if (state.waiting_for == kNothing && !state.is_complete[awaited]) state.waiting_for = awaited;
  });
  if (state.waiting_for == kNothing) pool_.push_back({EventKind::issue, rank, state.next});
}

void Interleaving::issue(Rank rank) {
  RankState& state = of(rank);
  const std::uint32_t k = state.next++;
  const Instance& instance = job_.instances(rank)[k];
  if (is_barrier_) job_.for_each_awaited(rank, k, [&](std::uint32_t awaited) { learn(rank, awaited); });
  switch (job_.step(rank, k).kind) {
    case StepKind::send:
      if (is_barrier_) news_[instance.first] = state.heard_of;
      pool_.push_back({EventKind::capture, rank, instance.first});
      break;
    case StepKind::receive:
    case StepKind::reduce:
      for (std::uint32_t j = 0; j < instance.operand_count; ++j) {
        const std::uint32_t message = job_.operands()[instance.first + j];
        if (message != kOwnOperand) post(message);
      }
      if (state.missing[k] == 0) pool_.push_back({EventKind::perform, rank, k});
      break;
    case StepKind::copy:
      pool_.push_back({EventKind::perform, rank, k});
      break;
  }
  advance(rank);
}

void Interleaving::post(std::uint32_t message) {
  MessageState& state = messages_[message];
  state.is_posted = true;
  if (!state.is_captured) return;
  pool_.push_back({EventKind::land, 0, message});
  complete_send(message);
}

void Interleaving::capture(std::uint32_t message) {
  const Message& it = job_.messages()[message];
  const Step& step = job_.step(it.source, it.send);
  MessageState& state = messages_[message];
  for (std::uint32_t c = 0; c < it.extent; ++c) {
    const std::uint32_t slot = slot_of(it.source, step.source, it.send, c);
    payloads_[state.payload + c] = of(it.source).values[slot];
    payload_sizes_[state.payload + c] = memory(it.source).size_of(slot);
  }
  state.is_captured = true;
  if (state.is_posted) pool_.push_back({EventKind::land, 0, message});
  const std::size_t pair =
      static_cast<std::size_t>(it.source) * ranks_.size() + static_cast<std::size_t>(it.destination);
  const bool is_eager = !state.is_posted && has_eager_budget_ && !is_budget_used_[pair];
  if (is_eager) is_budget_used_[pair] = true;
  if (state.is_posted || is_eager) complete_send(message);
}

void Interleaving::complete_send(std::uint32_t message) {
  if (messages_[message].is_send_completed) return;
  messages_[message].is_send_completed = true;
  pool_.push_back({EventKind::complete, job_.messages()[message].source, job_.messages()[message].send});
}

Status Interleaving::land(std::uint32_t message) {
  const Message& it = job_.messages()[message];
  const std::uint32_t k = it.receive;
  RankState& state = of(it.destination);
  if (--state.missing[k] > 0) return {};
  if (job_.step(it.destination, k).kind == StepKind::reduce) {
    pool_.push_back({EventKind::perform, it.destination, k});
    return {};
  }
  for (std::uint32_t c = 0; c < it.extent; ++c) {
    const std::uint32_t at = messages_[message].payload + c;
    if (Status status = write(it.destination, k, c, payloads_[at], payload_sizes_[at]); !status) return status;
  }
  pool_.push_back({EventKind::complete, it.destination, k});
  return {};
}

Status Interleaving::perform(Rank rank, std::uint32_t instance) {
  const Step& step = job_.step(rank, instance);
  const std::int64_t extent = step.target.extent.at(job_.instances(rank)[instance].iteration);
  for (std::uint32_t c = 0; c < extent; ++c) {
    if (Status status = perform_chunk(rank, instance, c); !status) return status;
  }
  pool_.push_back({EventKind::complete, rank, instance});
  return {};
}

Status Interleaving::perform_chunk(Rank rank, std::uint32_t instance, std::uint32_t chunk) {
  const Instance& it = job_.instances(rank)[instance];
  const Step& step = job_.step(rank, instance);
  const bool has_source = step.source.space != Space::none;
  const std::uint32_t source = has_source ? slot_of(rank, step.source, instance, chunk) : 0;
  if (step.kind == StepKind::copy) {
    return write(rank, instance, chunk, of(rank).values[source], memory(rank).size_of(source));
  }
  operands_.clear();
  bool has_own = false;
  std::uint64_t size = has_source ? memory(rank).size_of(source) : Memory::kAnySize;
  for (std::uint32_t j = 0; j < it.operand_count; ++j) {
    const std::uint32_t message = job_.operands()[it.first + j];
    if (message == kOwnOperand) {
      operands_.push_back(of(rank).values[source]);
      has_own = true;
      continue;
    }
    const std::uint32_t at = messages_[message].payload + chunk;
    operands_.push_back(payloads_[at]);
    if (size == Memory::kAnySize) size = payload_sizes_[at];
    if (payload_sizes_[at] != Memory::kAnySize && payload_sizes_[at] != size) {
      return {Code::internal, job_.describe(rank, instance) + ": combines chunks of different sizes"};
    }
  }
  if (has_source && !has_own) operands_.push_back(of(rank).values[source]);
  return write(rank, instance, chunk, expressions_.combine(operands_, step.completes_reduction), size);
}

Status Interleaving::write(Rank rank, std::uint32_t instance, std::uint32_t chunk, Expression value,
                           std::uint64_t size) {
  const std::uint32_t slot = slot_of(rank, job_.step(rank, instance).target, instance, chunk);
  const std::uint64_t room = memory(rank).size_of(slot);
  if (size != Memory::kAnySize && room != Memory::kAnySize && size != room) {
    return {Code::internal, job_.describe(rank, instance) + ": a chunk of another size arrives there: it holds " +
                                expressions_.to_text(value)};
  }
  of(rank).values[slot] = value;
  of(rank).writers[slot] = instance + 1;
  return {};
}

std::uint32_t Interleaving::slot_of(Rank rank, const Chunk& chunk, std::uint32_t instance, std::uint32_t offset) const {
  const std::int64_t i = job_.instances(rank)[instance].iteration;
  return memory(rank).slot(chunk.space, job_.schedule(rank).chunk_at(chunk, i) + offset);
}

void Interleaving::complete(Rank rank, std::uint32_t instance) {
  RankState& state = of(rank);
  state.is_complete[instance] = true;
  if (state.waiting_for == instance) advance(rank);
}

/// What the messages of a completed receive say about who has entered the barrier.
void Interleaving::learn(Rank rank, std::uint32_t instance) {
  const Instance& it = job_.instances(rank)[instance];
  for (std::uint32_t j = 0; j < it.operand_count; ++j) {
    const std::uint32_t message = job_.operands()[it.first + j];
    if (message == kOwnOperand) continue;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (news_[message][r]) of(rank).heard_of[r] = true;
    }
  }
}

}  // namespace neuron
