// What a key may use: token buckets for requests and tokens a minute, and a count of requests at
// once. Buckets hold a minute's worth and fill steadily. Only requests that ran are charged.
// Thread: any.
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
    // A request that was admitted, until the object goes: then another one may follow. Without
    // Settle() the key gets back all that it was charged for the request.
    class Ticket {
      public:
        Ticket(Ticket&& other) noexcept;
        Ticket& operator=(Ticket&& other) noexcept;
        ~Ticket();
        // The request ran, and took so many tokens in place of those it was admitted with.
        void Settle(int64_t tokens);

      private:
        friend class Limiter;
        Ticket(std::shared_ptr<State> state, int64_t tokens)
            : state_(std::move(state)), tokens_(tokens) {}
        void Release();
        std::shared_ptr<State> state_;
        int64_t tokens_ = 0;
        bool settled_ = false;
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
    // For a request that was admitted with 0 tokens, once they are known. What comes back has no
    // ticket. Where it is refused, the request's ticket is to go unsettled.
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
