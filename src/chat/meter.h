// What a rendering may use, and how it fails.
//
// A template is hostile input: it may loop, double a string, or nest without end. A Meter counts
// steps, processor time, bytes alive, bytes ever made and depth, and throws Failure at the first
// that is over. With the limits below a rendering takes at most 2 s of one core and 128 MiB: copies
// that filters make for a while are not metered, and are no larger than what is.
// Failure never leaves chat: ChatTemplate catches it and returns its Error.
// Thread: one rendering, one Meter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace weft::chat {

struct RenderLimits {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static constexpr int64_t kSlowness = 10;  // of a build with sanitizers
#else
    static constexpr int64_t kSlowness = 1;
#endif
    int64_t steps = 20'000'000;             // expressions and statements, work on long values
    int64_t cpu_ms = 1500 * kSlowness;      // of the rendering thread
    int depth = 1000;                       // of evaluation, macros that call macros included
    size_t live_bytes = size_t{48} << 20;   // of all values at one time
    size_t made_bytes = size_t{1} << 33;    // of all values ever made
    size_t output_bytes = size_t{32} << 20;
};

// Of a made-up conversation of a few words, of which a model's template renders some 50 while the
// model loads: a hundred times what templates need.
inline constexpr RenderLimits kProbeLimits{.steps = 500'000,
                                           .cpu_ms = 60 * RenderLimits::kSlowness};

namespace jinja {

struct Failure {
    Error error;
};

class Meter {
  public:
    explicit Meter(const RenderLimits& limits);
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;

    // The template's line that is being evaluated, for messages.
    int line = 0;

    void Step(size_t steps = 1) {
        steps_ += static_cast<int64_t>(steps);
        if (steps_ > limits_.steps) OverSteps();
        Spend(steps);
    }
    // Work that grows with the size of what is read, such as a search.
    void Read(size_t bytes) { Step(bytes / 64 + 1); }
    void Take(size_t bytes) {
        live_ += bytes;
        made_ += bytes;
        if (live_ > limits_.live_bytes || made_ > limits_.made_bytes) OverBytes(bytes);
        Spend(bytes / 1024);
    }
    void Give(size_t bytes) { live_ -= bytes; }
    void CheckOutput(size_t bytes) {
        if (bytes > limits_.output_bytes) OverOutput();
    }
    void Enter() {
        if (++depth_ > limits_.depth) OverDepth();
    }
    void Leave() { --depth_; }

    // "chat template, line 3: " and the message.
    template <typename... Args>
    [[noreturn]] void Fail(ErrorCode code, fmt::format_string<Args...> format,
                           Args&&... args) const {
        Throw(code, fmt::format(format, std::forward<Args>(args)...));
    }

  private:
    // Looks at the clock after so much work: about a millisecond, however slow a step is.
    static constexpr size_t kLookSteps = 1000;
    void Spend(size_t steps) {
        if (steps < until_look_) {
            until_look_ -= steps;
        } else {
            Look();
        }
    }
    void Look();
    [[noreturn]] void Throw(ErrorCode code, const std::string& message) const;
    [[noreturn]] void OverSteps() const;
    [[noreturn]] void OverBytes(size_t bytes);
    [[noreturn]] void OverOutput() const;
    [[noreturn]] void OverDepth();

    RenderLimits limits_;
    int64_t began_ns_ = 0;  // by the thread's own clock
    size_t until_look_ = kLookSteps;
    int64_t steps_ = 0;
    size_t live_ = 0, made_ = 0;
    int depth_ = 0;
};

// One level of evaluation, while it lives.
class Level {
  public:
    explicit Level(Meter& meter) : meter_(meter) { meter_.Enter(); }
    ~Level() { meter_.Leave(); }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

  private:
    Meter& meter_;
};

// Bytes that are given back when their owner goes. Constants of a template have no meter.
class Charge {
  public:
    Charge() = default;
    explicit Charge(Meter* meter) : meter_(meter) {}
    Charge(Charge&& other) noexcept
        : meter_(std::exchange(other.meter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Charge& operator=(Charge&&) = delete;
    ~Charge() {
        if (meter_ != nullptr) meter_->Give(bytes_);
    }
    void Add(size_t bytes) {
        if (meter_ == nullptr) return;
        bytes_ += bytes;
        meter_->Take(bytes);
    }
    // Some of what was added.
    void Drop(size_t bytes) {
        if (meter_ == nullptr) return;
        bytes_ -= bytes;
        meter_->Give(bytes);
    }
    // Makes room for `more` elements in what was charged for its capacity: as vectors do it, but
    // with the old and the new memory charged while both are there.
    template <typename Container>
    void Grow(Container& container, size_t more) {
        const size_t had = container.capacity(), needed = container.size() + more;
        if (needed <= had) return;
        const size_t wanted = std::max({needed, 2 * had, size_t{4}});
        constexpr size_t kElementBytes = sizeof(typename Container::value_type);
        Add(wanted * kElementBytes);
        container.reserve(wanted);
        Drop(std::min(bytes_, had * kElementBytes));
    }

  private:
    Meter* meter_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace jinja
}  // namespace weft::chat
