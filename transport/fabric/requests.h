// Request: one operation that libfabric has not completed yet; RequestPool: a fixed number of them, so that posting
// allocates nothing. Resources of the Rail, used under the engine's baton. libfabric hands back a pointer to a Request
// as the context of a completion; `find` accepts only pointers that are requests of this pool, since providers also
// report others, and none.
#pragma once
#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "transport/base/check.h"

namespace neuron::fabric {

struct Peer;

struct Request {
  fi_context2 context{};        // the provider's while in flight (FI_CONTEXT, FI_CONTEXT2); must stay first
  std::byte* buffer = nullptr;  // of a message; null for a write
  Peer* peer = nullptr;         // null for a receive
  std::uint64_t cookie = 0;     // write: the caller's
  std::uint32_t block = 0;      // write: read by the provider until done
  bool in_flight = false;
  bool is_reported = false;  // write: its caller has been told already, because the peer was lost
};
static_assert(std::is_standard_layout_v<Request> && offsetof(Request, context) == 0);

class RequestPool {
 public:
  explicit RequestPool(std::size_t count) : requests_(count) {
    free_.reserve(count);
    for (std::size_t i = count; i > 0; --i) free_.push_back(&requests_[i - 1]);
  }
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  /// Gives each request its piece of `memory`.
  void assign_buffers(std::byte* memory, std::size_t bytes_each) {
    for (std::size_t i = 0; i < requests_.size(); ++i) requests_[i].buffer = memory + i * bytes_each;
  }

  /// A free request, or null. It is in flight until it is given back.
  Request* take() {
    if (free_.empty()) return nullptr;
    Request* request = free_.back();
    free_.pop_back();
    request->in_flight = true;
    request->is_reported = false;
    return request;
  }

  void give_back(Request* request) {
    NEURON_CHECK(request->in_flight, "a request completes once");
    request->in_flight = false;
    request->peer = nullptr;
    free_.push_back(request);
  }

  [[nodiscard]] Request* find(void* context) {
    const auto offset = reinterpret_cast<std::uintptr_t>(context) - reinterpret_cast<std::uintptr_t>(requests_.data());
    if (offset >= requests_.size() * sizeof(Request) || offset % sizeof(Request) != 0) return nullptr;
    Request& request = requests_[offset / sizeof(Request)];
    return request.in_flight ? &request : nullptr;
  }

  [[nodiscard]] std::size_t in_flight() const { return requests_.size() - free_.size(); }
  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] std::vector<Request>& all() { return requests_; }

 private:
  std::vector<Request> requests_;
  std::vector<Request*> free_;
};

}  // namespace neuron::fabric
