#include "engine/drafts/drafter.h"

#include <utility>

namespace weft::engine {

Status DrawGuess(const DraftText& text, std::vector<int32_t>& tokens, Sampler& sampler,
                 const LogitsRow& logits) {
    SampleContext context(tokens);
    context.prompt = text.prompt;
    int32_t token = 0;
    if (text.own != nullptr) {
        Distribution chances;
        WEFT_TRY(sampler.Distribute(logits, context, chances));
        token = sampler.DrawFrom(chances);
        text.chances->push_back(std::move(chances));
    } else {
        WEFT_ASSIGN(token, sampler.Sample(logits, context));
    }
    tokens.push_back(token);
    text.draft->push_back(token);
    return {};
}

}  // namespace weft::engine
