#include "c10d_neuron/control/runtime.h"

#include <pthread.h>
#include <csignal>

namespace neuron::control {
namespace {

// What is queued on sockets that were told to finish is given this long to go out.
constexpr auto kDrainPatience = std::chrono::milliseconds(100);

}  // namespace

Runtime::Runtime() : guard_(io.get_executor()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "neuron-control");
    io.run();
    ended_.set_value();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Runtime::~Runtime() { stop(); }

void Runtime::stop() {
  if (!thread_.joinable()) return;
  guard_.reset();
  mailbox->close();
  if (ended_.get_future().wait_for(kDrainPatience) != std::future_status::ready) io.stop();
  thread_.join();
}

}  // namespace neuron::control
