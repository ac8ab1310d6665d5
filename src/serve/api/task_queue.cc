#include "serve/api/task_queue.h"

#include <utility>

#include "base/check.h"

namespace weft::serve {

TaskQueue::Own& TaskQueue::OwnOf(const std::string& key) {
    Own& own = tasks_[key];
    if (own.empty()) turns_.push_back(key);
    return own;
}

void TaskQueue::Push(const std::string& key, Task task) {
    OwnOf(key).first.push_back(std::move(task));
    ++waiting_;
}

void TaskQueue::PushLater(const std::string& key, Task task) {
    OwnOf(key).later.push_back(std::move(task));
}

TaskQueue::Task TaskQueue::Pop() {
    WEFT_CHECK(!empty());
    const auto entry = tasks_.find(turns_.front());
    Own& own = entry->second;
    if (own.later.empty()) --waiting_;
    std::deque<Task>& from = own.later.empty() ? own.first : own.later;
    Task task = std::move(from.front());
    from.pop_front();
    if (own.empty()) {
        tasks_.erase(entry);
    } else {
        turns_.push_back(std::move(turns_.front()));
    }
    turns_.pop_front();
    return task;
}

size_t TaskQueue::waiting_of(const std::string& key) const {
    const auto entry = tasks_.find(key);
    return entry == tasks_.end() ? 0 : entry->second.first.size();
}

}  // namespace weft::serve
