#include "transport/shared_memory/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace neuron::shared_memory {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * kMaxPacketDescriptors);

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

// An abstract name begins with a zero byte and has no end but its length.
Name abstract(std::string_view name) {
  Name out;
  out.address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof out.address.sun_path - 1);
  std::memcpy(out.address.sun_path + 1, name.data(), length);
  out.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return out;
}

Status failed(Code code, const char* what, int error) {
  return {code, std::string(what) + ": " + std::strerror(error)};
}

std::vector<Descriptor> take_descriptors(msghdr& message) {
  std::vector<Descriptor> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof number);
      taken.emplace_back(number);
    }
  }
  return taken;
}

}  // namespace

Result<Descriptor> listen_abstract(std::string_view name) {
  Descriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.is_valid()) return failed(Code::unavailable, "no Unix socket", errno);
  const Name address = abstract(name);
  if (::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address.address), address.bytes) != 0) {
    return failed(Code::unavailable, "no abstract Unix socket", errno);
  }
  if (::listen(socket.number(), SOMAXCONN) != 0) return failed(Code::unavailable, "listen on a Unix socket", errno);
  return socket;
}

Result<Descriptor> connect_abstract(std::string_view name) {
  Descriptor socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket.is_valid()) return failed(Code::refused, "no Unix socket", errno);
  const Name address = abstract(name);
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address.address), address.bytes) != 0) {
    return failed(errno == EAGAIN ? Code::unavailable : Code::refused, "its Unix socket cannot be reached", errno);
  }
  return socket;
}

Result<Descriptor> accept_connection(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.is_valid() || errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return socket;
  return failed(Code::unavailable, "accept on a Unix socket", errno);
}

Status check_same_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return failed(Code::refused, "its credentials cannot be read", errno);
  }
  if (peer.uid == ::geteuid()) return {};
  return {Code::refused,
          "it belongs to user " + std::to_string(peer.uid) + ", we are user " + std::to_string(::geteuid())};
}

Status send_packet(const Descriptor& socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  const auto sent = ::sendmsg(socket.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(bytes.size())) return {};
  return failed(Code::peer_lost, "the hand-over was cut off", errno);
}

Result<Packet> receive_packet(const Descriptor& socket, bool with_descriptors) {
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  Packet packet;
  packet.bytes.resize(kMaxPacketBytes);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (with_descriptors) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  const auto got = ::recvmsg(socket.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Packet{};
  if (got < 0) return failed(Code::peer_lost, "the hand-over was cut off", errno);
  packet.descriptors = take_descriptors(message);
  if (got == 0) return Status(Code::peer_lost, "it closed the connection during the hand-over");
  if ((message.msg_flags & MSG_TRUNC) != 0) return Status(Code::refused, "it sent more than is allowed");
  if ((message.msg_flags & MSG_CTRUNC) != 0 && with_descriptors) {
    return Status(Code::unavailable, "its descriptors cannot be taken: too many open files? Raise `ulimit -n`");
  }
  packet.bytes.resize(static_cast<std::size_t>(got));
  return packet;
}

}  // namespace neuron::shared_memory
