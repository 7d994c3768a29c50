#include "c10d_neuron/control/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/descriptor.h"
#include "transport/base/hmac.h"

namespace neuron::control {
namespace {

constexpr std::size_t kLongestToken = 4096;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::string make_token() {
  std::string token(32, '\0');
  NEURON_CHECK(::getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()), "getrandom failed");
  return token;
}

Result<std::string> read_token_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_valid()) {
    return Status(Code::unavailable, "The token file " + path + " cannot be read: " + std::strerror(errno) +
                                         ". Correct or unset C10D_NEURON_TOKEN_FILE.");
  }
  struct stat facts{};
  if (::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Status(Code::refused, "The token file " + path + " is not a regular file.");
  }
  if (facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0) {
    return Status(Code::refused, "The token file " + path +
                                     " can be read by others: it must belong to this user with mode 0600 (chmod 600 " +
                                     path + ").");
  }
  std::array<char, kLongestToken + 1> bytes{};
  const ssize_t length = ::read(file.number(), bytes.data(), bytes.size());
  if (length < 0 || length > static_cast<ssize_t>(kLongestToken)) {
    return Status(Code::invalid_argument, "The token file " + path + " is longer than 4096 bytes or cannot be read.");
  }
  auto token = trimmed(std::string(bytes.data(), static_cast<std::size_t>(length)));
  if (token.size() < 16) {
    return Status(Code::invalid_argument, "The token file " + path + " holds fewer than 16 characters. Fill it with, " +
                                              "for instance, openssl rand -hex 32.");
  }
  return token;
}

std::string derive(const std::string& token, std::string_view purpose) {
  return std::string(view_of(hmac_sha256(token, purpose)));
}

}  // namespace neuron::control
