#include "transport/base/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <numeric>

extern char** environ;  // NOLINT: declared by POSIX, in no header

namespace neuron {
namespace {

constexpr std::string_view kPrefix = "C10D_NEURON_";

constexpr std::array kKnobs = {
    Knob{"C10D_NEURON_PROVIDER", KnobType::text, "", "",
         "The libfabric provider between hosts (efa, net, tcp, tcp;ofi_rxm, ...); empty: the best one that the machine "
         "has."},
    Knob{"C10D_NEURON_SHARED_MEMORY", KnobType::boolean, "1", "",
         "0 sends everything through the fabric, also between ranks of one host."},
    Knob{"C10D_NEURON_INTERFACE", KnobType::text, "", "",
         "The network interface to other hosts (eth0); empty: the one whose address the other hosts reach."},
    Knob{"C10D_NEURON_HOST", KnobType::text, "", "",
         "Another host identity for this rank: ranks with different names behave as if on different hosts."},
    Knob{"C10D_NEURON_LOG", KnobType::log_level, "warning", "",
         "The least severe messages to print: error, warning, info or debug."},
    Knob{"C10D_NEURON_TOKEN_FILE", KnobType::text, "", "",
         "A file, readable by its owner only, with the job's secret; empty: rank 0 makes one and hands it out through "
         "the c10d store."},
    Knob{"C10D_NEURON_LIBFABRIC", KnobType::text, "", "",
         "The libfabric to open, as a path; empty: /opt/amazon/efa first, then the system's."},
    Knob{"C10D_NEURON_REMOTE_WRITE", KnobType::boolean, "1", "",
         "0 sends large messages as small ones instead of remote writes, also where the provider could write."},
    Knob{"C10D_NEURON_FLIGHT_RECORDS", KnobType::integer, "2000", "operations",
         "How many operations each process remembers for diagnosis."},
    Knob{"C10D_NEURON_SPIN_US", KnobType::integer, "-1", "microseconds",
         "How long a waiter polls before it sleeps; -1: chosen from the ranks per core."},
    Knob{"C10D_NEURON_INTERRUPTS", KnobType::boolean, "1", "", "0 leaves Ctrl-C pending until a blocked call ends."},
    // Read by the Python entry point, before any library of ours is loaded.
    Knob{"C10D_NEURON_REGISTER", KnobType::text, "auto", "",
         "Whether the backend name \"neuron\" is taken: auto (unless torch-neuronx is installed or the name is taken), "
         "1 or 0. \"neuron_fabric\" is always ours."},
};

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

Status bad_value(std::string_view name, std::string_view value, std::string_view allowed) {
  return {Code::invalid_argument,
          std::string(name) + " is " + quoted(value) + "; it takes " + std::string(allowed) + ". Correct or unset it."};
}

Status parse_boolean(std::string_view name, std::string_view value, bool& out) {
  if (value == "1" || value == "true" || value == "on" || value == "yes") {
    out = true;
  } else if (value == "0" || value == "false" || value == "off" || value == "no") {
    out = false;
  } else {
    return bad_value(name, value, "0 or 1");
  }
  return {};
}

Status parse_integer(std::string_view name, std::string_view value, std::int64_t least, std::int64_t& out) {
  std::int64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size() || parsed < least) {
    return bad_value(name, value, "a whole number, at least " + std::to_string(least));
  }
  out = parsed;
  return {};
}

Status parse_log_level(std::string_view name, std::string_view value, LogLevel& out) {
  const auto level = log_level_named(value);
  if (!level) return bad_value(name, value, "error, warning, info or debug");
  out = *level;
  return {};
}

/// Levenshtein distance, two rows.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view nearest_knob(std::string_view name) {
  return std::min_element(
             kKnobs.begin(), kKnobs.end(),
             [&](const Knob& a, const Knob& b) { return edit_distance(a.name, name) < edit_distance(b.name, name); })
      ->name;
}

bool is_known(std::string_view name) {
  return std::any_of(kKnobs.begin(), kKnobs.end(), [&](const Knob& knob) { return knob.name == name; });
}

}  // namespace

std::span<const Knob> knobs() { return kKnobs; }

Status set_knob(Config& config, std::string_view name, std::string_view value) {
  const auto suffix = is_known(name) ? name.substr(kPrefix.size()) : std::string_view();
  if (suffix == "PROVIDER") return config.provider = value, Status{};
  if (suffix == "SHARED_MEMORY") return parse_boolean(name, value, config.shared_memory);
  if (suffix == "INTERFACE") return config.network_interface = value, Status{};
  if (suffix == "HOST") return config.host = value, Status{};
  if (suffix == "LOG") return parse_log_level(name, value, config.log);
  if (suffix == "TOKEN_FILE") return config.token_file = value, Status{};
  if (suffix == "LIBFABRIC") return config.libfabric = value, Status{};
  if (suffix == "REMOTE_WRITE") return parse_boolean(name, value, config.remote_write);
  if (suffix == "FLIGHT_RECORDS") return parse_integer(name, value, 1, config.flight_records);
  if (suffix == "SPIN_US") return parse_integer(name, value, -1, config.spin_us);
  if (suffix == "INTERRUPTS") return parse_boolean(name, value, config.interrupts);
  if (suffix == "REGISTER") return {};
  return {Code::invalid_argument,
          "Unknown knob " + std::string(name) + "; did you mean " + std::string(nearest_knob(name)) + "?"};
}

Result<ConfigFromEnvironment> config_from_environment() {
  ConfigFromEnvironment read;
  for (const Knob& knob : kKnobs) {
    const char* value = std::getenv(std::string(knob.name).c_str());
    if (value == nullptr || *value == '\0') continue;
    if (Status status = set_knob(read.config, knob.name, value); !status) return status;
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view pair = *entry;
    const auto name = pair.substr(0, pair.find('='));
    if (!name.starts_with(kPrefix) || is_known(name)) continue;
    read.warnings.push_back("Unknown environment variable " + std::string(name) + " is ignored; did you mean " +
                            std::string(nearest_knob(name)) + "?");
  }
  return read;
}

std::string knobs_as_markdown() {
  std::string out =
      "# Configuration\n\nGenerated from the table in `transport/base/config.cc` by `c10d-neuron knobs --markdown`. "
      "Each knob is an environment variable, read once when the first process group is made.\n\n"
      "| knob | default | unit | what it does |\n|---|---|---|---|\n";
  for (const Knob& knob : kKnobs) {
    out += "| `" + std::string(knob.name) + "` | " +
           (knob.fallback.empty() ? std::string("(empty)") : "`" + std::string(knob.fallback) + "`") + " | " +
           std::string(knob.unit) + " | " + std::string(knob.sentence) + " |\n";
  }
  return out;
}

}  // namespace neuron
