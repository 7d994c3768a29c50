#include "collectives/schedule/symbolic.h"

#include <algorithm>

#include "transport/base/random.h"

namespace neuron {
namespace {
constexpr std::size_t kMaxText = 200;
}  // namespace

Expressions::Expressions(std::uint64_t seed) : seed_(Random::mix(seed ^ 0xA0761D6478BD642FULL)) {}

Expression Expressions::leaf(Rank rank, std::uint32_t chunk) {
  const std::uint64_t name = (std::uint64_t{static_cast<std::uint32_t>(rank)} << 32) | chunk;
  const std::uint64_t number = Random::mix(seed_ + Random::mix(name + 1) * 0xE7037ED1A0B428DBULL);
  return find_or_add(number, {.first = static_cast<std::uint32_t>(rank), .chunk = chunk, .leaves = number}, {});
}

Expression Expressions::combine(std::span<const Expression> operands, bool completes_reduction) {
  Node node{.first = static_cast<std::uint32_t>(operands_.size()),
            .count = static_cast<std::uint32_t>(operands.size()),
            .is_complete = completes_reduction};
  std::uint64_t hash = completes_reduction ? 0x51ED270B : 0x2545F491;
  for (const Expression operand : operands) {
    node.leaves += nodes_[operand].leaves;
    node.completions = std::max(node.completions, nodes_[operand].completions);
    hash = Random::mix(hash ^ operand) + 1;
  }
  node.completions = std::min(node.completions + (completes_reduction ? 1 : 0), 2);
  return find_or_add(hash, node, operands);
}

Expression Expressions::find_or_add(std::uint64_t hash, const Node& node, std::span<const Expression> operands) {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (is_same(nodes_[it->second], node, operands)) return it->second;
  }
  const auto number = static_cast<Expression>(nodes_.size());
  nodes_.push_back(node);
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  by_hash_.emplace(hash, number);
  return number;
}

bool Expressions::is_same(const Node& node, const Node& other, std::span<const Expression> operands) const {
  if (node.count != other.count || node.is_complete != other.is_complete) return false;
  if (node.count == 0) return node.first == other.first && node.chunk == other.chunk;
  return std::equal(operands.begin(), operands.end(), operands_.begin() + node.first);
}

std::string Expressions::to_text(Expression expression) const {
  std::string text;
  append_text(expression, text);
  if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  return text;
}

void Expressions::append_text(Expression expression, std::string& text) const {
  if (text.size() > kMaxText) return;
  if (expression == kUndefined) {
    text += "undefined";
    return;
  }
  const Node& node = nodes_[expression];
  if (node.count == 0) {
    text += std::to_string(node.first) + ":" + std::to_string(node.chunk);
    return;
  }
  text += "(";
  for (std::uint32_t k = 0; k < node.count; ++k) {
    if (k > 0) text += " + ";
    append_text(operands_[node.first + k], text);
  }
  text += node.is_complete ? ")!" : ")";
}

Memory::Memory(const Schedule& schedule, bool in_place) : schedule_(schedule), in_place_(in_place) {
  const auto add = [this](Space space, std::uint32_t chunk, bool is_writable) {
    writable_.push_back(is_writable);
    sizes_.push_back(size_class(space, chunk));
    return slot_count_++;
  };
  for (std::uint32_t c = 0; c < schedule.chunks_in(Space::output); ++c) {
    output_.push_back(add(Space::output, c, has_output()));
  }
  for (std::uint32_t c = 0; c < schedule.chunks_in(Space::input); ++c) {
    const std::int64_t same = alias(c);
    input_.push_back(same >= 0 ? output_[static_cast<std::size_t>(same)] : add(Space::input, c, false));
  }
  for (std::uint32_t c = 0; c < schedule.scratch_chunks; ++c) scratch_.push_back(add(Space::scratch, c, true));
}

std::uint32_t Memory::slot(Space space, std::uint32_t chunk) const {
  if (space == Space::input) return input_[chunk];
  if (space == Space::output) return output_[chunk];
  return scratch_[chunk];
}

bool Memory::has_input() const {
  switch (schedule_.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return schedule_.rank == schedule_.root;
    case Collective::barrier:
    case Collective::receive:
      return false;
    default:
      return true;
  }
}

bool Memory::has_output() const {
  switch (schedule_.collective) {
    case Collective::reduce:
    case Collective::gather:
      return schedule_.rank == schedule_.root;
    case Collective::barrier:
    case Collective::send:
      return false;
    default:
      return true;
  }
}

std::int64_t Memory::alias(std::uint32_t input_chunk) const {
  const bool is_own = input_chunk == static_cast<std::uint32_t>(schedule_.rank);
  if (schedule_.collective == Collective::broadcast) return input_chunk;
  if (!in_place_ || !has_output()) return -1;
  switch (schedule_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return input_chunk;
    case Collective::all_gather:
    case Collective::gather:
      return schedule_.rank;
    case Collective::reduce_scatter:
      return is_own ? 0 : -1;
    case Collective::scatter:
      return is_own && has_input() ? 0 : -1;
    default:
      return -1;
  }
}

std::uint64_t Memory::size_class(Space space, std::uint32_t chunk) const {
  if (space == Space::scratch) return kAnySize;
  const auto rank = static_cast<std::uint64_t>(schedule_.rank);
  const auto world = static_cast<std::uint64_t>(schedule_.world);
  const bool is_input = space == Space::input;
  switch (schedule_.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return is_input ? rank : chunk;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return is_input ? chunk : rank;
    case Collective::all_to_all:
      return is_input ? rank * world + chunk : chunk * world + rank;
    default:
      return chunk;
  }
}

std::vector<Expression> Memory::initial(Expressions& expressions) const {
  std::vector<Expression> values(slot_count_, kUndefined);
  if (!has_input()) return values;
  for (std::uint32_t c = 0; c < input_.size(); ++c) values[input_[c]] = expressions.leaf(schedule_.rank, c);
  return values;
}

Memory::Expected Memory::expected(std::uint32_t chunk) const {
  const auto rank = static_cast<std::uint32_t>(schedule_.rank);
  switch (schedule_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return {.is_reduction = true, .chunk = chunk};
    case Collective::reduce_scatter:
      return {.is_reduction = true, .chunk = rank};
    case Collective::all_gather:
    case Collective::gather:
      return {.rank = static_cast<Rank>(chunk), .chunk = 0};
    case Collective::scatter:
      return {.rank = schedule_.root, .chunk = rank};
    case Collective::all_to_all:
      return {.rank = static_cast<Rank>(chunk), .chunk = rank};
    default:
      return {.rank = schedule_.root, .chunk = 0};
  }
}

}  // namespace neuron
