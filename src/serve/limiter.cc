#include "serve/limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/deadline.h"

namespace weft::serve {
namespace {

// Above this count, states of removed keys are dropped.
constexpr size_t kMostStates = 2 * KeyRing::kMostKeys;
// The time until a concurrency slot becomes free is unknown.
constexpr int64_t kRetryConcurrentMs = 1000;

}  // namespace

struct Limiter::State {
    std::shared_ptr<RateTable> table;
    std::string key;
    std::atomic<int64_t> running{0};
};

Limiter::Ticket::Ticket(Ticket&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      requests_(other.requests_),
      tokens_(other.tokens_),
      settled_(other.settled_) {}

Limiter::Ticket& Limiter::Ticket::operator=(Ticket&& other) noexcept {
    if (this == &other) return *this;
    Release();
    state_ = std::exchange(other.state_, nullptr);
    requests_ = other.requests_;
    tokens_ = other.tokens_;
    settled_ = other.settled_;
    return *this;
}

Limiter::Ticket::~Ticket() {
    Release();
}

void Limiter::Ticket::Release() {
    if (state_ == nullptr) return;
    --state_->running;
    if (settled_ || requests_ + tokens_ == 0) return;
    state_->table->With(state_->key, [&](Rates& rates, OpenCharges& open) {
        rates.requests.Give(static_cast<double>(requests_));
        rates.tokens.Give(static_cast<double>(tokens_));
        Close(open);
    });
}

void Limiter::Ticket::Settle(int64_t tokens) {
    if (state_ == nullptr) return;
    state_->table->With(state_->key, [&](Rates& rates, OpenCharges& open) {
        rates.tokens.Give(static_cast<double>(tokens_ - tokens));
        if (!settled_) Close(open);
    });
    tokens_ = tokens;
    settled_ = true;
}

void Limiter::Ticket::Close(OpenCharges& open) const {
    open.requests -= static_cast<double>(requests_);
    open.tokens -= static_cast<double>(tokens_);
}

std::shared_ptr<Limiter::State> Limiter::StateOf(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(name);
    if (found != states_.end()) return found->second;
    if (states_.size() >= kMostStates) {
        std::erase_if(states_, [](const auto& entry) { return entry.second.use_count() == 1; });
    }
    auto state = std::make_shared<State>();
    state->table = table_;
    state->key = name;
    return states_.emplace(name, std::move(state)).first->second;
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
    return Admit(key, 1, std::max<int64_t>(0, tokens));
}

Limiter::Admission Limiter::Enter(const ApiKey& key) {
    return Admit(key, 0, 0);
}

Limiter::Admission Limiter::Admit(const ApiKey& key, int64_t requests, int64_t tokens) {
    const std::shared_ptr<State> state = StateOf(key.name);
    const KeyLimits& limits = key.limits;
    const int64_t now_ns = NowNs();
    Admission admission;
    const int64_t running = state->running++;
    if (limits.concurrent > 0 && running >= limits.concurrent) {
        Refuse(admission, kRetryConcurrentMs, "concurrency_limit_exceeded",
               fmt::format("the key '{}' has {} requests running; the limit is {}", key.name,
                           running, limits.concurrent));
    }
    table_->With(key.name, [&](Rates& rates, OpenCharges& open) {
        rates.requests.Fill(limits.requests_per_minute, now_ns);
        rates.tokens.Fill(limits.tokens_per_minute, now_ns);
        Refuse(admission, rates.requests.WaitMs(1), "rate_limit_exceeded",
               fmt::format("the key '{}' may make {} requests per minute", key.name,
                           limits.requests_per_minute));
        RefuseForTokens(admission, key, rates.tokens, tokens);
        if (!admission.refused()) {
            if (limits.requests_per_minute > 0) {
                rates.requests.level -= static_cast<double>(requests);
            }
            if (limits.tokens_per_minute > 0) rates.tokens.level -= static_cast<double>(tokens);
            open.requests += static_cast<double>(requests);
            open.tokens += static_cast<double>(tokens);
        }
        AddHeaders(admission, rates.requests, rates.tokens);
    });
    if (admission.refused()) {
        --state->running;
    } else {
        admission.ticket = Ticket(state, requests, tokens);
    }
    return admission;
}

Limiter::Admission Limiter::Charge(const ApiKey& key, Ticket& ticket, int64_t tokens) {
    const int64_t now_ns = NowNs();
    tokens = std::max<int64_t>(0, tokens);
    Admission admission;
    table_->With(key.name, [&](Rates& rates, OpenCharges& open) {
        rates.requests.Fill(key.limits.requests_per_minute, now_ns);
        rates.tokens.Fill(key.limits.tokens_per_minute, now_ns);
        RefuseForTokens(admission, key, rates.tokens, tokens);
        if (!admission.refused()) {
            if (key.limits.tokens_per_minute > 0) {
                rates.tokens.level -= static_cast<double>(tokens);
            }
            open.tokens += static_cast<double>(tokens - ticket.tokens_);
            ticket.tokens_ = tokens;
        }
        AddHeaders(admission, rates.requests, rates.tokens);
    });
    return admission;
}

int64_t Limiter::running(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(name);
    return found == states_.end() ? 0 : found->second->running.load();
}

std::string DurationText(int64_t ms) {
    if (ms < 1000) return fmt::format("{}ms", ms);
    const int64_t s = (ms + 999) / 1000;
    if (s < 60) return fmt::format("{}s", s);
    if (s < 3600) return fmt::format("{}m{}s", s / 60, s % 60);
    return fmt::format("{}h{}m{}s", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace weft::serve
