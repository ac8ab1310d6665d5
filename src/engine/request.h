// A request to an engine, and the events that its listener gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/batch/pooling.h"
#include "engine/sampler.h"
#include "grammar/matcher.h"

namespace weft::engine {

struct Request {
    std::vector<int32_t> prompt{};
    int64_t max_tokens = -1;  // -1: to the end of the context; 0: only prefill
    bool ignore_eos = false;
    std::vector<std::string> stop{};    // texts that end the answer; not part of it
    std::vector<int32_t> end_tokens{};  // ids that end the answer, as the model's own do
    SamplerOptions sampler{};
    int logprobs = -1;  // likeliest tokens to report beside each token; -1: report nothing
    // The same for the prompt's tokens except the first (Listener::OnPrompt); -1: report nothing.
    int prompt_logprobs = -1;
    std::string key{};   // see Sequence, also for the next four
    int64_t group = 0;   // number of the first request of a group
    int64_t limit = 0;
    int priority = 0;
    double weight = 1;
    bool cached = true;
    std::string tenant{};       // owner of its texts in the prefix cache
    int32_t adapter = 0;        // number of the job's adapter, from 1; 0: the model alone
    bool show_special = false;  // special tokens become text
    // Constraint on the answer, which ends when nothing more may follow. With `constrain_after`,
    // only the text after that marker is constrained.
    std::optional<grammar::Matcher> matcher{};
    std::string constrain_after{};
    // Makes an embedding of the prompt in place of an answer. Only `prompt`, `adapter`, `key`,
    // `group`, `limit`, `priority`, `weight`, `tenant` and `cached` count.
    std::optional<Pooling> pooling{};
    // Part of work that began before Drain, so the engine still accepts it.
    bool goes_on = false;
};

struct TokenChance {
    int32_t id = 0;
    float logprob =
        0;  // natural logarithm of the model's own probability, before any sampling rule
};

// A generated token.
struct SaidToken {
    TokenChance chance;
    std::vector<TokenChance> best{};  // the likeliest tokens, best first, as many as requested
    int64_t rank = 0;  // prompt tokens: place by probability among all tokens, from 1
};

struct Ending {
    std::string finish;  // "eos", "length", "stop", "context"; "embedding"
    int64_t prompt_tokens = 0, cached_tokens = 0, said_tokens = 0;
    double queue_s = 0, first_token_s = 0, total_s = 0;  // since Submit
    std::string stop_text{};                             // finish "stop": the stop text that was
                                                         // found
    int64_t steps = 0;                                   // after the step of the first token
    int64_t drafted = 0, accepted = 0;                   // drafted tokens in these steps
    bool complete = true;  // false: the text is only a prefix of what the matcher accepts
};

// Receives the events of a request, on the engine's thread. Must not block, except a command's
// reader.
class Listener {
  public:
    virtual ~Listener() = default;
    // Probability of a prompt token: the second, the third, ..., before the first OnToken.
    virtual void OnPrompt(const SaidToken& /*token*/) {}
    // A token and the new text (whole code points; may be empty, or include text of earlier tokens
    // that stop strings held back).
    virtual void OnToken(const SaidToken& token, std::string_view text) = 0;
    // The pooled vector of the prompt, of length 1; before OnEnd.
    virtual void OnEmbedding(std::vector<float>) {}
    // Before an OnEnd with an error: the work done until then.
    virtual void OnSpent(int64_t /*prompt_tokens*/, int64_t /*said_tokens*/) {}
    // The last call. `rest`: text that was held back. kCancelled: Cancel was called.
    virtual void OnEnd(std::string_view rest, const Result<Ending>& ending) = 0;
};

}  // namespace weft::engine
