#include "c10d_neuron/call.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "transport/base/random.h"

namespace neuron {

namespace {

Buffer buffer_of(const at::Tensor& contiguous) {
  return Buffer{static_cast<std::byte*>(const_cast<void*>(contiguous.const_data_ptr())), contiguous.nbytes(), {}};
}

Buffer writable_buffer_of(const at::Tensor& contiguous) {
  return Buffer{static_cast<std::byte*>(contiguous.mutable_data_ptr()), contiguous.nbytes(), {}};
}

/// Whether the tensor's memory holds its values in order, with nothing lazy about them.
bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor plain_copy_of(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  copy.copy_(tensor);
  return copy;
}

DataType data_type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DataType::float32;
    case at::kBFloat16:
      return DataType::bfloat16;
    case at::kInt:
      return DataType::int32;
    case at::kLong:
      return DataType::int64;
    default:
      return DataType::bytes;
  }
}

const char* name_of_op(c10d::ReduceOp::RedOpType op) {
  static constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "unknown";
}

bool overlap(const Buffer& a, const Buffer& b) {
  const std::less<const std::byte*> before;
  return a.bytes > 0 && b.bytes > 0 && before(a.address, b.address + b.bytes) && before(b.address, a.address + a.bytes);
}

/// The smallest buffer around all of them.
Buffer hull(const std::vector<Buffer>& buffers) {
  Buffer all;
  for (const Buffer& buffer : buffers) {
    if (buffer.bytes == 0) continue;
    if (all.bytes == 0) {
      all = buffer;
      continue;
    }
    std::byte* const first = std::min(all.address, buffer.address, std::less<>());
    std::byte* const last = std::max(all.address + all.bytes, buffer.address + buffer.bytes, std::less<>());
    all = Buffer{first, static_cast<std::size_t>(last - first), {}};
  }
  return all;
}

}  // namespace

Call::Call(const Entry& the_entry, const std::string& where, int rank, int size)
    : entry(the_entry), where_(where), rank_(rank), size_(size) {
  request.collective = entry.collective;
}

void Call::fail(const std::string& what) const {
  C10_THROW_ERROR(ValueError, c10::str(entry.name, " on ", where_, ": ", what));
}

void Call::fail_unsupported(const std::string& what) const {
  C10_THROW_ERROR(NotImplementedError, c10::str(entry.name, " on ", where_, ": ", what));
}

const at::Tensor& Call::only(const char* argument, const Tensors& tensors) const {
  if (tensors.size() != 1) {
    fail(c10::str(argument, " holds ", tensors.size(),
                  " tensors; a rank gives exactly one: make one call per tensor, or use the "
                  "coalesced form"));
  }
  check_tensor(argument, tensors.front());
  return tensors.front();
}

const Call::Tensors& Call::list(const char* argument, const std::vector<Tensors>& lists) const {
  if (lists.size() != 1) {
    fail(c10::str(argument, " holds ", lists.size(), " lists; a rank gives exactly one list of ", size_, " tensors"));
  }
  check_length(argument, lists.front());
  return lists.front();
}

void Call::check_length(const char* argument, const Tensors& tensors) const {
  if (static_cast<int>(tensors.size()) != size_) {
    fail(c10::str(argument, " holds ", tensors.size(), " tensors, the group has ", size_,
                  " ranks: give one tensor per rank"));
  }
  for (const at::Tensor& tensor : tensors) check_tensor(argument, tensor);
}

void Call::check_empty(const char* argument, const std::vector<Tensors>& lists, const char* why) const {
  if (lists.empty() || (lists.size() == 1 && lists.front().empty())) return;
  fail(c10::str(argument, " is given on rank ", rank_, ", but ", why, " rank ", request.root, ": leave it empty here"));
}

void Call::check_tensor(const char* argument, const at::Tensor& tensor) const {
  if (!tensor.defined()) fail(c10::str(argument, " is an undefined tensor (None): give a tensor"));
  if (!tensor.device().is_cpu()) {
    fail(c10::str(argument, ": tensor is on ", tensor.device(),
                  ", this group serves cpu: move it with .cpu(), or use a group "
                  "whose backend serves ",
                  tensor.device().type()));
  }
  if (tensor.layout() != at::kStrided) {
    fail_unsupported(c10::str(argument, ": tensor has layout ", tensor.layout(),
                              ", only dense (strided) tensors are supported: convert it with .to_dense()"));
  }
}

void Call::check_same_type(const char* argument, const at::Tensor& tensor, const at::Tensor& as) const {
  if (tensor.scalar_type() == as.scalar_type()) return;
  fail(c10::str(argument, " has dtype ", tensor.scalar_type(), " where ", as.scalar_type(),
                " is needed: all tensors of a call have one dtype, convert it with .to()"));
}

void Call::check_same_shape(const char* argument, const Tensors& tensors, const at::Tensor& as) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_same_type(argument, tensors[i], as);
    if (tensors[i].sizes() == as.sizes()) continue;
    fail(c10::str(
        argument, "[", i, "] has shape ", tensors[i].sizes(), " where ", as.sizes(),
        " is needed: all tensors must have one shape (uneven sizes are not supported here: pad to the largest)"));
  }
}

void Call::check_multiple(const char* argument, const at::Tensor& many, const char* one_argument,
                          const at::Tensor& one) const {
  check_same_type(argument, many, one);
  if (many.numel() == one.numel() * size_) return;
  fail(c10::str(argument, " has ", many.numel(), " elements, ", one_argument, " has ", one.numel(), ": ", argument,
                " must hold exactly ", size_, " (ranks) times as many, ", one.numel() * size_));
}

void Call::check_root_tensor(std::int64_t index) const {
  if (index != 0) fail(c10::str("root tensor is ", index, "; a rank gives one tensor, so only 0 is allowed"));
}

void Call::moves(const at::Tensor& tensor) {
  request.data_type = data_type_of(tensor.scalar_type());
  request.layout = Random::mix(static_cast<std::uint64_t>(tensor.scalar_type()) + 1);
}

void Call::reduces(const char* argument, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  moves(tensor);
  if (request.data_type == DataType::bytes) {
    fail_unsupported(c10::str(argument, " has dtype ", tensor.scalar_type(),
                              "; reductions support float32, bfloat16, int32 and int64: convert it with .to()"));
  }
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      request.reduce_op = ReduceOp::sum;
      return;
    case c10d::ReduceOp::MIN:
      request.reduce_op = ReduceOp::minimum;
      return;
    case c10d::ReduceOp::MAX:
      request.reduce_op = ReduceOp::maximum;
      return;
    case c10d::ReduceOp::AVG:
      if (!at::isFloatingType(tensor.scalar_type())) {
        fail_unsupported(
            c10::str("op is AVG, but ", argument, " has dtype ", tensor.scalar_type(),
                     "; an average needs a floating-point dtype: use SUM and divide, or convert the tensor"));
      }
      request.reduce_op = ReduceOp::average;
      return;
    default:
      fail_unsupported(c10::str("op is ", name_of_op(op.op_), "; supported are SUM, AVG, MIN and MAX"));
  }
}

void Call::set_root(const char* argument, std::int64_t root) {
  if (root < 0 || root >= size_) {
    fail(c10::str(argument, " is ", root, ", the group has ranks 0 to ", size_ - 1, ": give a rank of the group"));
  }
  request.root = static_cast<Rank>(root);
}

void Call::set_peer(const char* argument, int peer, int tag) {
  set_root(argument, peer);
  if (peer == rank_) {
    fail(
        c10::str(argument, " is ", peer, ", this rank itself: copy the tensor instead (a rank cannot message itself)"));
  }
  if (tag < 0) fail(c10::str("tag is ", tag, "; allowed are 0 to 2147483647"));
  request.tag = static_cast<std::uint32_t>(tag);
}

Buffer Call::input(const char* argument, const at::Tensor& tensor) {
  check_tensor(argument, tensor);
  memory.held.push_back(is_plain(tensor) ? tensor : plain_copy_of(tensor));
  return buffer_of(memory.held.back());
}

Buffer Call::output(const char* argument, const at::Tensor& tensor) {
  check_tensor(argument, tensor);
  memory.results.push_back(tensor);
  if (is_plain(tensor)) return writable_buffer_of(tensor);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    fail(c10::str(argument, ": elements of the tensor share memory (expanded dimensions, strides ", tensor.strides(),
                  "), so a result cannot be stored: give a .clone()"));
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  memory.copies_back.emplace_back(tensor, copy);
  return writable_buffer_of(copy);
}

Buffer Call::in_out(const char* argument, const at::Tensor& tensor) {
  const Buffer buffer = output(argument, tensor);
  if (!memory.copies_back.empty() && memory.copies_back.back().first.is_same(tensor)) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    memory.copies_back.back().second.copy_(tensor);
  }
  return buffer;
}

std::vector<Buffer> Call::inputs(const char* argument, const Tensors& tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) buffers.push_back(input(argument, tensor));
  return buffers;
}

std::vector<Buffer> Call::outputs(const char* argument, const Tensors& tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) buffers.push_back(output(argument, tensor));
  return buffers;
}

std::vector<Buffer> Call::split(const char* argument, const char* splits_argument, const at::Tensor& tensor,
                                const Buffer& buffer, const std::vector<std::int64_t>& splits) const {
  if (tensor.dim() == 0)
    fail(c10::str(argument, " has no dimension to split: give it at least one, e.g. by .reshape(1)"));
  const std::int64_t rows = tensor.size(0);
  if (splits.empty() && rows % size_ != 0) {
    fail(c10::str("the first dimension of ", argument, " is ", rows, ", which ", size_,
                  " ranks cannot share evenly: give ", splits_argument));
  }
  if (!splits.empty() && static_cast<int>(splits.size()) != size_) {
    fail(c10::str(splits_argument, " has ", splits.size(), " entries, the group has ", size_,
                  " ranks: give one per rank"));
  }
  const std::size_t row_bytes = rows == 0 ? 0 : buffer.bytes / static_cast<std::size_t>(rows);
  std::vector<Buffer> cut;
  cut.reserve(static_cast<std::size_t>(size_));
  std::int64_t used = 0;
  for (int i = 0; i < size_; ++i) {
    const std::int64_t length = splits.empty() ? rows / size_ : splits[static_cast<std::size_t>(i)];
    if (length < 0) fail(c10::str(splits_argument, "[", i, "] is ", length, "; a size cannot be negative"));
    if (used + length > rows) break;
    cut.push_back(
        buffer.slice(static_cast<std::size_t>(used) * row_bytes, static_cast<std::size_t>(length) * row_bytes));
    used += length;
  }
  if (used != rows || static_cast<int>(cut.size()) != size_) {
    fail(c10::str(splits_argument, " sums up to ", std::accumulate(splits.begin(), splits.end(), std::int64_t{0}),
                  ", the first dimension of ", argument, " is ", rows, ": they must be equal"));
  }
  return cut;
}

std::vector<Buffer> Call::pieces(const Buffers& buffers) const {
  return buffers.pieces.empty() ? std::vector<Buffer>{buffers.whole} : buffers.pieces;
}

Buffer Call::copy_of(const Buffer& buffer) {
  memory.held.push_back(at::empty({static_cast<std::int64_t>(buffer.bytes)}, at::TensorOptions().dtype(at::kByte)));
  const Buffer copy = writable_buffer_of(memory.held.back());
  std::memcpy(copy.address, buffer.address, buffer.bytes);
  return copy;
}

void Call::separate(bool in_place_allowed) {
  const std::vector<Buffer> outputs_now = pieces(request.output);
  const std::vector<Buffer> inputs_now = pieces(request.input);
  if (!overlap(hull(inputs_now), hull(outputs_now))) return;
  const auto at_rank = [this](const std::vector<Buffer>& side, std::size_t bytes) {
    const auto rank = static_cast<std::size_t>(rank_);
    return side.size() > 1 ? side[rank].address : side.front().address + rank * bytes;
  };
  const auto clashes = [&](const Buffer& in, std::size_t index) {
    return std::any_of(outputs_now.begin(), outputs_now.end(), [&](const Buffer& out) {
      if (!overlap(in, out)) return false;
      if (!in_place_allowed) return true;
      // In place: the smaller side lies exactly where it belongs in the larger one.
      if (inputs_now.size() > 1) return index != static_cast<std::size_t>(rank_) || in.address != out.address;
      const bool gathers = request.output.bytes() > in.bytes || outputs_now.size() > 1;
      return gathers ? at_rank(outputs_now, in.bytes) != in.address : at_rank(inputs_now, out.bytes) != out.address;
    });
  };
  for (std::size_t i = 0; i < inputs_now.size(); ++i) {
    if (!clashes(inputs_now[i], i)) continue;
    Buffer& target = request.input.pieces.empty() ? request.input.whole : request.input.pieces[i];
    target = copy_of(inputs_now[i]);
  }
}

}  // namespace neuron
