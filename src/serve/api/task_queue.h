// What the API's threads have to do, in turn by key: who has much to do, or what takes long
// (grammars), waits for itself, and others for one task of each.
// Thread: one caller, or a lock.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>

namespace weft::serve {

class TaskQueue {
  public:
    struct Task {
        std::string id;  // of the request
        std::function<void()> run;
    };

    void Push(const std::string& key, Task task);
    // The first task of the key whose turn it is. Precondition: !empty().
    Task Pop();
    bool empty() const { return turns_.empty(); }
    size_t size() const { return size_; }
    size_t size_of(const std::string& key) const;

  private:
    std::unordered_map<std::string, std::deque<Task>> tasks_;  // by key; none is empty
    std::deque<std::string> turns_;                            // the keys of tasks_
    size_t size_ = 0;
};

}  // namespace weft::serve
