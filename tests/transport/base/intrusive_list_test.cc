#include "transport/base/intrusive_list.h"

#include <gtest/gtest.h>

#include <list>
#include <vector>

#include "tests/seed.h"

namespace neuron {
namespace {

struct Other;
struct Element : ListLink<>, ListLink<Other> {
  int number = 0;
};

std::vector<int> numbers_of(IntrusiveList<Element>& list) {
  std::vector<int> numbers;
  list.for_each([&](Element& element) { numbers.push_back(element.number); });
  return numbers;
}

bool is_linked(Element& element) { return static_cast<ListLink<>&>(element).is_linked(); }
void unlink(Element& element) { static_cast<ListLink<>&>(element).unlink(); }

TEST(IntrusiveList, BehavesLikeAList) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Random random(test_seed());
  std::vector<Element> elements(50);
  for (int i = 0; i < 50; ++i) elements[static_cast<std::size_t>(i)].number = i;
  IntrusiveList<Element> list;
  std::list<int> model;
  for (int i = 0; i < 20'000; ++i) {
    Element& element = elements[random.below(50)];
    if (is_linked(element)) {
      if (random.one_in(2)) {
        unlink(element);
        model.remove(element.number);
      } else {
        Element* first = list.pop_front();
        ASSERT_EQ(first->number, model.front());
        model.pop_front();
      }
    } else if (random.one_in(3)) {
      list.push_front(element);
      model.push_front(element.number);
    } else {
      list.push_back(element);
      model.push_back(element.number);
    }
    ASSERT_EQ(list.is_empty(), model.empty());
    ASSERT_TRUE(model.empty() || list.front().number == model.front());
    ASSERT_TRUE(i % 100 != 0 || numbers_of(list) == std::vector<int>(model.begin(), model.end()));
  }
  while (list.pop_front() != nullptr) {
  }
}

TEST(IntrusiveList, LetsAVisitorUnlinkWhatItIsGiven) {
  std::vector<Element> elements(6);
  IntrusiveList<Element> list;
  for (int i = 0; i < 6; ++i) {
    elements[static_cast<std::size_t>(i)].number = i;
    list.push_back(elements[static_cast<std::size_t>(i)]);
  }
  list.for_each([](Element& element) {
    if (element.number % 2 == 0) unlink(element);
  });
  EXPECT_EQ(numbers_of(list), (std::vector<int>{1, 3, 5}));
  while (list.pop_front() != nullptr) {
  }
}

TEST(IntrusiveList, HoldsAnElementOncePerTag) {
  Element element;
  IntrusiveList<Element> list;
  IntrusiveList<Element, Other> other;
  list.push_back(element);
  other.push_back(element);
  EXPECT_EQ(list.pop_front(), &element);
  EXPECT_FALSE(other.is_empty());
  EXPECT_EQ(other.pop_front(), &element);
  EXPECT_EQ(other.pop_front(), nullptr);
}

TEST(IntrusiveListDeathTest, RefusesAnElementTwice) {
  Element element;
  IntrusiveList<Element> list;
  list.push_back(element);
  EXPECT_DEATH(list.push_back(element), "already in a list");
  list.pop_front();
}

TEST(ListLink, MayBeUnlinkedTwice) {
  Element element;
  unlink(element);
  EXPECT_FALSE(is_linked(element));
}

}  // namespace
}  // namespace neuron
