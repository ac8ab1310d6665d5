#include "serve/pool/schedule.h"

#include <algorithm>
#include <utility>

namespace weft::serve {
namespace {

constexpr int64_t kFirstPauseMs = 1000, kLongestPauseMs = 15'000;

}  // namespace

const MemoryBytes::value_type* FindLack(const MemoryBytes& needs, const MemoryBytes& free) {
    for (const auto& need : needs) {
        const auto found = free.find(need.first);
        if (found != free.end() && need.second > found->second) return &need;
    }
    return nullptr;
}

PoolSchedule::PoolSchedule(const PoolLimits& limits, std::vector<MemoryBytes> needs)
    : limits_(limits) {
    for (MemoryBytes& each : needs) {
        models_.push_back({.needs = std::move(each), .keep_ms = limits.keep_ms});
    }
}

size_t PoolSchedule::waiting() const {
    size_t count = 0;
    for (const Model& model : models_) count += model.waiting.size();
    return count;
}

std::optional<int64_t> PoolSchedule::expires_ms(size_t model) const {
    const Model& its = models_[model];
    if (its.state != State::kLoaded || its.keep_ms < 0 || its.running > 0) return {};
    return its.used_ms + its.keep_ms;
}

std::optional<size_t> PoolSchedule::blocker() const {
    const Model* first = nullptr;
    for (const Model& model : models_) {
        const bool occupies = model.state != State::kUnloaded;
        if (!occupies || (model.state == State::kLoaded && model.running == 0)) continue;
        if (first == nullptr || model.state != State::kLoaded ||
            (first->state == State::kLoaded && model.drains)) {
            first = &model;
        }
    }
    return first == nullptr ? std::nullopt : std::optional(IndexOf(*first));
}

std::optional<size_t> PoolSchedule::last_used() const {
    const Model* last = nullptr;
    for (const Model& model : models_) {
        if (model.state != State::kLoaded) continue;
        if (last == nullptr || model.used_ms > last->used_ms) last = &model;
    }
    return last == nullptr ? std::nullopt : std::optional(IndexOf(*last));
}

void PoolSchedule::Arrive(uint64_t request, size_t model, int64_t now_ms) {
    models_[model].waiting.push_back({request, now_ms});
    requests_[request] = model;
}

void PoolSchedule::Leave(uint64_t request, std::optional<int64_t> keep_ms, int64_t now_ms) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    Model& model = models_[found->second];
    requests_.erase(found);
    if (std::erase_if(model.waiting, [&](const Waiting& w) { return w.request == request; }) > 0) {
        return;
    }
    --model.running;
    model.used_ms = now_ms;
    model.keep_ms = keep_ms.value_or(limits_.keep_ms);
}

void PoolSchedule::Loaded(size_t model, int64_t now_ms) {
    Model& its = models_[model];
    its.state = State::kLoaded;
    its.loaded_ms = its.used_ms = now_ms;
    its.keep_ms = limits_.keep_ms;
    its.failures = 0;
}

std::vector<uint64_t> PoolSchedule::Failed(size_t model, int64_t now_ms) {
    Model& its = models_[model];
    its.state = State::kUnloaded;
    its.retry_ms = now_ms + std::min(kFirstPauseMs << std::min(its.failures, 10), kLongestPauseMs);
    ++its.failures;
    std::vector<uint64_t> requests;
    for (const Waiting& waiting : its.waiting) {
        requests.push_back(waiting.request);
        requests_.erase(waiting.request);
    }
    its.waiting.clear();
    return requests;
}

void PoolSchedule::Gone(size_t model) {
    models_[model].state = State::kUnloaded;
    models_[model].drains = false;
}

std::vector<PoolSchedule::Action> PoolSchedule::Next(int64_t now_ms, const FreeBytes& free_bytes) {
    std::vector<Action> actions;
    EndDrains(now_ms, free_bytes);
    RunWaiting(actions, now_ms);
    ExpireWaiting(actions, now_ms);
    UnloadOld(actions, now_ms);
    LoadNext(actions, now_ms, free_bytes);
    return actions;
}

// A model drains only as long as another model waits for its memory.
void PoolSchedule::EndDrains(int64_t now_ms, const FreeBytes& free_bytes) {
    if (std::ranges::none_of(models_, &Model::drains)) return;
    const Model* wanted = NextToLoad(now_ms);
    const bool idle = std::ranges::any_of(
        models_, [](const Model& m) { return m.state == State::kLoaded && m.idle(); });
    if (wanted != nullptr && !idle && !HasSpace(*wanted, free_bytes)) return;
    for (Model& model : models_) model.drains = false;
}

void PoolSchedule::RunWaiting(std::vector<Action>& actions, int64_t now_ms) {
    for (Model& model : models_) {
        if (model.state != State::kLoaded || model.drains) continue;
        for (const Waiting& waiting : model.waiting) {
            actions.push_back({Step::kRun, IndexOf(model), waiting.request});
            ++model.running;
            model.used_ms = now_ms;
        }
        model.waiting.clear();
    }
}

void PoolSchedule::ExpireWaiting(std::vector<Action>& actions, int64_t now_ms) {
    for (Model& model : models_) {
        if (model.state == State::kLoading) continue;  // the load has its own limit
        while (!model.waiting.empty() &&
               now_ms - model.waiting.front().since_ms >= limits_.wait_ms) {
            const uint64_t request = model.waiting.front().request;
            actions.push_back({Step::kExpire, IndexOf(model), request});
            model.waiting.pop_front();
            requests_.erase(request);
        }
    }
}

void PoolSchedule::Unload(Model& model, std::vector<Action>& actions) {
    model.state = State::kUnloading;
    actions.push_back({Step::kUnload, IndexOf(model)});
}

void PoolSchedule::UnloadOld(std::vector<Action>& actions, int64_t now_ms) {
    for (Model& model : models_) {
        if (model.state != State::kLoaded || model.running > 0) continue;
        const auto expires = expires_ms(IndexOf(model));
        if (model.drains || (expires && now_ms >= *expires)) Unload(model, actions);
    }
}

bool PoolSchedule::Any(State state) const {
    return std::ranges::any_of(models_, [&](const Model& m) { return m.state == state; });
}

// The unloaded model whose oldest request arrived first; null: none may be loaded now.
PoolSchedule::Model* PoolSchedule::NextToLoad(int64_t now_ms) {
    Model* wanted = nullptr;
    for (Model& model : models_) {
        // A killed process may still have requests whose ends are not processed yet.
        if (model.state != State::kUnloaded || model.waiting.empty() || now_ms < model.retry_ms) {
            continue;
        }
        if (wanted == nullptr ||
            model.waiting.front().since_ms < wanted->waiting.front().since_ms) {
            wanted = &model;
        }
    }
    return wanted;
}

bool PoolSchedule::HasSpace(const Model& wanted, const FreeBytes& free_bytes) const {
    size_t count = 0;
    MemoryBytes all = wanted.needs;
    for (const Model& model : models_) {
        if (model.state == State::kUnloaded) continue;
        ++count;
        for (const auto& [memory, bytes] : model.needs) all[memory] += bytes;
    }
    // (The call of free_bytes comes last, because it may query a GPU's driver.)
    return count < limits_.max_loaded && FindLack(all, limits_.memory) == nullptr &&
           FindLack(wanted.needs, free_bytes()) == nullptr;
}

void PoolSchedule::LoadNext(std::vector<Action>& actions, int64_t now_ms,
                            const FreeBytes& free_bytes) {
    // The memory of a model that loads or unloads changes, so free_bytes is meaningless meanwhile.
    if (Any(State::kLoading) || Any(State::kUnloading)) return;
    Model* wanted = NextToLoad(now_ms);
    if (wanted == nullptr) return;
    if (!HasSpace(*wanted, free_bytes)) return MakeSpace(actions, now_ms, *wanted);
    wanted->state = State::kLoading;
    actions.push_back({Step::kLoad, IndexOf(*wanted)});
}

void PoolSchedule::MakeSpace(std::vector<Action>& actions, int64_t now_ms, Model& wanted) {
    Model *idle = nullptr, *busy = nullptr;
    bool drains = false;
    for (Model& model : models_) {
        if (model.state != State::kLoaded) continue;
        drains = drains || model.drains;
        if (model.idle()) {
            if (idle == nullptr || model.used_ms < idle->used_ms) idle = &model;
        } else if (busy == nullptr || model.loaded_ms < busy->loaded_ms) {
            busy = &model;
        }
    }
    if (idle != nullptr) return Unload(*idle, actions);
    if (busy == nullptr) {
        for (const Waiting& waiting : wanted.waiting) {
            actions.push_back({Step::kRefuse, IndexOf(wanted), waiting.request});
            requests_.erase(waiting.request);
        }
        return wanted.waiting.clear();
    }
    const int64_t since_ms = std::max(wanted.waiting.front().since_ms, busy->loaded_ms);
    if (!drains && now_ms - since_ms >= limits_.fair_ms) busy->drains = true;
}

}  // namespace weft::serve
