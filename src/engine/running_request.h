// A request that waits or runs in an engine, as its own files see it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/stop.h"
#include "tokenizer/stream.h"

namespace weft::engine {

struct Engine::RunningRequest {
    RunningRequest(Request r, std::shared_ptr<Listener> l, const tokenizer::Tokenizer& tokenizer,
                   int64_t submitted)
        : request(std::move(r)),
          listener(std::move(l)),
          sampler(request.sampler),
          decoder(tokenizer, !request.show_special),
          stop(request.stop),
          submitted_ns(submitted) {}

    // Looks for the text after which the answer is constrained.
    void FollowMarker(std::string_view text) {
        std::string& marker = request.constrain_after;
        if (marker.empty()) return;
        tail += text;
        if (tail.find(marker) != std::string::npos) return marker.clear();
        if (tail.size() > marker.size()) tail.erase(0, tail.size() - marker.size());
    }

    Request request;
    std::shared_ptr<Listener> listener;
    Sampler sampler;
    tokenizer::StreamDecoder decoder;
    StopMatcher stop;
    // Whether the next token must follow the matcher.
    bool constrained() const { return request.matcher && request.constrain_after.empty(); }

    // What saying a token will ask of its logits.
    void Want(backend::WantedRows& wanted) const {
        sampler.Want(constrained(), wanted);
        wanted.whole = wanted.whole || request.logprobs >= 0 || sequence.scored();
    }

    // The least that saying a token needs of row `place` of a step's rows, of which `guesses` check
    // drafts. A marker within a draft may turn the mask on.
    RowAsk Ask(int64_t place, int64_t guesses, int64_t columns) const {
        const bool masked = guesses > 0 ? request.matcher.has_value() : constrained();
        const bool judged = drafts.own && place < guesses;
        if (request.logprobs >= 0 || sequence.scored() || judged) return {};
        return sampler.Ask(masked, columns, place);
    }

    Sequence sequence;
    AnswerDrafts drafts;
    size_t drafted_at = 0;  // tokens of the text that the sequence's draft, or none, was chosen for
    std::optional<Pooler> pooler;
    std::vector<SaidToken> scores;  // of the prompt's tokens after the first, as far as reported
    int64_t most = 0;               // tokens to say
    int64_t said = 0;
    int64_t steps = 0, drafted = 0, accepted = 0;  // see Ending
    int64_t mask_steps = 0;                        // see MaskBudget
    int64_t submitted_ns = 0, started_ns = 0, first_ns = 0;
    bool over = false;
    std::string tail;  // of the text, while a marker is looked for
};

// What is asked of the loop.
struct Engine::Command {
    int64_t id = 0;
    std::unique_ptr<RunningRequest> added;  // null: the request is to end
    bool well = false;              // not cancelled
};

inline double Seconds(int64_t begin_ns, int64_t end_ns) {
    return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

}  // namespace weft::engine
