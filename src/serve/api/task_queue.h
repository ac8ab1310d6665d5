// What the API's threads have to do, in turn by key: who has much to do, or what takes long
// (grammars), waits for itself, and others for one task of each.
// Thread: one caller, or a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace weft::serve {

class TaskQueue {
  public:
    struct Task {
        std::string id;  // of the request
        std::function<void()> run;
    };

    // Returns the task's number, for Remove.
    uint64_t Push(const std::string& key, Task task);
    // Of a request that has had a task already: before those of the key that have not.
    void PushLater(const std::string& key, Task task);
    // Takes out a task that Push took in; nothing where it is not there any more.
    std::optional<Task> Remove(const std::string& key, uint64_t number);
    // The first task of the key whose turn it is. Precondition: !empty().
    Task Pop();
    bool empty() const { return turns_.empty(); }
    // Requests that have had none yet.
    size_t waiting() const { return waiting_; }
    size_t waiting_of(const std::string& key) const;
    // Keys with tasks.
    size_t keys() const { return turns_.size(); }

  private:
    struct Own {
        std::deque<std::pair<uint64_t, Task>> first{};
        std::deque<Task> later{};
        bool empty() const { return first.empty() && later.empty(); }
    };
    Own& OwnOf(const std::string& key);

    std::unordered_map<std::string, Own> tasks_;  // by key; none is empty
    std::deque<std::string> turns_;               // the keys of tasks_
    size_t waiting_ = 0;
    uint64_t number_ = 0;  // of the last task
};

}  // namespace weft::serve
