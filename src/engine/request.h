// What an engine is asked for, and what it tells whoever asked.
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
    int64_t max_tokens = -1;  // -1: to the end of the context; 0: the prompt is read, no more
    bool ignore_eos = false;
    std::vector<std::string> stop{};    // texts that end the answer; not part of it
    std::vector<int32_t> end_tokens{};  // that end the answer, as the model's own do
    SamplerOptions sampler{};
    int logprobs = -1;  // how many of the likeliest tokens are reported beside each; -1: nothing is
    // The same for the tokens of the prompt, except the first (Listener::OnPrompt); -1: not at all.
    int prompt_logprobs = -1;
    std::string key{};   // see Sequence, also for the next four
    int64_t group = 0;   // the first request's number, for those that belong together
    int64_t limit = 0;
    int priority = 0;
    double weight = 1;
    bool cached = true;
    std::string tenant{};       // who shares a prefix cache: never with another's texts
    int32_t adapter = 0;        // of the job's, from 1; 0: the model alone
    bool show_special = false;  // special tokens are text, too
    // What the answer must look like; it ends where nothing more may follow. With `constrain_after`
    // only what comes after that text has to.
    std::optional<grammar::Matcher> matcher{};
    std::string constrain_after{};
    // An embedding of the prompt in place of an answer: only `prompt`, `adapter`, `key`, `group`,
    // `limit`, `priority`, `weight`, `tenant` and `cached` count.
    std::optional<Pooling> pooling{};
    // Part of something that was begun before Drain: it may still come.
    bool goes_on = false;
};

struct TokenChance {
    int32_t id = 0;
    float logprob =
        0;  // natural logarithm of the model's own probability, before any sampling rule
};

// A token that was said.
struct SaidToken {
    TokenChance chance;
    std::vector<TokenChance> best{};  // the likeliest, best first, as many as were asked for
    int64_t rank = 0;  // of a token of the prompt: its place by probability among all, from 1
};

struct Ending {
    std::string finish;  // "eos", "length", "stop", "context"; "embedding"
    int64_t prompt_tokens = 0, cached_tokens = 0, said_tokens = 0;
    double queue_s = 0, first_token_s = 0, total_s = 0;  // since Submit
    std::string stop_text{};                             // of "stop": which one it was
    int64_t steps = 0;                                   // behind that of the first token
    int64_t drafted = 0, accepted = 0;                   // guesses in these steps
    bool complete = true;  // false: the text is not all that the request's matcher wants
};

// Who asked. Called on the engine's thread; must not block, but for a command's reader.
class Listener {
  public:
    virtual ~Listener() = default;
    // How likely a token of the prompt was: the second, the third, ..., before the first OnToken.
    virtual void OnPrompt(const SaidToken& /*token*/) {}
    // A token was said, and this text is new (whole code points; it may be empty, or belong to
    // tokens before, which stop strings held back).
    virtual void OnToken(const SaidToken& token, std::string_view text) = 0;
    // What pooling made of the prompt, of length 1; before OnEnd.
    virtual void OnEmbedding(std::vector<float>) {}
    // Before an OnEnd that tells of an error: what was computed until then.
    virtual void OnSpent(int64_t /*prompt_tokens*/, int64_t /*said_tokens*/) {}
    // The last call. `rest`: text that was held back. kCancelled: Cancel was called.
    virtual void OnEnd(std::string_view rest, const Result<Ending>& ending) = 0;
};

}  // namespace weft::engine
