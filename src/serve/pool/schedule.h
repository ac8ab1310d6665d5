// Decides which models of a server are loaded, and when each request may run. It does no I/O and
// has no clock: the caller passes the time and the free memory, and carries out the actions.
//
// A model loads when a request needs it; one model loads at a time. If the limits do not permit
// another model, the idle model that was used least recently is unloaded. If all loaded models are
// busy, the request waits. After fair_ms of waiting, the busy model that was loaded first drains:
// its new requests wait, its running requests end, and it is unloaded. It stops draining if no
// request waits for its memory any more. A model is never unloaded during a request. Models load in
// the order in which their oldest requests arrived.
//
// Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::serve {

// Bytes by memory: "" is the host's own, others have a device's name.
using MemoryBytes = std::map<std::string, uint64_t>;

struct PoolLimits {
    static constexpr int64_t kForever = -1;

    size_t max_loaded = SIZE_MAX;
    MemoryBytes memory{};        // for all loaded models together; a memory without entry: no limit
    int64_t keep_ms = kForever;  // an idle model is unloaded after this time
    int64_t wait_ms = 600'000;   // longest wait of a request until its model loads
    // A request waits this long before a busy model drains for it. A model also serves at least
    // this long after it was loaded.
    int64_t fair_ms = 10'000;
};

// The first memory that has less than `needs`; null: all fit. free: a memory without entry has no
// limit.
const MemoryBytes::value_type* FindLack(const MemoryBytes& needs, const MemoryBytes& free);

class PoolSchedule {
  public:
    enum class State { kUnloaded, kLoading, kLoaded, kUnloading };
    enum class Step {
        kLoad,    // load `model`; the caller later calls Loaded or Failed
        kUnload,  // unload `model`; the caller later calls Gone
        kRun,     // run `request`; the caller later calls Leave
        kExpire,  // refuse `request`: it waited for wait_ms
        kRefuse,  // refuse `request`: the machine lacks the memory, and no model can be unloaded
    };
    struct Action {
        Step step;
        size_t model = 0;
        uint64_t request = 0;
        bool operator==(const Action&) const = default;
    };

    // needs: bytes that each model needs while it is loaded.
    PoolSchedule(const PoolLimits& limits, std::vector<MemoryBytes> needs);

    void Arrive(uint64_t request, size_t model, int64_t now_ms);
    // The request has ended, or its client disconnected. keep_ms: replaces PoolLimits::keep_ms
    // until the model's next request ends.
    void Leave(uint64_t request, std::optional<int64_t> keep_ms, int64_t now_ms);
    void Loaded(size_t model, int64_t now_ms);
    // A load failed. Returns the requests that waited for it; the caller refuses them. The next
    // load begins after a pause that doubles with each failure.
    std::vector<uint64_t> Failed(size_t model, int64_t now_ms);
    // The model's process has ended. The model's running requests stay counted until they leave.
    void Gone(size_t model);
    // The actions that are due. The schedule counts them as begun. free_bytes: returns the memories
    // that the machine has now; called if a load is due.
    using FreeBytes = std::function<MemoryBytes()>;
    std::vector<Action> Next(int64_t now_ms, const FreeBytes& free_bytes);

    State state(size_t model) const { return models_[model].state; }
    size_t running(size_t model) const { return models_[model].running; }
    size_t waiting(size_t model) const { return models_[model].waiting.size(); }
    size_t waiting() const;
    // When the idle model is unloaded; nullopt: not by its age.
    std::optional<int64_t> expires_ms(size_t model) const;
    // The busy model for whose end the next load waits; nullopt: none.
    std::optional<size_t> blocker() const;
    // The loaded model that was used last; nullopt: none is loaded.
    std::optional<size_t> last_used() const;

  private:
    struct Waiting {
        uint64_t request = 0;
        int64_t since_ms = 0;
    };
    struct Model {
        MemoryBytes needs{};
        State state = State::kUnloaded;
        bool drains = false;
        size_t running = 0;
        std::deque<Waiting> waiting{};
        int64_t loaded_ms = 0, used_ms = 0, retry_ms = INT64_MIN;
        int64_t keep_ms = PoolLimits::kForever;
        int failures = 0;
        bool idle() const { return running == 0 && waiting.empty(); }
    };

    void EndDrains(int64_t now_ms, const FreeBytes& free_bytes);
    void RunWaiting(std::vector<Action>& actions, int64_t now_ms);
    void ExpireWaiting(std::vector<Action>& actions, int64_t now_ms);
    void UnloadOld(std::vector<Action>& actions, int64_t now_ms);
    void LoadNext(std::vector<Action>& actions, int64_t now_ms, const FreeBytes& free_bytes);
    void MakeSpace(std::vector<Action>& actions, int64_t now_ms, Model& wanted);
    void Unload(Model& model, std::vector<Action>& actions);
    bool HasSpace(const Model& wanted, const FreeBytes& free_bytes) const;
    bool Any(State state) const;
    Model* NextToLoad(int64_t now_ms);
    size_t IndexOf(const Model& model) const {
        return static_cast<size_t>(&model - models_.data());
    }

    const PoolLimits limits_;
    std::vector<Model> models_;
    std::map<uint64_t, size_t> requests_;  // model of each request
};

}  // namespace weft::serve
