// Work of the API's threads, in turn by key: each key has one task at a time, so that a key with
// many or long tasks waits for itself, and the others for one task of each.
// Within a key a small task goes before a large one; a task waits for smaller ones that came later
// only until as many bytes as it has were done.
// Thread: one caller, or a lock.
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
        std::string id;  // of the request
        std::function<void()> run;
        uint64_t bytes = 0;  // of the request: its size
    };

    // Returns the task's number, for Remove.
    uint64_t Push(const std::string& key, Task task);
    // Of a request that has had a task already: before those of the key that have not.
    void PushLater(const std::string& key, Task task);
    // Takes out a task that Push took in; nothing where it is not there any more.
    std::optional<Task> Remove(const std::string& key, uint64_t number);
    // Whether a key has tasks, and none that runs.
    bool ready() const { return !turns_.empty(); }
    // The first task of the key whose turn it is; it runs until Done(key). Precondition: ready().
    std::pair<std::string, Task> Pop();
    void Done(const std::string& key);
    // Requests that have had no task yet.
    size_t waiting() const { return waiting_; }
    size_t waiting_of(const std::string& key) const;
    // Keys with tasks.
    size_t keys() const { return tasks_.size(); }

  private:
    struct Own {
        // By the bytes that were done when all before it are, and by number.
        std::map<std::pair<uint64_t, uint64_t>, Task> first{};
        std::deque<Task> later{};
        bool running = false;
        bool empty() const { return first.empty() && later.empty(); }
    };
    using Entry = std::unordered_map<std::string, Own>::iterator;
    Own& OwnOf(const std::string& key);
    void EraseIfIdle(Entry entry);

    std::unordered_map<std::string, Own> tasks_;  // by key; each has tasks, or one that runs
    std::deque<std::string> turns_;               // keys with tasks and none that runs
    size_t waiting_ = 0;
    uint64_t number_ = 0;      // of the last task
    uint64_t done_bytes_ = 0;  // of all tasks that were popped
};

}  // namespace weft::serve
