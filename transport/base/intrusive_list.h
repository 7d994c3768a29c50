// IntrusiveList: a doubly linked list through the elements themselves, so that queueing allocates nothing.
// A resource that does not own its elements; one thread at a time. An element is in at most one list per Tag.
#pragma once
#include "transport/base/check.h"

namespace neuron {

template <typename Tag = void>
struct ListLink {
  ListLink() = default;
  ListLink(const ListLink&) = delete;
  ListLink& operator=(const ListLink&) = delete;

  [[nodiscard]] bool is_linked() const { return next != nullptr; }
  void unlink() {
    if (next == nullptr) return;
    previous->next = next;
    next->previous = previous;
    next = previous = nullptr;
  }

  ListLink* next = nullptr;
  ListLink* previous = nullptr;
};

/// T derives from ListLink<Tag>.
template <typename T, typename Tag = void>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next = head_.previous = &head_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  [[nodiscard]] bool is_empty() const { return head_.next == &head_; }
  [[nodiscard]] T& front() { return static_cast<T&>(*head_.next); }

  void push_back(T& element) {
    auto& link = static_cast<ListLink<Tag>&>(element);
    NEURON_CHECK(!link.is_linked(), "element is already in a list");
    link.previous = head_.previous;
    link.next = &head_;
    head_.previous->next = &link;
    head_.previous = &link;
  }

  void push_front(T& element) {
    auto& link = static_cast<ListLink<Tag>&>(element);
    NEURON_CHECK(!link.is_linked(), "element is already in a list");
    link.next = head_.next;
    link.previous = &head_;
    head_.next->previous = &link;
    head_.next = &link;
  }

  T* pop_front() {
    if (is_empty()) return nullptr;
    T& element = front();
    static_cast<ListLink<Tag>&>(element).unlink();
    return &element;
  }

  /// Calls visit(T&) on each; visit may unlink the element it is given.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (auto* link = head_.next; link != &head_;) {
      auto* following = link->next;
      visit(static_cast<T&>(*link));
      link = following;
    }
  }

 private:
  ListLink<Tag> head_;
};

}  // namespace neuron
