// What a rendering may use, and how it fails.
//
// A template is hostile input: it may loop, double a string, or nest without end. A Meter counts
// steps, bytes alive, bytes ever made and depth, and throws Failure at the first that is over.
// Failure never leaves chat: ChatTemplate catches it and returns its Error.
// Thread: one rendering, one Meter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace weft::chat {

struct RenderLimits {
    int64_t steps = 20'000'000;           // expressions and statements, work on long values
    int depth = 1000;                     // of evaluation, macros that call macros included
    size_t live_bytes = size_t{1} << 29;  // of all values at one time
    size_t made_bytes = size_t{1} << 33;  // of all values ever made
    size_t output_bytes = size_t{1} << 28;
};

namespace jinja {

struct Failure {
    Error error;
};

class Meter {
  public:
    explicit Meter(const RenderLimits& limits) : limits_(limits) {}
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;

    // The template's line that is being evaluated, for messages.
    int line = 0;

    void Step(size_t steps = 1) {
        steps_ += static_cast<int64_t>(steps);
        if (steps_ > limits_.steps) OverSteps();
    }
    // Work that grows with the size of what is read, such as a search.
    void Read(size_t bytes) { Step(bytes / 64 + 1); }
    void Take(size_t bytes) {
        live_ += bytes;
        made_ += bytes;
        if (live_ > limits_.live_bytes || made_ > limits_.made_bytes) OverBytes(bytes);
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
    [[noreturn]] void Throw(ErrorCode code, const std::string& message) const;
    [[noreturn]] void OverSteps() const;
    [[noreturn]] void OverBytes(size_t bytes);
    [[noreturn]] void OverOutput() const;
    [[noreturn]] void OverDepth();

    RenderLimits limits_;
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

  private:
    Meter* meter_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace jinja
}  // namespace weft::chat
