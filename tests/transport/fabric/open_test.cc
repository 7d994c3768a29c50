#include "transport/fabric/open.h"

#include <gmock/gmock.h>

#include <fcntl.h>

#include <fstream>

#include "rail_pair.h"

namespace neuron::fabric::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(const Options& options) {
  const auto rail = open(options, kClock);
  EXPECT_FALSE(rail);
  EXPECT_EQ(rail.status().code(), Code::unavailable);
  return rail.status().message();
}

TEST(Open, NamesKnobAndLibrary_WhenLibraryIsMissing) {
  Options options;
  options.library = "/nonexistent/libfabric.so.1";
  EXPECT_THAT(error_of(options),
              StartsWith("C10D_NEURON_LIBFABRIC is \"/nonexistent/libfabric.so.1\", which cannot be opened"));
}

TEST(Open, SaysThatItIsNoLibfabric_WhenAnotherLibraryIsNamed) {
  Options options;
  options.library = "libm.so.6";
  const std::string message = error_of(options);
  EXPECT_THAT(message, HasSubstr("libm.so.6 is no libfabric"));
  EXPECT_THAT(message, HasSubstr("C10D_NEURON_LIBFABRIC"));
}

TEST(Open, ListsProviders_WhenProviderIsUnknown) {
  Options options = on_loopback();
  const std::string known = options.provider;
  options.provider = "no-such-provider";
  const std::string message = error_of(options);
  EXPECT_THAT(message, HasSubstr("C10D_NEURON_PROVIDER is \"no-such-provider\""));
  EXPECT_THAT(message, HasSubstr(known));
}

TEST(Open, ListsInterfaces_WhenInterfaceIsUnknown) {
  Options options = on_loopback();
  options.network_interface = "no-such-interface";
  const std::string message = error_of(options);
  EXPECT_THAT(message, HasSubstr("C10D_NEURON_INTERFACE is \"no-such-interface\""));
  EXPECT_THAT(message, HasSubstr("lo (127.0.0.1)"));
}

TEST(Open, UsesMessages_WhenRemoteWritesAreOff) {
  Options options = on_loopback();
  options.remote_write = false;
  EXPECT_EQ(open_or_fail(options)->traits().bulk, BulkMode::messages);
  EXPECT_EQ(open_or_fail(on_loopback())->traits().bulk, BulkMode::write);
}

TEST(Open, DescribesWhatItChose) {
  const auto rail = open_or_fail(on_loopback());
  EXPECT_THAT(rail->description(), StartsWith(rail->traits().name + " on lo (127.0.0.1), remote writes, libfabric "));
}

TEST(Open, PassesOverLoopback_WhenThereIsAnotherInterface) {
  Options options = on_loopback();
  options.network_interface.clear();
  const auto rail = open_or_fail(options);
  const bool is_alone = std::ifstream("/proc/net/route").peek() == EOF;
  if (is_alone) GTEST_SKIP() << "this network namespace has loopback only";
  EXPECT_THAT(rail->description(), ::testing::Not(HasSubstr(" on lo ")));
}

TEST(Open, GivesAllBack_WhenRepeated) {
  const auto descriptors = [] {
    int open_ones = 0;
    for (int fd = 0; fd < 1024; ++fd) open_ones += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return open_ones;
  };
  open_or_fail(on_loopback());  // what libfabric keeps for the process is opened now
  const int before = descriptors();
  for (int i = 0; i < 10; ++i) open_or_fail(on_loopback());
  EXPECT_LE(descriptors(), before);
}

}  // namespace
}  // namespace neuron::fabric::test
