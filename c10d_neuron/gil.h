// What the backend has to do with Python's global lock and its signals. Free functions and one RAII type; any thread.
#pragma once
#include <torch/csrc/python_headers.h>

#include <pybind11/pybind11.h>

#include <unistd.h>

#include <atomic>

namespace neuron {

/// Releases the GIL for its lifetime if this thread holds it; nothing otherwise. A resource.
class ReleaseGil {
 public:
  ReleaseGil() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) state_ = PyEval_SaveThread();
  }
  ~ReleaseGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

/// Set when the interpreter's exit begins.
inline std::atomic<bool> is_exiting{false};

/// A daemon thread that comes back from a wait while the interpreter ends would be torn down by Python in the middle of
/// C++ frames, which aborts the process; so it stays where it is. Call without the GIL.
inline void stay_if_exiting() {
  while (is_exiting.load() && ::gettid() != ::getpid()) ::pause();
}

/// Whether Python delivers signals to this thread.
[[nodiscard]] inline bool is_main_thread() { return Py_IsInitialized() != 0 && ::gettid() == ::getpid(); }

/// Runs Python's signal handlers. On the main thread, without the GIL. Throws what they raise (KeyboardInterrupt).
inline void raise_pending_interrupt() {
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace neuron
