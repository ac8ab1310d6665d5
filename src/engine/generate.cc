// Engine::Generate: runs one request and waits for its answer.
#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace weft::engine {
namespace {

// Collects an answer.
class TextReader final : public Listener {
  public:
    TextReader(const Engine::TextSink& sink, const Engine::ProgressSink& progress)
        : sink_(sink), progress_(progress) {}
    // Whether the sink ended the answer.
    bool concluded() const { return concluded_; }
    void OnPromptRows(const PromptProgress& progress) override {
        if (progress_) progress_(progress);
    }
    void OnToken(const GeneratedToken& token, std::string_view text) override {
        g_.tokens.push_back(token.chance.id);
        Add(text, token.chance.id);
    }
    void OnEnd(std::string_view rest, const Result<Ending>& ending) override {
        Add(rest, -1);
        over_ = true;
        if (!ending.ok()) {
            failed_ = ending.error();
            return;
        }
        g_.finish = ending->finish;
        g_.prompt_tokens = ending->prompt_tokens;
        g_.prefill_s = ending->first_token_s;
        g_.decode_s = ending->total_s - ending->first_token_s;
        g_.steps = ending->steps;
        g_.drafted = ending->drafted;
        g_.accepted = ending->accepted;
    }
    bool over() const { return over_; }
    Result<Generation> Take() {
        if (!failed_.ok()) return failed_.error();
        return std::move(g_);
    }

  private:
    void Add(std::string_view text, int32_t token) {
        if (text.empty()) return;
        g_.text += text;
        if (sink_ && !concluded_) concluded_ = !sink_(text, token);
    }

    const Engine::TextSink& sink_;
    const Engine::ProgressSink& progress_;
    Generation g_;
    Status failed_;
    bool over_ = false, concluded_ = false;
};

double Over(int64_t count, double by) {
    return by > 0 ? static_cast<double>(count) / by : 0;
}

// Prefill makes the first token, decode the others.
int64_t Decoded(const Generation& g) {
    return static_cast<int64_t>(std::max<size_t>(1, g.tokens.size())) - 1;
}

}  // namespace

EngineOptions OneAtATime(const DraftOptions& draft) {
    EngineOptions options{.max_seqs = 1, .prefix_cache = false, .max_restarts = 1 << 30};
    options.draft = draft;
    options.draft.judged = true;
    return options;
}

double Generation::prefill_tok_s() const {
    return Over(prompt_tokens, prefill_s);
}

double Generation::decode_tok_s() const {
    return Over(Decoded(*this), decode_s);
}

double Generation::acceptance() const {
    return Over(accepted, static_cast<double>(drafted));
}

double Generation::tokens_per_step() const {
    return Over(Decoded(*this), static_cast<double>(steps));
}

Result<Generation> Engine::Generate(Request request, const TextSink& sink,
                                    const ProgressSink& progress) {
    const auto reader = std::make_shared<TextReader>(sink, progress);
    WEFT_ASSIGN(const int64_t id, Submit(std::move(request), reader));
    WEFT_TRY(Loop([&] {
        if (reader->concluded() && !reader->over()) StopEarly(id);
        return reader->over();
    }));
    return reader->Take();
}

}  // namespace weft::engine
