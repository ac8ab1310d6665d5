// A request to an engine, and the events that its listener gets.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/batch/pooling.h"
#include "engine/sampling/reasoning.h"
#include "engine/sampling/sampler.h"
#include "grammar/matcher.h"

namespace weft::engine {

struct Request {
    std::vector<int32_t> prompt{};
    int64_t max_tokens = -1;  // most tokens to generate; -1: to the end of the context; 0: only
                              // prefill
    bool ignore_eos = false;
    std::vector<std::string> stop{};    // texts that end the answer
    std::vector<int32_t> end_tokens{};  // ids that end the answer, in addition to the model's own
                                        // end tokens
    bool includes_stop = false;  // what ended the answer is part of it: a text of `stop`, or an
                                 // end token of `end_tokens` that is not special
    int64_t min_tokens = 0;      // the answer does not end by a token or `stop` before so many
                                 // tokens, unless no other token may come
    SamplerOptions sampler{};
    int logprobs = -1;  // number of likeliest tokens to report with each token; -1: report no
                        // probabilities
    // The same for the prompt's tokens except the first (Listener::OnPrompt).
    int prompt_logprobs = -1;
    std::string key{};  // key to cached: see Sequence (batch/scheduler.h)
    int64_t group = 0;  // number of the first request of a group
    int64_t limit = 0;
    int priority = 0;
    double weight = 1;
    bool cached = true;
    std::string tenant{};       // owner of the request's texts in the prefix cache
    int32_t adapter = 0;        // number of an adapter of the job, from 1; 0: none
    bool show_special = false;  // special tokens are part of the text
    // Constraint on the answer's text after its reasoning; the answer ends when the matcher accepts
    // no more text.
    std::optional<grammar::Matcher> matcher{};
    Reasoning reasoning{};
    // Not empty: makes an embedding of the prompt instead of an answer, without the states of its
    // first `pool_from` tokens. Other fields with effect: `prompt`, `adapter`, `key`, `group`,
    // `limit`, `priority`, `weight`, `tenant`, `cached`.
    std::vector<Pooling> pooling{};
    int64_t pool_from = 0;
    int64_t second = -1;  // with `pooling`: index of the first token of a pair's second text
    // The request continues work that began before Drain, so the engine accepts it even after
    // Drain.
    bool goes_on = false;
};

struct TokenChance {
    int32_t id = 0;
    float logprob =
        0;  // natural logarithm of the model's own probability, before any sampling rule
};

// A generated token, or a prompt token with its probability.
struct GeneratedToken {
    TokenChance chance;
    std::vector<TokenChance> best{};  // the likeliest tokens, best first, as many as requested
    int64_t rank = 0;  // prompt tokens only: rank by probability among all tokens, from 1
};

struct Ending {
    std::string finish;  // "eos", "length", "stop", "context"; "embedding"
    int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    double queue_s = 0, first_token_s = 0, total_s = 0;  // since Submit
    std::string stop_text{};                             // finish "stop": the stop text
    int64_t steps = 0;                                   // decode steps
    int64_t drafted = 0, accepted = 0;                   // drafted tokens in these steps
    bool complete = true;  // false: the text is only a prefix of what the matcher accepts
};

// How far a prompt is computed.
struct PromptProgress {
    // Tokens: all, those found in the prefix cache, and those known so far, cached ones included.
    int64_t total = 0, cached = 0, processed = 0;
    double seconds = 0;  // since the first step with rows of the prompt began
    double left_s = -1;  // predicted time to the first token; -1: unknown
};

// Receives the events of a request, on the engine's thread. Must not block, except in a command
// that runs a single request.
class Listener {
  public:
    virtual ~Listener() = default;
    // Probability of a prompt token. Called for the second, the third, ... token, before the first
    // OnToken.
    virtual void OnPrompt(const GeneratedToken& /*token*/) {}
    // After each step with rows of the prompt.
    virtual void OnPromptRows(const PromptProgress& /*progress*/) {}
    // Once, before the first OnToken. Times as in Ending.
    virtual void OnPrefilled(double /*queue_s*/, double /*first_token_s*/,
                             int64_t /*cached_tokens*/) {}
    // A token and the new text, in whole code points. The text may be empty. It may include text of
    // earlier tokens that was held back because it could have become a stop string.
    virtual void OnToken(const GeneratedToken& token, std::string_view text) = 0;
    // The pooled states of the prompt. Called before OnEnd.
    virtual void OnEmbedding(std::vector<float>) {}
    // Tokens computed so far. Called before an OnEnd with an error.
    virtual void OnSpent(int64_t /*prompt_tokens*/, int64_t /*generated_tokens*/) {}
    // The last call. `rest`: text that was held back. kCancelled: Cancel was called.
    virtual void OnEnd(std::string_view rest, const Result<Ending>& ending) = 0;
};

// Saves a text's pages in a file, or makes a file's pages known (page_store/slot_file.h).
struct SlotRequest {
    std::string file{};             // without --slot-save-path
    bool restores = false;          // else: saves
    std::vector<int32_t> tokens{};  // to be saved: the pages of them that are cached
    int32_t adapter = 0;            // of the text to be saved
    std::string tenant{};           // owner of the text
    std::string key{};              // keys alternate
    struct Done {
        std::vector<int32_t> tokens{};  // restored: the text
        int32_t adapter = 0;            // restored: of the text
        int64_t pages_tokens = 0;       // tokens of the saved or restored pages
        int64_t bytes = 0;              // of the files of all ranks
        double seconds = 0;
    };
    // Whether nobody waits for the result any more. The engine then leaves the action out.
    std::function<bool()> gone{};
    // Called once, on the engine's thread; must not block.
    std::function<void(const Result<Done>&)> done{};
};

}  // namespace weft::engine
