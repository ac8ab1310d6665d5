// Resource limits of a rendering, and its failures.
//
// A template is hostile input: it may loop, double a string, or nest without end. A Meter counts
// steps, CPU time, live bytes, total allocated bytes and depth, and throws Failure when a limit is
// exceeded. With the default limits a rendering takes at most 2 s of one core and 128 MiB:
// temporary copies in filters are not metered, but are no larger than the metered values.
// No Failure leaves chat/: ChatTemplate catches a Failure and returns the Error in it.
// Thread: one Meter per rendering.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace weft::chat {

struct RenderLimits {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static constexpr int64_t kSlowness = 10;  // for builds with sanitizers
#else
    static constexpr int64_t kSlowness = 1;
#endif
    int64_t steps = 20'000'000;            // expressions, statements, and work on long values
    int64_t cpu_ms = 1500 * kSlowness;     // CPU time of the rendering thread
    int depth = 1000;                      // nesting of evaluation, including macro calls
    size_t live_bytes = size_t{48} << 20;  // all live values
    size_t made_bytes = size_t{1} << 33;   // all values ever allocated
    size_t output_bytes = size_t{32} << 20;
};

// Limits for probe conversations of a few words. A template renders about 50 of them while the
// model loads. The limits are a hundred times what templates need.
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

    // line of the template under evaluation, for messages
    int line = 0;

    void Step(size_t steps = 1) {
        steps_ += static_cast<int64_t>(steps);
        if (steps_ > limits_.steps) OverSteps();
        Spend(steps);
    }
    // Counts work proportional to the bytes read, such as a search.
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

    // Throws with "chat template, line 3: " before the message.
    template <typename... Args>
    [[noreturn]] void Fail(ErrorCode code, fmt::format_string<Args...> format,
                           Args&&... args) const {
        Throw(code, fmt::format(format, std::forward<Args>(args)...));
    }

  private:
    // Steps between two reads of the clock: at most about a millisecond, even if steps are slow.
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
    int64_t began_ns_ = 0;  // start, on the thread's CPU clock
    size_t until_look_ = kLookSteps;
    int64_t steps_ = 0;
    size_t live_ = 0, made_ = 0;
    int depth_ = 0;
};

// Counts one level of evaluation during its lifetime.
class Level {
  public:
    explicit Level(Meter& meter) : meter_(meter) { meter_.Enter(); }
    ~Level() { meter_.Leave(); }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

  private:
    Meter& meter_;
};

// Charges bytes to a Meter and releases them on destruction. A template's constants have no meter.
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
    // Releases part of the charge.
    void Drop(size_t bytes) {
        if (meter_ == nullptr) return;
        bytes_ -= bytes;
        meter_->Give(bytes);
    }
    // Reserves memory for `more` elements in a container whose capacity is charged here. Grows like
    // a vector and charges old and new memory while both exist.
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
