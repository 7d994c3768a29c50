// Link: frames in both directions over one connected socket, of either family. A shared resource: its owner and its
// pending operations hold it. Used on Control's thread only. When the peer closes, or the socket fails, on_close is
// called once; not after close().
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c10d_neuron/control/sockets.h"
#include "c10d_neuron/control/wire.h"
#include "transport/base/clock.h"

namespace neuron::control {

class Link : public std::enable_shared_from_this<Link> {
 public:
  using OnFrame = std::function<void(proto::Frame&)>;
  using OnClose = std::function<void(const Error&)>;

  /// The socket is connected and guarded.
  Link(StreamSocket socket, bool is_local) : socket_(std::move(socket)), is_local_(is_local) {}
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Who hears of frames and of the end, from the next one on.
  void listen(OnFrame on_frame, OnClose on_close);
  void start() { read(); }

  void send(const proto::Frame& frame) { send(encode(frame)); }
  void send(Encoded frame);
  /// No more sends; what is queued goes out, then the peer sees the end of the stream.
  void finish();
  void close();
  /// Until then a frame may have 64 KiB only.
  void set_authenticated() { largest_frame_ = kLargestFrame; }

  [[nodiscard]] bool is_open() const { return !closed_; }
  [[nodiscard]] bool is_finishing() const { return finishing_; }
  [[nodiscard]] bool is_local() const { return is_local_; }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }
  /// Whether bytes of the peer wait in the kernel.
  [[nodiscard]] bool has_unread();
  [[nodiscard]] Nanoseconds last_heard() const { return last_heard_; }
  [[nodiscard]] asio::any_io_executor executor() { return socket_.get_executor(); }

  Rank peer = kNoRank;           // set once authenticated
  bool is_synchronised = false;  // the peer has said what it knows: floods go this way
  bool said_farewell = false;    // the peer closes this link on purpose: its end is no death

 private:
  void read();
  void on_read(const Error& error, std::size_t length);
  bool parse();
  void write();
  void give_up_writing(const Error& error);
  void fail(const Error& error);

  StreamSocket socket_;
  const bool is_local_;
  std::shared_ptr<OnFrame> on_frame_;
  OnClose on_close_;
  std::vector<char> input_;
  std::size_t filled_ = 0;
  std::size_t largest_frame_ = 64 << 10;
  std::deque<Encoded> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t writing_ = 0;  // frames of the queue that the kernel is being given
  Error write_error_;
  bool finishing_ = false;
  bool closed_ = false;
  Nanoseconds last_heard_ = SteadyClock().now();
};

using LinkPointer = std::shared_ptr<Link>;

}  // namespace neuron::control
