// What a key may use: token buckets for requests and tokens a minute, and a count of requests at
// once. Buckets hold a minute's worth and fill steadily. Thread: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "serve/keys.h"

namespace weft::serve {

class Limiter {
  private:
    struct State;

  public:
    // A request that was let in, until the object goes: then another may follow.
    class Ticket {
      public:
        Ticket(Ticket&& other) noexcept;
        Ticket& operator=(Ticket&& other) noexcept;
        ~Ticket();
        // How many tokens it took in the end, in place of those it was let in with.
        void Settle(int64_t tokens);

      private:
        friend class Limiter;
        Ticket(std::shared_ptr<State> state, int64_t tokens)
            : state_(std::move(state)), tokens_(tokens) {}
        void Release();
        std::shared_ptr<State> state_;
        int64_t tokens_ = 0;
    };

    struct Admission {
        std::optional<Ticket> ticket;  // none: refused, with 429 and what follows
        std::string message, code;
        // OpenAI's x-ratelimit-limit|remaining|reset-requests|tokens, and Retry-After where
        // refused: for the answer, whatever it is.
        Headers headers;
        int64_t retry_after_ms = 0;

        bool refused() const { return retry_after_ms > 0; }
    };

    // tokens: what the request will take at most; 0: see Charge. One that takes more than a
    // minute's worth waits for a full bucket, and the next ones wait for the rest.
    Admission Admit(const ApiKey& key, int64_t tokens);
    // For a request that was let in with 0 tokens, once they are known. What comes back has no
    // ticket.
    Admission Charge(const ApiKey& key, Ticket& ticket, int64_t tokens);
    // Requests that hold tickets of that key.
    int64_t running(const std::string& name) const;

  private:
    std::shared_ptr<State> StateOf(const std::string& name);

    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<State>> states_;  // by name
};

// As OpenAI writes how long something lasts: "120ms", "1s", "6m0s".
std::string DurationText(int64_t ms);

}  // namespace weft::serve
