#include "transport/fabric/endpoint.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/log.h"
#include "transport/base/random.h"

namespace neuron::fabric {

void CloseFid::operator()(fid* object) const {
  const int returned = fi_close(object);
  if (returned != 0)
    log_once(LogLevel::warning, "libfabric could not close an object: " + std::to_string(returned) + ".");
}

Result<Pages> Pages::map(std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return Status(Code::unavailable,
                  "Cannot map " + std::to_string(bytes) + " bytes for the fabric: " + std::strerror(errno));
  }
  ::madvise(address, bytes, MADV_DONTFORK);
  return Pages(static_cast<std::byte*>(address), bytes);
}

Pages::Pages(Pages&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Pages::~Pages() {
  if (address_ != nullptr) ::munmap(address_, bytes_);
}

Result<std::unique_ptr<Endpoint>> Endpoint::open(const Library& library, const fi_info& info, const Needs& needs) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(library));
  endpoint->info_ = InfoList(library.dupinfo(&info), FreeInfo(library.freeinfo));
  if (!endpoint->info_) return Status(Code::unavailable, "libfabric could not copy a fi_info: out of memory");
  if (Status status = endpoint->open_domain(); !status) return status;
  if (Status status = endpoint->open_queue(needs); !status) return status;
  if (Status status = endpoint->open_endpoint(); !status) return status;
  if (Status status = endpoint->read_raw_address(); !status) return status;
  return endpoint;
}

Endpoint::~Endpoint() { stop(); }

void Endpoint::stop() {
  if (cq_) drain_errors();
  ep_.reset();
  cq_.reset();
  av_.reset();
  wait_descriptor_ = -1;
}

void Endpoint::drain_errors() {
  // Some providers free what an unread error refers to together with the endpoint: read all of them first.
  constexpr int kMostReads = 4096;
  fi_cq_data_entry entries[16];
  for (int reads = 0; reads < kMostReads; ++reads) {
    auto count = fi_cq_read(cq_.get(), entries, std::size(entries));
    if (count == -FI_EAVAIL) {
      ErrorEntry error;
      count = fi_cq_readerr(cq_.get(), error.get(), 0);
    }
    if (count <= 0) return;
  }
}

Status Endpoint::open_domain() {
  fid_fabric* fabric = nullptr;
  if (const int returned = library_.fabric(info_->fabric_attr, &fabric, nullptr); returned != 0) {
    return failed("fi_fabric", returned);
  }
  fabric_.reset(fabric);

  fid_domain* domain = nullptr;
  if (const int returned = fi_domain(fabric, info_.get(), &domain, nullptr); returned != 0) {
    return failed("fi_domain", returned);
  }
  domain_.reset(domain);

  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  if (const int returned = fi_av_open(domain, &attributes, &av, nullptr); returned != 0)
    return failed("fi_av_open", returned);
  av_.reset(av);
  return {};
}

Status Endpoint::open_queue(const Needs& needs) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.size = info_->rx_attr->size + info_->tx_attr->size + needs.incoming_writes;
  fid_cq* cq = nullptr;
  int returned = -FI_ENOSYS;
  for (const fi_wait_obj wait : {FI_WAIT_SET, FI_WAIT_FD, FI_WAIT_NONE}) {
    if (wait == FI_WAIT_SET && !open_wait()) continue;
    attributes.wait_obj = wait;
    attributes.wait_set = wait == FI_WAIT_SET ? wait_.get() : nullptr;
    returned = fi_cq_open(domain_.get(), &attributes, &cq, nullptr);
    if (returned == 0) break;
    wait_.reset();
  }
  if (returned != 0) return failed("fi_cq_open", returned);
  cq_.reset(cq);
  if (attributes.wait_obj == FI_WAIT_NONE) return {};
  fid* signalled = wait_ != nullptr ? &wait_->fid : &cq->fid;
  if (fi_control(signalled, FI_GETWAIT, &wait_descriptor_) != 0) wait_descriptor_ = -1;
  return {};
}

/// A wait object of our own, because it can be cleared: net 1.17 never takes back the signal of a completion, and its
/// descriptor would stay readable for ever. Providers without such objects use their own.
bool Endpoint::open_wait() {
  fi_wait_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  fid_wait* wait = nullptr;
  if (fi_wait_open(fabric_.get(), &attributes, &wait) != 0) return false;
  wait_.reset(wait);
  return true;
}

Status Endpoint::open_endpoint() {
  fid_ep* ep = nullptr;
  if (const int returned = fi_endpoint(domain_.get(), info_.get(), &ep, nullptr); returned != 0) {
    return failed("fi_endpoint", returned);
  }
  ep_.reset(ep);
  if (const int returned = fi_ep_bind(ep, &av_->fid, 0); returned != 0)
    return failed("fi_ep_bind (address vector)", returned);
  if (const int returned = fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV); returned != 0) {
    return failed("fi_ep_bind (completion queue)", returned);
  }
  if (const int returned = fi_enable(ep); returned != 0) return failed("fi_enable", returned);
  return {};
}

Status Endpoint::read_raw_address() {
  std::array<std::byte, 256> room{};
  std::size_t length = room.size();
  if (const int returned = fi_getname(&ep_->fid, room.data(), &length); returned != 0)
    return failed("fi_getname", returned);
  raw_address_.assign(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length));
  return {};
}

bool Endpoint::try_wait() const {
  // Clears the signal and looks at the queue; anything but a timeout means that there is something to read.
  if (wait_ != nullptr && fi_wait(wait_.get(), 0) != -FI_ETIMEDOUT) return false;
  fid* waited_for = &cq_->fid;
  return fi_trywait(fabric_.get(), &waited_for, 1) == FI_SUCCESS;
}

Result<Region> Endpoint::message_region(std::size_t bytes) const {
  auto pages = Pages::map(bytes);
  if (!pages) return pages.status();
  Region region{std::move(*pages), {}};
  if (!has_mode(FI_MR_LOCAL)) return region;
  if (Status status = register_pages(region, FI_SEND | FI_RECV); !status) return status;
  return region;
}

Result<Region> Endpoint::block_region(std::size_t bytes) const {
  auto pages = Pages::map(bytes);
  if (!pages) return pages.status();
  Region region{std::move(*pages), {}};
  if (Status status = register_pages(region, FI_WRITE | FI_REMOTE_WRITE); !status) return status;
  return region;
}

Status Endpoint::register_pages(Region& region, std::uint64_t access) const {
  // A key of our own choice is a random one: to a stranger who can reach the port, a counted key would be an open door.
  const std::size_t key_bytes = info_->domain_attr->mr_key_size;
  const std::uint64_t key_mask =
      key_bytes >= sizeof(std::uint64_t) ? UINT64_MAX : (std::uint64_t{1} << (8 * key_bytes)) - 1;
  int returned = -FI_ENOKEY;
  for (int attempts = 0; attempts < 8 && returned == -FI_ENOKEY; ++attempts) {
    const std::uint64_t key = has_mode(FI_MR_PROV_KEY) ? 0 : random_nonce() & key_mask;
    fid_mr* registration = nullptr;
    returned = fi_mr_reg(domain_.get(), region.pages.address(), region.pages.bytes(), access, 0, key, 0, &registration,
                         nullptr);
    if (returned == 0) region.registration.reset(registration);
  }
  if (returned == 0) return {};
  return {Code::unavailable, failed("fi_mr_reg", returned).message() + " Registering " +
                                 std::to_string(region.pages.bytes()) +
                                 " bytes needs locked memory on RDMA hardware: check `ulimit -l`."};
}

Status Endpoint::failed(const char* call, long returned) const {
  return {Code::unavailable, std::string(call) + " of provider " + info_->fabric_attr->prov_name + " on " +
                                 info_->domain_attr->name + " failed: " + library_.error_text(returned) + "."};
}

}  // namespace neuron::fabric
