// Call: the arguments of one c10d call, checked and turned into a Request and the tensors that it needs.
// A value on the stack of the calling thread. Every check throws ValueError or NotImplementedError; the message names
// the operation, the argument, its value and what to do. Nothing has been issued then.
//
// Tensors that are not contiguous are copied: inputs now, outputs back when the operation is done (WorkMemory). So what
// travels is always in contiguous order and ranks may differ in memory format.
#pragma once
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <vector>

#include "c10d_neuron/work_neuron.h"
#include "collectives/run/request.h"

namespace neuron {

/// An entry point: what c10d, the engine and the profiler call it. A value, static.
struct Entry {
  Collective collective;
  c10d::OpType type;
  const char* name;
  const char* title;
};

class Call {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `where` names the group for messages and outlives the call.
  Call(const Entry& entry, const std::string& where, int rank, int size);

  // ---- checks ----
  /// The one tensor of a list that c10d made of it.
  const at::Tensor& only(const char* argument, const Tensors& tensors) const;
  /// The list of a rank's tensors, one per rank of the group; `lists` is what c10d made of it.
  const Tensors& list(const char* argument, const std::vector<Tensors>& lists) const;
  void check_length(const char* argument, const Tensors& tensors) const;
  void check_empty(const char* argument, const std::vector<Tensors>& lists, const char* why) const;
  void check_tensor(const char* argument, const at::Tensor& tensor) const;
  void check_same_type(const char* argument, const at::Tensor& tensor, const at::Tensor& as) const;
  void check_same_shape(const char* argument, const Tensors& tensors, const at::Tensor& as) const;
  /// `many` must hold as many elements as n times `one`.
  void check_multiple(const char* argument, const at::Tensor& many, const char* one_argument,
                      const at::Tensor& one) const;
  void check_root_tensor(std::int64_t index) const;

  // ---- what the operation is about ----
  void moves(const at::Tensor& tensor);
  void reduces(const char* argument, const at::Tensor& tensor, const c10d::ReduceOp& op);
  void set_root(const char* argument, std::int64_t root);
  void set_peer(const char* argument, int peer, int tag);
  [[nodiscard]] bool is_root() const { return request.root == rank_; }

  // ---- memory ----
  Buffer input(const char* argument, const at::Tensor& tensor);
  Buffer output(const char* argument, const at::Tensor& tensor);
  Buffer in_out(const char* argument, const at::Tensor& tensor);
  std::vector<Buffer> inputs(const char* argument, const Tensors& tensors);
  std::vector<Buffer> outputs(const char* argument, const Tensors& tensors);
  /// `buffer` of `tensor`, cut along its first dimension by `splits` (evenly if empty).
  std::vector<Buffer> split(const char* argument, const char* splits_argument, const at::Tensor& tensor,
                            const Buffer& buffer, const std::vector<std::int64_t>& splits) const;
  /// Copies inputs that overlap outputs elsewhere than where the collective allows it (piece `rank` of the larger
  /// side).
  void separate(bool in_place_allowed);

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_unsupported(const std::string& what) const;

  const Entry& entry;
  Request request;
  WorkMemory memory;

 private:
  std::vector<Buffer> pieces(const Buffers& buffers) const;
  Buffer copy_of(const Buffer& buffer);

  const std::string& where_;
  const int rank_;
  const int size_;
};

}  // namespace neuron
