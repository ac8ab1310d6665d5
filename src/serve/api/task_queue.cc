#include "serve/api/task_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::serve {

TaskQueue::Own& TaskQueue::OwnOf(const std::string& key) {
    Own& own = tasks_[key];
    if (own.empty()) turns_.push_back(key);
    return own;
}

uint64_t TaskQueue::Push(const std::string& key, Task task) {
    OwnOf(key).first.emplace_back(++number_, std::move(task));
    ++waiting_;
    return number_;
}

std::optional<TaskQueue::Task> TaskQueue::Remove(const std::string& key, uint64_t number) {
    const auto entry = tasks_.find(key);
    if (entry == tasks_.end()) return {};
    auto& tasks = entry->second.first;
    const auto at =
        std::ranges::lower_bound(tasks, number, {}, [](const auto& t) { return t.first; });
    if (at == tasks.end() || at->first != number) return {};
    std::optional<Task> task = std::move(at->second);
    tasks.erase(at);
    --waiting_;
    if (entry->second.empty()) {
        std::erase(turns_, key);
        tasks_.erase(entry);
    }
    return task;
}

void TaskQueue::PushLater(const std::string& key, Task task) {
    OwnOf(key).later.push_back(std::move(task));
}

TaskQueue::Task TaskQueue::Pop() {
    WEFT_CHECK(!empty());
    const auto entry = tasks_.find(turns_.front());
    Own& own = entry->second;
    Task task;
    if (own.later.empty()) {
        task = std::move(own.first.front().second);
        own.first.pop_front();
        --waiting_;
    } else {
        task = std::move(own.later.front());
        own.later.pop_front();
    }
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
