#include "serve/api/task_queue.h"

#include <utility>

#include "base/check.h"

namespace weft::serve {

void TaskQueue::Push(const std::string& key, Task task) {
    std::deque<Task>& own = tasks_[key];
    if (own.empty()) turns_.push_back(key);
    own.push_back(std::move(task));
    ++size_;
}

TaskQueue::Task TaskQueue::Pop() {
    WEFT_CHECK(!empty());
    const auto own = tasks_.find(turns_.front());
    Task task = std::move(own->second.front());
    own->second.pop_front();
    --size_;
    if (own->second.empty()) {
        tasks_.erase(own);
    } else {
        turns_.push_back(std::move(turns_.front()));
    }
    turns_.pop_front();
    return task;
}

size_t TaskQueue::size_of(const std::string& key) const {
    const auto own = tasks_.find(key);
    return own == tasks_.end() ? 0 : own->second.size();
}

}  // namespace weft::serve
