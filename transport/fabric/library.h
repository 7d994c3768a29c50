// Library: libfabric, opened at run time, so that a machine without it still runs jobs on one host.
// A value: a handful of function pointers into a library that stays loaded until the process ends. Made once per rail
// by the thread that builds the transports. Opening fails with `unavailable` when no libfabric is found or it lacks a
// symbol.
#pragma once
#include <rdma/fabric.h>

#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/status.h"

namespace neuron::fabric {

/// The few functions that libfabric exports; everything else is reached through the objects that these return.
struct Library {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;
  decltype(&fi_version) version = nullptr;
  decltype(&fi_strerror) strerror = nullptr;
  std::string path;  // of the file that was opened

  /// Opens `path`, or, when it is empty, the first of /opt/amazon/efa and the system's library.
  static Result<Library> open(const std::string& path);

  /// The interface version to ask for: providers behave as of the version asked for, and the headers that this file was
  /// compiled with limit how long its structures are.
  [[nodiscard]] std::uint32_t api_version() const;
  /// "libfabric 1.17 (/lib/x86_64-linux-gnu/libfabric.so.1)".
  [[nodiscard]] std::string name() const;
  /// The text of a negative return value.
  [[nodiscard]] std::string error_text(long returned) const;
};

/// A list of fi_info with its owner.
class FreeInfo {
 public:
  explicit FreeInfo(decltype(&fi_freeinfo) free = nullptr) : free_(free) {}
  void operator()(fi_info* list) const { free_(list); }

 private:
  decltype(&fi_freeinfo) free_;
};
using InfoList = std::unique_ptr<fi_info, FreeInfo>;

/// Sets the defaults of the providers' own environment variables that this transport depends on, each only if the user
/// has not set it. Call before the library is opened, from the thread that starts the engine: it writes the
/// environment.
void set_provider_defaults();

}  // namespace neuron::fabric
