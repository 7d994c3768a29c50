#include "transport/header.h"

namespace neuron {

std::string_view name_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::invalid:
      return "invalid";
    case MessageKind::hello:
      return "hello";
    case MessageKind::eager:
      return "eager";
    case MessageKind::announce:
      return "announce";
    case MessageKind::grant:
      return "grant";
    case MessageKind::data:
      return "data";
    case MessageKind::done:
      return "done";
    case MessageKind::credit:
      return "credit";
    case MessageKind::want:
      return "want";
    case MessageKind::question:
      return "question";
    case MessageKind::answer:
      return "answer";
    case MessageKind::refuse:
      return "refuse";
  }
  return "unknown";
}

}  // namespace neuron
