// Config: every knob of the product, read once from the environment; the only place that calls getenv.
// A value; the composition root reads it and passes it on. docs/configuration.md is generated from knobs().
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/status.h"

namespace neuron {

struct Config {
  std::string provider;           // libfabric provider; empty: chosen by capability
  bool shared_memory = true;      // false: everything through the fabric
  std::string network_interface;  // empty: the one that reaches the other hosts
  std::string host;               // another host identity; empty: the machine's own
  LogLevel log = LogLevel::warning;
  std::string token_file;              // the job's secret; empty: through the c10d store
  std::string libfabric;               // path of the library; empty: searched
  bool remote_write = true;            // false: large messages travel as small ones
  std::int64_t flight_records = 2000;  // operations remembered per process
  std::int64_t spin_us = -1;           // busy waiting before sleeping; -1: from ranks per core
  bool interrupts = true;              // Ctrl-C answered inside waits

  friend bool operator==(const Config&, const Config&) = default;
};

enum class KnobType : std::uint8_t { text, boolean, integer, log_level };

struct Knob {
  std::string_view name;  // of the environment variable
  KnobType type;
  std::string_view fallback;  // the default, as one would write it
  std::string_view unit;      // empty where there is none
  std::string_view sentence;  // what it does, for the documentation
};

/// The whole table, in the order of the documentation.
std::span<const Knob> knobs();

/// Parses `value` into the field that `name` stands for. Errors: invalid_argument names knob, value and what is
/// allowed.
Status set_knob(Config& config, std::string_view name, std::string_view value);

struct ConfigFromEnvironment {
  Config config;
  std::vector<std::string> warnings;  // unknown C10D_NEURON_* variables, each with the nearest known name
};

/// Reads C10D_NEURON_* of this process. Errors: invalid_argument for a value that does not parse.
Result<ConfigFromEnvironment> config_from_environment();

/// The table as Markdown: docs/configuration.md.
std::string knobs_as_markdown();

}  // namespace neuron
