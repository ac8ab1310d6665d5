#include "serve/limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/deadline.h"

namespace weft::serve {
namespace {

constexpr double kMinuteMs = 60'000;
// Above this count, states of removed keys are dropped.
constexpr size_t kMostStates = 2 * KeyRing::kMostKeys;
// The time until a concurrency slot becomes free is unknown.
constexpr int64_t kRetryConcurrentMs = 1000;

struct Bucket {
    double level = 0;   // negative: a request used more than was left
    int64_t limit = 0;  // per minute, and bucket size; 0: no limit
    int64_t at_ns = 0;

    void Fill(int64_t new_limit, int64_t now_ns) {
        const double ms = static_cast<double>(std::max<int64_t>(0, now_ns - at_ns)) * 1e-6;
        level = limit > 0 ? level + ms * static_cast<double>(limit) / kMinuteMs
                          // a new limit begins with a full bucket
                          : static_cast<double>(new_limit);
        limit = new_limit;
        at_ns = now_ns;
        level = std::min(level, static_cast<double>(limit));
    }
    // Returns part of an earlier charge; a negative amount charges more.
    void Give(double amount) {
        level = std::min(level + amount, static_cast<double>(limit));
    }
    // Time until the bucket holds `needed`.
    int64_t WaitMs(double needed) const {
        if (limit <= 0 || level >= needed) return 0;
        return static_cast<int64_t>(
            std::ceil((needed - level) * kMinuteMs / static_cast<double>(limit)));
    }
    int64_t remaining() const { return static_cast<int64_t>(std::max(0.0, std::floor(level))); }
    void AddHeaders(const char* what, Headers& headers) const {
        if (limit <= 0) return;
        const std::string prefix = "x-ratelimit-";
        headers.emplace_back(prefix + "limit-" + what, std::to_string(limit));
        headers.emplace_back(prefix + "remaining-" + what, std::to_string(remaining()));
        headers.emplace_back(prefix + "reset-" + what,
                             DurationText(WaitMs(static_cast<double>(limit))));
    }
};

}  // namespace

struct Limiter::State {
    std::mutex mutex;
    Bucket requests, tokens;
    int64_t running = 0;
};

Limiter::Ticket::Ticket(Ticket&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      tokens_(other.tokens_),
      settled_(other.settled_) {}

Limiter::Ticket& Limiter::Ticket::operator=(Ticket&& other) noexcept {
    if (this == &other) return *this;
    Release();
    state_ = std::exchange(other.state_, nullptr);
    tokens_ = other.tokens_;
    settled_ = other.settled_;
    return *this;
}

Limiter::Ticket::~Ticket() {
    Release();
}

void Limiter::Ticket::Release() {
    if (state_ == nullptr) return;
    const std::lock_guard lock(state_->mutex);
    --state_->running;
    if (settled_) return;
    state_->requests.Give(1);
    state_->tokens.Give(static_cast<double>(tokens_));
}

void Limiter::Ticket::Settle(int64_t tokens) {
    if (state_ == nullptr) return;
    const std::lock_guard lock(state_->mutex);
    state_->tokens.Give(static_cast<double>(tokens_ - tokens));
    tokens_ = tokens;
    settled_ = true;
}

std::shared_ptr<Limiter::State> Limiter::StateOf(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(name);
    if (found != states_.end()) return found->second;
    if (states_.size() >= kMostStates) {
        std::erase_if(states_, [](const auto& entry) { return entry.second.use_count() == 1; });
    }
    return states_.emplace(name, std::make_shared<State>()).first->second;
}

namespace {

void Refuse(Limiter::Admission& admission, int64_t wait_ms, const char* code, std::string message) {
    if (wait_ms <= admission.retry_after_ms) return;  // the longest wait is reported
    admission.retry_after_ms = wait_ms;
    admission.code = code;
    admission.message = std::move(message) + "; try again in " + DurationText(wait_ms);
}

void RefuseForTokens(Limiter::Admission& admission, const ApiKey& key, const Bucket& bucket,
                     int64_t tokens) {
    const int64_t wanted = std::min(tokens, key.limits.tokens_per_minute);
    Refuse(
        admission, bucket.WaitMs(static_cast<double>(wanted)), "rate_limit_exceeded",
        fmt::format(
            "the key '{}' may use {} tokens per minute; {} are left, and this request may take {}",
            key.name, key.limits.tokens_per_minute, bucket.remaining(), tokens));
}

void AddHeaders(Limiter::Admission& admission, const Bucket& requests, const Bucket& tokens) {
    if (admission.refused()) {
        admission.headers.emplace_back("Retry-After",
                                       std::to_string((admission.retry_after_ms + 999) / 1000));
    }
    requests.AddHeaders("requests", admission.headers);
    tokens.AddHeaders("tokens", admission.headers);
}

}  // namespace

Limiter::Admission Limiter::Admit(const ApiKey& key, int64_t tokens) {
    const std::shared_ptr<State> state = StateOf(key.name);
    const std::lock_guard lock(state->mutex);
    const KeyLimits& limits = key.limits;
    const int64_t now_ns = NowNs();
    tokens = std::max<int64_t>(0, tokens);
    state->requests.Fill(limits.requests_per_minute, now_ns);
    state->tokens.Fill(limits.tokens_per_minute, now_ns);
    Admission admission;
    if (limits.concurrent > 0 && state->running >= limits.concurrent) {
        Refuse(admission, kRetryConcurrentMs, "concurrency_limit_exceeded",
               fmt::format("the key '{}' has {} requests running; the limit is {}", key.name,
                           state->running, limits.concurrent));
    }
    Refuse(admission, state->requests.WaitMs(1), "rate_limit_exceeded",
           fmt::format("the key '{}' may make {} requests per minute", key.name,
                       limits.requests_per_minute));
    RefuseForTokens(admission, key, state->tokens, tokens);
    if (!admission.refused()) {
        if (limits.requests_per_minute > 0) state->requests.level -= 1;
        if (limits.tokens_per_minute > 0) state->tokens.level -= static_cast<double>(tokens);
        ++state->running;
        admission.ticket = Ticket(state, tokens);
    }
    AddHeaders(admission, state->requests, state->tokens);
    return admission;
}

Limiter::Admission Limiter::Charge(const ApiKey& key, Ticket& ticket, int64_t tokens) {
    State& state = *ticket.state_;
    const std::lock_guard lock(state.mutex);
    const int64_t now_ns = NowNs();
    tokens = std::max<int64_t>(0, tokens);
    state.requests.Fill(key.limits.requests_per_minute, now_ns);
    state.tokens.Fill(key.limits.tokens_per_minute, now_ns);
    Admission admission;
    RefuseForTokens(admission, key, state.tokens, tokens);
    if (!admission.refused()) {
        if (key.limits.tokens_per_minute > 0) state.tokens.level -= static_cast<double>(tokens);
        ticket.tokens_ = tokens;
    }
    AddHeaders(admission, state.requests, state.tokens);
    return admission;
}

int64_t Limiter::running(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(name);
    if (found == states_.end()) return 0;
    const std::lock_guard state_lock(found->second->mutex);
    return found->second->running;
}

std::string DurationText(int64_t ms) {
    if (ms < 1000) return fmt::format("{}ms", ms);
    const int64_t s = (ms + 999) / 1000;
    if (s < 60) return fmt::format("{}s", s);
    if (s < 3600) return fmt::format("{}m{}s", s / 60, s % 60);
    return fmt::format("{}h{}m{}s", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace weft::serve
