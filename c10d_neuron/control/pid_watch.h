// PidWatch: tells when processes of this host end, through their pidfds. A resource of the mesh, on Control's thread.
// `on_exit` is called once per rank. Nothing here fails: an empty Descriptor (a kernel without pidfds) is ignored, then
// the end of the connection has to do.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "transport/base/descriptor.h"
#include "transport/base/rank.h"

namespace neuron::control {

class PidWatch {
 public:
  PidWatch(boost::asio::io_context& io, std::function<void(Rank)> on_exit) : io_(io), on_exit_(std::move(on_exit)) {}

  /// Replaces what watched this rank before.
  void add(Rank rank, Descriptor pidfd) {
    remove(rank);
    if (!pidfd.is_valid()) return;
    auto ward = std::make_shared<Ward>(io_, std::move(pidfd));
    wards_[rank] = ward;
    using Watcher = boost::asio::posix::stream_descriptor;
    ward->watcher.async_wait(Watcher::wait_read, [this, rank, ward](const boost::system::error_code& error) {
      if (error || ward->is_over) return;
      remove(rank);
      on_exit_(rank);
    });
  }
  void remove(Rank rank) {
    const auto found = wards_.find(rank);
    if (found == wards_.end()) return;
    const auto ward = found->second;
    wards_.erase(found);
    ward->end();
  }
  [[nodiscard]] bool watches(Rank rank) const { return wards_.contains(rank); }
  void clear() {
    while (!wards_.empty()) remove(wards_.begin()->first);
  }

 private:
  struct Ward {
    Ward(boost::asio::io_context& io, Descriptor pidfd)
        : descriptor(std::move(pidfd)), watcher(io, descriptor.number()) {}
    ~Ward() { end(); }
    void end() {
      is_over = true;
      if (watcher.is_open()) watcher.release();  // cancels the wait; `descriptor` closes
      descriptor.reset();
    }
    Descriptor descriptor;
    boost::asio::posix::stream_descriptor watcher;
    bool is_over = false;
  };

  boost::asio::io_context& io_;
  std::function<void(Rank)> on_exit_;
  std::map<Rank, std::shared_ptr<Ward>> wards_;
};

}  // namespace neuron::control
