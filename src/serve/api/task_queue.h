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
    // Of a request that has had a task already: before those of the key that have not.
    void PushLater(const std::string& key, Task task);
    // The first task of the key whose turn it is. Precondition: !empty().
    Task Pop();
    bool empty() const { return turns_.empty(); }
    // Requests that have had none yet.
    size_t waiting() const { return waiting_; }
    size_t waiting_of(const std::string& key) const;

  private:
    struct Own {
        std::deque<Task> first{}, later{};
        bool empty() const { return first.empty() && later.empty(); }
    };
    Own& OwnOf(const std::string& key);

    std::unordered_map<std::string, Own> tasks_;  // by key; none is empty
    std::deque<std::string> turns_;               // the keys of tasks_
    size_t waiting_ = 0;
};

}  // namespace weft::serve
