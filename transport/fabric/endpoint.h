// Endpoint: one reliable-datagram endpoint with its fabric, domain, address vector and completion queue, as libfabric
// opened them, and what was learned about them. Region: memory registered with its domain. Resources. The Rail owns its
// Endpoint, and the Regions, which are destroyed before it. Thread: the holder of the engine's baton. Opening fails
// with `unavailable`, naming the call and libfabric's reason.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/fabric/library.h"

namespace neuron::fabric {

/// Closes an object of libfabric; one that is still in use by another stays open, which is logged.
struct CloseFid {
  void operator()(fid* object) const;
  template <typename Fid>
  void operator()(Fid* object) const {
    (*this)(&object->fid);
  }
};
template <typename Fid>
using Owned = std::unique_ptr<Fid, CloseFid>;

/// Where an error completion is read into: zeroed, since providers also read it, and longer than the headers say, since
/// later versions append to it.
class ErrorEntry {
 public:
  [[nodiscard]] fi_cq_err_entry* get() { return &storage_.entry; }
  fi_cq_err_entry* operator->() { return get(); }

 private:
  union Storage {
    std::array<std::byte, 256> room{};
    fi_cq_err_entry entry;
  } storage_;
};

/// Pages of our own, zeroed, not inherited by forked children (which would take pinned pages away from the adapter).
class Pages {
 public:
  Pages() = default;
  static Result<Pages> map(std::size_t bytes);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  [[nodiscard]] std::byte* address() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  Pages(std::byte* address, std::size_t bytes) : address_(address), bytes_(bytes) {}

  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Pages and, where the provider wants or needs one, their registration.
struct Region {
  Pages pages;
  Owned<fid_mr> registration;  // null: not needed

  [[nodiscard]] void* descriptor() const { return registration ? fi_mr_desc(registration.get()) : nullptr; }
};

class Endpoint {
 public:
  /// Sizes that the rail needs beyond the endpoint's own queues.
  struct Needs {
    std::size_t incoming_writes = 0;  // that may complete here before the next poll
  };

  /// `info` is one entry of a getinfo list; it is copied.
  static Result<std::unique_ptr<Endpoint>> open(const Library& library, const fi_info& info, const Needs& needs);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  /// Closes the endpoint proper, after which the provider touches no memory of ours any more; registrations go next,
  /// and the domain last, with this object. Idempotent.
  void stop();

  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] const fi_info& info() const { return *info_; }
  [[nodiscard]] fid_ep* ep() const { return ep_.get(); }
  [[nodiscard]] fid_cq* cq() const { return cq_.get(); }
  [[nodiscard]] fid_av* av() const { return av_.get(); }
  [[nodiscard]] const std::vector<std::byte>& raw_address() const { return raw_address_; }
  /// Readable when the completion queue has work, or -1.
  [[nodiscard]] int wait_descriptor() const { return wait_descriptor_; }
  /// Whether one may sleep on the descriptor now.
  [[nodiscard]] bool try_wait() const;

  /// Whether a remote address is the virtual one, else the offset in the registration.
  [[nodiscard]] bool uses_virtual_addresses() const { return has_mode(FI_MR_VIRT_ADDR); }
  /// Whether an arriving immediate takes a posted receive.
  [[nodiscard]] bool immediates_take_receives() const { return (info_->mode & FI_RX_CQ_DATA) != 0; }

  /// Memory to send from and receive into.
  [[nodiscard]] Result<Region> message_region(std::size_t bytes) const;
  /// Memory to write from and be written into.
  [[nodiscard]] Result<Region> block_region(std::size_t bytes) const;

 private:
  explicit Endpoint(const Library& library) : library_(library) {}

  void drain_errors();
  Status open_domain();
  Status open_queue(const Needs& needs);
  bool open_wait();
  Status open_endpoint();
  Status read_raw_address();
  Status register_pages(Region& region, std::uint64_t access) const;
  [[nodiscard]] bool has_mode(int bit) const { return (info_->domain_attr->mr_mode & bit) != 0; }
  [[nodiscard]] Status failed(const char* call, long returned) const;

  // Destroyed from the last to the first: endpoint, queue, vector, domain, fabric.
  Library library_;
  InfoList info_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> av_;
  Owned<fid_wait> wait_;  // what the queue signals; null: an object of the provider's own, or none
  Owned<fid_cq> cq_;
  Owned<fid_ep> ep_;
  int wait_descriptor_ = -1;
  std::vector<std::byte> raw_address_;
};

}  // namespace neuron::fabric
