#include "serve/api/task_queue.h"

#include <algorithm>

#include "base/check.h"

namespace weft::serve {

TaskQueue::Own& TaskQueue::OwnOf(const std::string& key) {
    Own& own = tasks_[key];
    if (own.empty() && !own.running) turns_.push_back(key);
    return own;
}

void TaskQueue::EraseIfIdle(Entry entry) {
    if (entry->second.empty() && !entry->second.running) tasks_.erase(entry);
}

uint64_t TaskQueue::Push(const std::string& key, Task task) {
    const uint64_t place = done_bytes_ + task.bytes;
    OwnOf(key).first.emplace(std::pair(place, ++number_), std::move(task));
    ++waiting_;
    return number_;
}

void TaskQueue::PushLater(const std::string& key, Task task) {
    OwnOf(key).later.push_back(std::move(task));
}

std::optional<TaskQueue::Task> TaskQueue::Remove(const std::string& key, uint64_t number) {
    const auto entry = tasks_.find(key);
    if (entry == tasks_.end()) return {};
    Own& own = entry->second;
    const auto at = std::ranges::find_if(
        own.first, [&](const auto& task) { return task.first.second == number; });
    if (at == own.first.end()) return {};
    std::optional<Task> task = std::move(at->second);
    own.first.erase(at);
    --waiting_;
    if (own.empty() && !own.running) std::erase(turns_, key);
    EraseIfIdle(entry);
    return task;
}

std::pair<std::string, TaskQueue::Task> TaskQueue::Pop() {
    WEFT_CHECK(ready());
    std::pair<std::string, Task> popped;
    popped.first = std::move(turns_.front());
    turns_.pop_front();
    Own& own = tasks_.at(popped.first);
    if (own.later.empty()) {
        popped.second = std::move(own.first.begin()->second);
        own.first.erase(own.first.begin());
        --waiting_;
    } else {
        popped.second = std::move(own.later.front());
        own.later.pop_front();
    }
    own.running = true;
    done_bytes_ += popped.second.bytes;
    return popped;
}

void TaskQueue::Done(const std::string& key) {
    const auto entry = tasks_.find(key);
    WEFT_CHECK(entry != tasks_.end() && entry->second.running);
    entry->second.running = false;
    if (!entry->second.empty()) turns_.push_back(key);
    EraseIfIdle(entry);
}

size_t TaskQueue::waiting_of(const std::string& key) const {
    const auto entry = tasks_.find(key);
    return entry == tasks_.end() ? 0 : entry->second.first.size();
}

}  // namespace weft::serve
