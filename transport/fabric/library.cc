#include "transport/fabric/library.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace neuron::fabric {
namespace {

// The symbol versions whose structures the headers describe ("ABI changes" in fabric(7)). A plain dlsym would take the
// newest ones, whose structures may be longer. Structures only ever grow at their end, and nothing here touches what
// was added after 2.0, so later headers keep that row.
#if FI_MAJOR_VERSION >= 2
constexpr const char* kInfoVersion = "FABRIC_1.8";
#elif FI_MINOR_VERSION >= 20
constexpr const char* kInfoVersion = "FABRIC_1.7";
#else
constexpr const char* kInfoVersion = "FABRIC_1.3";
#endif
constexpr const char* kFabricVersion = "FABRIC_1.1";
constexpr const char* kBaseVersion = "FABRIC_1.0";

constexpr std::array kSearched = {"/opt/amazon/efa/lib64/libfabric.so.1", "/opt/amazon/efa/lib/libfabric.so.1",
                                  "libfabric.so.1"};

constexpr const char* kRemedy =
    "Install it (Debian: libfabric1, AWS: aws-efa-installer) or name another with C10D_NEURON_LIBFABRIC.";

template <typename Function>
bool find(void* handle, const char* symbol, const char* version, Function& out) {
  out = reinterpret_cast<Function>(::dlvsym(handle, symbol, version));
  return out != nullptr;
}

std::string version_text(std::uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

std::string path_of(const void* symbol, const char* fallback) {
  Dl_info where{};
  return ::dladdr(symbol, &where) != 0 && where.dli_fname != nullptr ? where.dli_fname : fallback;
}

Result<Library> bind(void* handle, const char* path) {
  Library library;
  const bool complete = find(handle, "fi_getinfo", kInfoVersion, library.getinfo) &&
                        find(handle, "fi_freeinfo", kInfoVersion, library.freeinfo) &&
                        find(handle, "fi_dupinfo", kInfoVersion, library.dupinfo) &&
                        find(handle, "fi_fabric", kFabricVersion, library.fabric) &&
                        find(handle, "fi_version", kBaseVersion, library.version) &&
                        find(handle, "fi_strerror", kBaseVersion, library.strerror);
  if (!complete) {
    return Status(Code::unavailable, std::string(path) + " is no libfabric of version " +
                                         version_text(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)) + " or later (" +
                                         ::dlerror() + "). " + kRemedy);
  }
  library.path = path_of(reinterpret_cast<const void*>(library.version), path);
  return library;
}

/// Kernels before 5.13 copy pinned pages on fork, so that a DataLoader worker would take them away from the adapter.
bool kernel_copies_pinned_pages() {
  utsname names{};
  int major = 0;
  int minor = 0;
  if (::uname(&names) != 0 || std::sscanf(names.release, "%d.%d", &major, &minor) != 2) return false;
  return major < 5 || (major == 5 && minor < 13);
}

}  // namespace

Result<Library> Library::open(const std::string& path) {
  // Never closed: providers leave threads and exit handlers behind.
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (!path.empty()) {
    void* handle = ::dlopen(path.c_str(), kFlags);
    if (handle != nullptr) return bind(handle, path.c_str());
    return Status(Code::unavailable, "C10D_NEURON_LIBFABRIC is \"" + path +
                                         "\", which cannot be opened: " + ::dlerror() + ". Correct or unset it.");
  }
  for (const char* candidate : kSearched) {
    if (void* handle = ::dlopen(candidate, kFlags)) return bind(handle, candidate);
  }
  return Status(Code::unavailable,
                std::string("libfabric, which carries data between hosts, is not on this machine (") + ::dlerror() +
                    "). " + kRemedy);
}

std::uint32_t Library::api_version() const {
  return std::min<std::uint32_t>(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), version());
}

std::string Library::name() const { return "libfabric " + version_text(version()) + " (" + path + ")"; }

std::string Library::error_text(long returned) const {
  return std::string(strerror(static_cast<int>(-returned))) + " (" + std::to_string(returned) + ")";
}

void set_provider_defaults() {
  constexpr int kKeepUsers = 0;
  ::setenv("FI_MR_CACHE_MONITOR", "disabled", kKeepUsers);  // all memory is registered once, by us
  ::setenv("FI_EFA_USE_DEVICE_RDMA", "1", kKeepUsers);      // off by default below interface version 1.18
  ::setenv("FI_EFA_ENABLE_SHM_TRANSFER", "0", kKeepUsers);  // ranks of one host have their own shared memory
  if (!kernel_copies_pinned_pages()) return;
  ::setenv("FI_EFA_FORK_SAFE", "1", kKeepUsers);
  ::setenv("FI_EFA_USE_HUGE_PAGE", "0", kKeepUsers);  // aborts together with FI_EFA_FORK_SAFE
}

}  // namespace neuron::fabric
