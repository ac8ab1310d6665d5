// A waiting or running request of an engine. Only the engine's .cc files include this header.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/stop.h"
#include "tokenizer/stream.h"

namespace weft::engine {

// The next token of an answer, and what is reported about it.
struct Drawn {
    Verdict verdict;
    GeneratedToken said;
};

// Log-probabilities of the token and of the `count` likeliest tokens. Errors: as CheckBest.
Result<GeneratedToken> ChancesOf(std::span<const float> logits, int32_t token, int count,
                                 Weights& weights);

struct Engine::RunningRequest {
    RunningRequest(Request r, std::shared_ptr<Listener> l, const tokenizer::Tokenizer& tokenizer,
                   int64_t submitted)
        : request(std::move(r)),
          listener(std::move(l)),
          sampler(request.sampler),
          decoder(tokenizer, !request.show_special),
          stop(request.stop, request.includes_stop),
          reasoning(request.reasoning),
          submitted_ns(submitted) {}

    Request request;
    std::shared_ptr<Listener> listener;
    Sampler sampler;
    tokenizer::StreamDecoder decoder;
    StopMatcher stop;
    ReasoningTrack reasoning;
    // Whether the matcher constrains the next token.
    bool constrained() const { return request.matcher && !reasoning.inside(); }

    // Adds the logits that the next token needs to `wanted`.
    void Want(backend::WantedRows& wanted) const {
        sampler.Want(constrained(), wanted);
        wanted.whole = wanted.whole || request.logprobs >= 0 || sequence.scored();
    }

    // The smallest RowRequest that suffices to sample the next token from the row at index `place`
    // of a step in which `guesses` rows verify drafts. If the draft ends the reasoning, later rows
    // of the step are constrained. If earlier rows may have forced tokens, which use no random
    // number, the number of this row's draw is unknown.
    RowRequest Ask(int64_t place, int64_t guesses, int64_t columns) const {
        const bool masked = guesses > 0 ? request.matcher.has_value() : constrained();
        const bool judged = drafts.own && place < guesses;
        const bool forces = place > 0 && reasoning.MayForce(place);
        if (request.logprobs >= 0 || sequence.scored() || judged || forces) return {};
        return sampler.Ask(masked, columns, place);
    }

    // The text so far, for the sampler's penalties.
    SampleContext Context() const {
        SampleContext context(sequence.tokens);
        context.prompt = request.prompt.size();
        return context;
    }
    // Draws the next token without a matcher. guess: the drafted token, or -1. Changes only this
    // request.
    Result<Drawn> DrawFreely(const LogitsRow& logits, int32_t guess, Weights& weights);
    // The next token, if DrawAhead has drawn it.
    std::optional<Result<Drawn>> ahead;

    Sequence sequence;
    AnswerDrafts drafts;
    size_t drafted_at = 0;  // length of the text when a draft (perhaps empty) was last chosen
    std::optional<Pooler> pooler;
    std::vector<GeneratedToken> scores;  // scores of the prompt's tokens, from the second on, that
                                         // were already reported
    int64_t most = 0;                    // most tokens to generate
    int64_t said = 0;
    int64_t steps = 0, drafted = 0, accepted = 0;  // see Ending
    int64_t mask_steps = 0;                        // see MaskBudget
    int64_t submitted_ns = 0, started_ns = 0, first_ns = 0;
    bool over = false;
};

// A command from another thread to the engine's loop.
struct Engine::Command {
    int64_t id = 0;
    std::unique_ptr<RunningRequest> added;  // a new request; null: end request `id`
    bool well = false;                      // end the request successfully instead of cancelling it
    std::optional<SlotRequest> slot{};      // instead of all this
};

inline double Seconds(int64_t begin_ns, int64_t end_ns) {
    return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

}  // namespace weft::engine
