#include "transport/shared_memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

#include "transport/base/random.h"

namespace neuron::shared_memory {
namespace {

constexpr int kRequiredSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// The arenas that this process made itself, so that two ranks in one process share one mapping.
class LocalMappings {
 public:
  void add(std::uint64_t id, const std::shared_ptr<const Mapping>& mapping) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    known_[id] = mapping;
  }
  std::shared_ptr<const Mapping> find(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(id);
    if (found == known_.end()) return nullptr;
    auto mapping = found->second.lock();
    return mapping != nullptr && !mapping->is_inherited() ? mapping : nullptr;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<const Mapping>> known_;
};

LocalMappings& local_mappings() {
  static auto* const instance = new LocalMappings;  // leaked: used until the process ends
  return *instance;
}

Status failed(const char* what) {
  return {Code::unavailable, std::string("shared memory is not possible here: ") + what + ": " + std::strerror(errno)};
}

}  // namespace

Mapping::~Mapping() {
  if (!is_inherited()) ::munmap(address_, bytes_);
}

Arena::Arena(const Layout& layout, Descriptor descriptor, std::shared_ptr<const Mapping> mapping, std::uint64_t id)
    : layout_(layout), descriptor_(std::move(descriptor)), mapping_(std::move(mapping)), id_(id) {}

Result<Arena> Arena::create(Rank rank, std::uint64_t nonce, const Layout& layout) {
  Descriptor descriptor(::memfd_create("c10d-neuron", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!descriptor.is_valid()) return failed("memfd_create");
  if (::ftruncate(descriptor.number(), static_cast<off_t>(layout.bytes)) != 0) return failed("ftruncate of a memfd");
  void* const address =
      ::mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor.number(), 0);
  if (address == MAP_FAILED) return failed("mmap of a memfd");
  auto mapping = std::make_shared<const Mapping>(static_cast<std::byte*>(address), layout.bytes);
  if (::madvise(address, layout.bytes, MADV_DONTFORK) != 0) return failed("madvise(MADV_DONTFORK)");
  if (::fcntl(descriptor.number(), F_ADD_SEALS, kRequiredSeals) != 0)
    return failed("sealing a memfd (needs Linux 5.1)");

  auto* const control = new (address) ControlPage;
  control->rank = rank;
  control->nonce = nonce;
  control->bytes = layout.bytes;
  control->slots = layout.slots;
  const std::uint64_t id = random_nonce();
  local_mappings().add(id, mapping);
  return Arena(layout, std::move(descriptor), std::move(mapping), id);
}

Result<PeerArena> PeerArena::map(const Descriptor& descriptor, std::uint64_t id, const Layout& layout, Rank rank,
                                 std::uint64_t nonce) {
  if (!layout.is_sane()) return Status(Code::refused, "its arena's layout makes no sense");
  const int seals = ::fcntl(descriptor.number(), F_GET_SEALS);
  if (seals < 0) return Status(Code::refused, "its arena is not a memfd that can be sealed");
  if ((seals & kRequiredSeals) != kRequiredSeals) return Status(Code::refused, "its arena is not sealed as it must be");
  struct stat facts{};
  if (::fstat(descriptor.number(), &facts) != 0) return failed("fstat of a peer's arena");
  if (static_cast<std::size_t>(facts.st_size) != layout.bytes)
    return Status(Code::refused, "its arena has another size");

  auto mapping = local_mappings().find(id);
  if (mapping == nullptr) {
    void* const address = ::mmap(nullptr, layout.bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, descriptor.number(), 0);
    if (address == MAP_FAILED) return failed("mmap of a peer's arena");
    mapping = std::make_shared<const Mapping>(static_cast<std::byte*>(address), layout.bytes);
    if (::madvise(address, layout.bytes, MADV_DONTFORK) != 0) return failed("madvise(MADV_DONTFORK)");
  }
  PeerArena arena(layout, std::move(mapping));
  const ControlPage& control = arena.control();
  if (control.magic != kArenaMagic || control.version != kProtocolVersion || control.rank != rank ||
      control.nonce != nonce || control.bytes != layout.bytes || control.slots != layout.slots) {
    return Status(Code::refused, "its arena belongs to another process or version");
  }
  return arena;
}

}  // namespace neuron::shared_memory
