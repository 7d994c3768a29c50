#include "transport/base/status.h"

namespace neuron {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::unsupported:
      return "unsupported";
    case Code::timeout:
      return "timeout";
    case Code::peer_lost:
      return "peer lost";
    case Code::mismatch:
      return "mismatch";
    case Code::aborted:
      return "aborted";
    case Code::unavailable:
      return "unavailable";
    case Code::refused:
      return "refused";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return detail_ ? detail_->message : kEmpty;
}

}  // namespace neuron
