#include "c10d_neuron/control/sockets.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "c10d_neuron/control/token.h"

namespace neuron::control {
namespace {

// A link that carries nothing is probed each second; a dead one is noticed after five. Longer than a switch needs to
// find another path, shorter than anybody waits for an answer.
constexpr int kProbeSeconds = 1;
constexpr int kProbes = 5;
constexpr unsigned kUserTimeoutMilliseconds = 5000;

std::string in_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : bytes) {
    out += kDigits[static_cast<unsigned char>(byte) >> 4];
    out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

Status socket_error(const char* what) { return {Code::unavailable, std::string(what) + ": " + std::strerror(errno)}; }

}  // namespace

asio::local::stream_protocol::endpoint leader_endpoint(const std::string& token, std::uint64_t generation,
                                                       const std::string& host_identity) {
  const auto digest = derive(token, "leader of " + std::to_string(generation) + " on " + host_identity);
  return {std::string(1, '\0') + "c10d-neuron/" + in_hex(digest.substr(0, 16))};
}

Descriptor pidfd_of(std::uint32_t pid) {
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

Descriptor own_pidfd() { return pidfd_of(static_cast<std::uint32_t>(::getpid())); }

std::uint64_t own_pid_namespace() {
  struct stat facts{};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

Status send_pidfd(LocalSocket& socket) {
  const Descriptor pidfd = own_pidfd();
  char byte = 'p';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (pidfd.is_valid()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = pidfd.number();
    std::memcpy(CMSG_DATA(header), &number, sizeof number);
  }
  if (::sendmsg(socket.native_handle(), &message, MSG_NOSIGNAL) != 1) return socket_error("sendmsg");
  return {};
}

Result<Descriptor> receive_pidfd(LocalSocket& socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(socket.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) return socket_error("recvmsg");
  if (length != 1 || byte != 'p') return Status(Code::refused, "The connection was closed or is not one of ours.");
  Descriptor received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof number, sizeof number);
      received = Descriptor(number);  // more than one is a stranger's doing: the last stays, the others are closed
    }
  }
  return received;
}

bool is_same_user(LocalSocket& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const int result = ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return result == 0 && peer.uid == ::geteuid();
}

void set_liveness_options(asio::ip::tcp::socket& socket) {
  const auto set = [&](int level, int name, auto value) {
    // A kernel without one of these notices a dead host later; nothing else changes.
    [[maybe_unused]] const int result = ::setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMilliseconds);
}

}  // namespace neuron::control
