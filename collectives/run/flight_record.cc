#include "collectives/run/flight_record.h"

namespace neuron {

FlightRecord* FlightRing::find(std::uint64_t number) {
  FlightRecord& record = records_[number % records_.size()];
  return record.number == number ? &record : nullptr;
}

std::uint64_t FlightRing::issued(FlightRecord record) {
  const std::lock_guard lock(mutex_);
  record.number = ++count_;
  FlightRecord& slot = records_[record.number % records_.size()];
  slot = std::move(record);
  return slot.number;
}

void FlightRing::started(std::uint64_t number, const Choice& choice, std::uint64_t topology, Nanoseconds when) {
  const std::lock_guard lock(mutex_);
  FlightRecord* record = find(number);
  if (record == nullptr) return;
  record->state = FlightRecord::State::started;
  record->algorithm = choice.algorithm;
  record->two_step = choice.two_step;
  record->segment_bytes = choice.segment_bytes;
  record->topology = topology;
  record->started_at = when;
}

void FlightRing::finished(std::uint64_t number, Nanoseconds when, const std::string& error) {
  const std::lock_guard lock(mutex_);
  FlightRecord* record = find(number);
  if (record == nullptr) return;
  record->state = error.empty() ? FlightRecord::State::done : FlightRecord::State::failed;
  record->finished_at = when;
  if (!error.empty()) record->error = error;
}

std::vector<FlightRecord> FlightRing::snapshot() const {
  std::vector<FlightRecord> records;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t first = count_ > records_.size() ? count_ - records_.size() + 1 : 1;
    for (std::uint64_t number = first; number <= count_; ++number)
      records.push_back(records_[number % records_.size()]);
  }
  for (FlightRecord& record : records) {
    if (record.started_at == 0) continue;
    const Choice choice{record.algorithm, record.two_step, record.segment_bytes};
    record.schedule = Tuner::build(record.collective, choice, record.rank, record.world, record.root).hash();
  }
  return records;
}

}  // namespace neuron
