// What Asio's sockets lack: a forked child must not keep them, and processes of one host show each other who they are.
// Functions on Control's thread. Errors come back as error codes or empty Descriptors.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "transport/base/descriptor.h"
#include "transport/base/fork_guard.h"
#include "transport/base/status.h"

namespace neuron::control {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using LocalSocket = asio::local::stream_protocol::socket;
using StreamSocket = asio::generic::stream_protocol::socket;

/// After open or accept.
template <typename Socket>
void guard(Socket& socket) {
  register_descriptor(static_cast<int>(socket.native_handle()));
}

/// Instead of close().
template <typename Socket>
void close_guarded(Socket& socket) {
  if (!socket.is_open()) return;
  Error ignored;
  if (unregister_descriptor(static_cast<int>(socket.native_handle()))) socket.close(ignored);
}

/// A local socket that several pending operations share.
inline std::shared_ptr<LocalSocket> shared_socket(LocalSocket socket) {
  return {new LocalSocket(std::move(socket)), [](LocalSocket* owned) {
            close_guarded(*owned);
            delete owned;
          }};
}

/// The abstract socket of this host's leader. Who does not know the token cannot compute the name.
asio::local::stream_protocol::endpoint leader_endpoint(const std::string& token, std::uint64_t generation,
                                                       const std::string& host_identity);

/// A descriptor of the calling process itself, on which its death can be seen.
Descriptor own_pidfd();
Descriptor pidfd_of(std::uint32_t pid);
/// Inode of /proc/self/ns/pid.
std::uint64_t own_pid_namespace();

/// One byte with this process's pidfd attached, as the first thing on a new connection.
Status send_pidfd(LocalSocket& socket);
/// Takes that byte; call when the socket is readable. The Descriptor is empty if the peer's kernel has no pidfds.
Result<Descriptor> receive_pidfd(LocalSocket& socket);
bool is_same_user(LocalSocket& socket);

/// Keep-alive and user timeout, so that a host that vanished is noticed in seconds.
void set_liveness_options(asio::ip::tcp::socket& socket);

}  // namespace neuron::control
