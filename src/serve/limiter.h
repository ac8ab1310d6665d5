// Rate limits per key: token buckets for requests and tokens per minute, and a limit on concurrent
// requests of this process. A bucket holds one minute's amount and fills steadily (rate_table.h).
// Only requests that ran are charged; a charge is open until the request has ended.
// Thread: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "serve/keys.h"
#include "serve/rate_table.h"

namespace weft::serve {

class Limiter {
  private:
    struct State;

  public:
    // An admitted request; its destruction frees the concurrency slot. Without Settle() the key
    // gets the whole charge back.
    class Ticket {
      public:
        Ticket(Ticket&& other) noexcept;
        Ticket& operator=(Ticket&& other) noexcept;
        ~Ticket();
        // The request ran and used `tokens` tokens; corrects the charge made at admission.
        void Settle(int64_t tokens);

      private:
        friend class Limiter;
        Ticket(std::shared_ptr<State> state, int64_t requests, int64_t tokens)
            : state_(std::move(state)), requests_(requests), tokens_(tokens) {}
        void Release();
        void Close(OpenCharges& open) const;
        std::shared_ptr<State> state_;
        int64_t requests_ = 0, tokens_ = 0;  // charged
        bool settled_ = false;
    };

    struct Admission {
        std::optional<Ticket> ticket;  // nullopt: refused with 429; see the members below
        std::string message, code;
        // x-ratelimit-limit|remaining|reset-requests|tokens (OpenAI), and Retry-After if refused.
        // Every answer has them.
        Headers headers;
        int64_t retry_after_ms = 0;

        bool refused() const { return retry_after_ms > 0; }
    };

    // table: null for a table of its own.
    explicit Limiter(std::shared_ptr<RateTable> table = nullptr)
        : table_(table != nullptr ? std::move(table) : std::make_shared<RateTable>()) {}

    // tokens: upper bound of the request's tokens; 0: unknown, Charge follows. A request for more
    // than one minute's amount waits until the bucket is full; the bucket is then in debt, and
    // later requests wait until the debt is paid.
    Admission Admit(const ApiKey& key, int64_t tokens);
    // Charges a request admitted with 0 tokens, once their number is known. The returned Admission
    // has no ticket. If refused, the caller must drop the request's ticket without Settle().
    Admission Charge(const ApiKey& key, Ticket& ticket, int64_t tokens);
    // As Admit, for a process that forwards the request to another process, which charges it:
    // occupies a concurrency slot, and charges nothing.
    Admission Enter(const ApiKey& key);
    // Number of outstanding tickets of a key.
    int64_t running(const std::string& name) const;

  private:
    std::shared_ptr<State> StateOf(const std::string& name);
    Admission Admit(const ApiKey& key, int64_t requests, int64_t tokens);

    const std::shared_ptr<RateTable> table_;

    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<State>> states_;  // by name
};

// A duration in OpenAI's format: "120ms", "1s", "6m0s".
std::string DurationText(int64_t ms);

}  // namespace weft::serve
