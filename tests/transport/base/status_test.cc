#include "transport/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace neuron {
namespace {

TEST(Status, IsOk_WhenNothingIsSaid) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_TRUE(static_cast<bool>(status));
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_EQ(status.message(), "");
}

TEST(Status, CarriesCodeAndMessage) {
  const Status status(Code::timeout, "too late");
  const Status copy = status;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_FALSE(copy);
  EXPECT_EQ(copy.code(), Code::timeout);
  EXPECT_EQ(copy.message(), "too late");
  EXPECT_EQ(copy, status);
  EXPECT_FALSE(copy == Status(Code::timeout, "later"));
  EXPECT_FALSE(copy == Status(Code::aborted, "too late"));
  EXPECT_FALSE(copy == Status());
}

TEST(Status, NamesEachCode) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::internal); ++code) names.insert(name_of(static_cast<Code>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::internal) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(3));
  ASSERT_TRUE(value);
  EXPECT_EQ(**value, 3);
  EXPECT_EQ(value.status(), Status());
  const std::unique_ptr<int> taken = std::move(value).value();
  EXPECT_EQ(*taken, 3);
  const Result<int> error(Status(Code::refused, "no"));
  EXPECT_FALSE(error);
  EXPECT_EQ(error.status().code(), Code::refused);
}

}  // namespace
}  // namespace neuron
