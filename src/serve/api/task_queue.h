// Task queue of the API's threads. Keys take turns, and each key runs at most one task at a time.
// A key with many tasks therefore delays another key's next task by at most one task. Within a key,
// small tasks go before large ones. A task is overtaken by later, smaller tasks only until the
// queue has processed as many bytes as the task has.
// Thread: one caller at a time, or under a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace weft::serve {

class TaskQueue {
  public:
    struct Task {
        std::string id;  // id of the request
        std::function<void()> run;
        uint64_t bytes = 0;  // size of the request
    };

    // Returns the task's number, for Remove.
    uint64_t Push(const std::string& key, Task task);
    // Adds a follow-up task of a request that already ran a task. It runs before the key's new
    // requests.
    void PushLater(const std::string& key, Task task);
    // Removes a task added by Push; nullopt if it was already popped.
    std::optional<Task> Remove(const std::string& key, uint64_t number);
    // Whether some key has waiting tasks and no running one.
    bool ready() const { return !turns_.empty(); }
    // Takes the first task of the next key. It counts as running until Done(key). Precondition:
    // ready().
    std::pair<std::string, Task> Pop();
    void Done(const std::string& key);
    // Tasks added by Push and not yet popped.
    size_t waiting() const { return waiting_; }
    size_t waiting_of(const std::string& key) const;
    // Keys with tasks that wait or run.
    size_t keys() const { return tasks_.size(); }

  private:
    struct Own {
        // Ordered by (done_bytes_ + the task's bytes when it was pushed, number).
        std::map<std::pair<uint64_t, uint64_t>, Task> first{};
        std::deque<Task> later{};
        bool running = false;
        bool empty() const { return first.empty() && later.empty(); }
    };
    using Entry = std::unordered_map<std::string, Own>::iterator;
    Own& OwnOf(const std::string& key);
    void EraseIfIdle(Entry entry);

    // by key; each entry has a waiting or running task
    std::unordered_map<std::string, Own> tasks_;
    std::deque<std::string> turns_;  // keys with waiting tasks, none of which runs
    size_t waiting_ = 0;
    uint64_t number_ = 0;      // number of the last task
    uint64_t done_bytes_ = 0;  // total of all popped tasks
};

}  // namespace weft::serve
