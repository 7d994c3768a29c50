// open: the way into this folder. Makes a Rail, the transport over libfabric between hosts; no header of libfabric is
// needed to use it. The Engine owns the rail; threads and failures as transport/transport.h says. Opening fails with
// `unavailable`: no libfabric, no such provider, no such interface, or the call of libfabric that failed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/clock.h"
#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace neuron::fabric {

/// A value. Empty texts mean: choose.
struct Options {
  std::string provider;
  std::string network_interface;
  std::string library;       // path of libfabric
  std::string toward;        // numeric address of another host, so that the kernel's routes choose the interface
  bool remote_write = true;  // false: BulkMode::messages in any case
  Nanoseconds stall_limit = 30 * kSecond;  // a peer that takes nothing for so long is lost
};

Options options_from(const Config& config);

/// What a rail has seen and not delivered; for tests and diagnosis.
struct Dropped {
  std::uint64_t malformed = 0;  // too short, or of no known kind
  std::uint64_t unknown = 0;    // from ranks that are not connected, beyond those that are kept until they are
  std::uint64_t failed = 0;     // receives that ended in error

  friend bool operator==(const Dropped&, const Dropped&) = default;
};

/// One endpoint on one network interface. A resource.
class Rail : public Transport {
 public:
  /// "net on eth0 (192.0.2.2), remote writes, libfabric 1.17 (...)".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual Dropped dropped() const = 0;
};

/// `clock` outlives the rail.
Result<std::unique_ptr<Rail>> open(const Options& options, const Clock& clock);

}  // namespace neuron::fabric
