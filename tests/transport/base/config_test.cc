#include "transport/base/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace neuron {
namespace {

/// Sets an environment variable for the length of a test.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const std::string name_;
};

TEST(Config, HasItsDefaults_WithoutEnvironment) {
  const auto read = config_from_environment();
  ASSERT_TRUE(read);
  EXPECT_EQ(read.value().config, Config());
  EXPECT_TRUE(read.value().warnings.empty());
}

TEST(Config, ReadsEveryKnob) {
  Config config;
  EXPECT_EQ(set_knob(config, "C10D_NEURON_PROVIDER", "tcp;ofi_rxm"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_SHARED_MEMORY", "0"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_INTERFACE", "eth1"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_HOST", "a"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_LOG", "debug"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_TOKEN_FILE", "/t"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_LIBFABRIC", "/l.so"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_REMOTE_WRITE", "off"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_FLIGHT_RECORDS", "17"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_SPIN_US", "5"), Status());
  EXPECT_EQ(set_knob(config, "C10D_NEURON_INTERRUPTS", "no"), Status());
  Config expected;
  expected.provider = "tcp;ofi_rxm";
  expected.shared_memory = expected.remote_write = expected.interrupts = false;
  expected.network_interface = "eth1";
  expected.host = "a";
  expected.log = LogLevel::debug;
  expected.token_file = "/t";
  expected.libfabric = "/l.so";
  expected.flight_records = 17;
  expected.spin_us = 5;
  EXPECT_EQ(config, expected);
}

TEST(Config, TakesEveryKnobOfItsTable) {
  for (const Knob& knob : knobs()) {
    Config config;
    EXPECT_EQ(set_knob(config, knob.name, knob.fallback.empty() ? "text" : knob.fallback), Status()) << knob.name;
    const bool has_default = !knob.fallback.empty();
    EXPECT_EQ(config == Config(), has_default || knob.name == "C10D_NEURON_REGISTER") << knob.name;
    EXPECT_FALSE(knob.sentence.empty()) << knob.name;
  }
}

struct BadValue {
  const char* name;
  const char* value;
  const char* message;
};

class Refused : public ::testing::TestWithParam<BadValue> {};

TEST_P(Refused, ValueIsNamedWithWhatIsAllowed) {
  Config config;
  const Status status = set_knob(config, GetParam().name, GetParam().value);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), GetParam().message);
  EXPECT_EQ(config, Config()) << "nothing was set";
  const Variable variable(GetParam().name, GetParam().value);
  const auto read = config_from_environment();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.status(), status);
}

INSTANTIATE_TEST_SUITE_P(
    Values, Refused,
    ::testing::Values(
        BadValue{"C10D_NEURON_SHARED_MEMORY", "maybe",
                 "C10D_NEURON_SHARED_MEMORY is \"maybe\"; it takes 0 or 1. Correct or unset it."},
        BadValue{"C10D_NEURON_LOG", "loud",
                 "C10D_NEURON_LOG is \"loud\"; it takes error, warning, info or debug. Correct or unset it."},
        BadValue{"C10D_NEURON_FLIGHT_RECORDS", "0",
                 "C10D_NEURON_FLIGHT_RECORDS is \"0\"; it takes a whole number, at least 1. Correct or unset it."},
        BadValue{"C10D_NEURON_SPIN_US", "12x",
                 "C10D_NEURON_SPIN_US is \"12x\"; it takes a whole number, at least -1. Correct or unset it."},
        BadValue{"C10D_NEURON_SPIN_US", "99999999999999999999",
                 "C10D_NEURON_SPIN_US is \"99999999999999999999\"; it takes a whole number, at least -1. Correct or "
                 "unset it."}));

TEST(Config, ReadsTheEnvironment_AndTakesEmptyAsUnset) {
  const Variable provider("C10D_NEURON_PROVIDER", "efa");
  const Variable empty("C10D_NEURON_SHARED_MEMORY", "");
  const auto read = config_from_environment();
  ASSERT_TRUE(read);
  EXPECT_EQ(read.value().config.provider, "efa");
  EXPECT_TRUE(read.value().config.shared_memory);
}

TEST(Config, WarnsOfUnknownKnobs_WithTheNearestName) {
  const Variable misspelt("C10D_NEURON_PROVIDR", "efa");
  const Variable stranger("C10D_NEURAL", "1");  // not ours
  const auto read = config_from_environment();
  ASSERT_TRUE(read);
  ASSERT_EQ(read.value().warnings.size(), 1U);
  EXPECT_EQ(read.value().warnings[0],
            "Unknown environment variable C10D_NEURON_PROVIDR is ignored; did you mean C10D_NEURON_PROVIDER?");
}

TEST(Config, RefusesUnknownKnobs_WithTheNearestName) {
  Config config;
  EXPECT_EQ(set_knob(config, "C10D_NEURON_SHAREDMEMORY", "1").message(),
            "Unknown knob C10D_NEURON_SHAREDMEMORY; did you mean C10D_NEURON_SHARED_MEMORY?");
  EXPECT_EQ(set_knob(config, "", "1").code(), Code::invalid_argument);
  EXPECT_EQ(set_knob(config, "OTHER_PREFX_LOG", "debug").code(), Code::invalid_argument)
      << "only the whole name counts";
}

TEST(Config, TableBecomesMarkdown) {
  const std::string text = knobs_as_markdown();
  for (const Knob& knob : knobs()) EXPECT_NE(text.find("| `" + std::string(knob.name) + "` |"), std::string::npos);
}

}  // namespace
}  // namespace neuron
