// Answers: from a prompt to the end of what the model says to it, token by token or draft by draft.
#include <algorithm>

#include "engine/engine.h"
#include "engine/stop.h"
#include "tokenizer/stream.h"

namespace weft::engine {
namespace {

// Losses in a row, without one token between, that Generate gets over.
constexpr int kMostReplays = 5;

}  // namespace

double Generation::acceptance() const {
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
}

double Generation::tokens_per_step() const {
    const double count = static_cast<double>(std::max<size_t>(1, tokens.size()) - 1);
    return steps > 0 ? count / static_cast<double>(steps) : 0;
}

// What was said so far, and whether that is all.
class Engine::Answer {
  public:
    Answer(const GenerateRequest& request, int64_t most, const tokenizer::Tokenizer& tokenizer,
           const TextSink& sink, Generation& g)
        : request_(request),
          most_(most),
          tokenizer_(tokenizer),
          sink_(sink),
          g_(g),
          stop_(request.stop),
          decoder_(tokenizer),
          history_(request.prompt) {
        if (most == 0) g.finish = "length";
    }

    bool over() const { return !g_.finish.empty(); }
    // The prompt and what was said.
    const std::vector<int32_t>& history() const { return history_; }
    int64_t left() const { return most_ - static_cast<int64_t>(g_.tokens.size()); }

    void Say(int32_t token) {
        g_.tokens.push_back(token);
        history_.push_back(token);
        if (tokenizer_.IsEog(token) && !request_.ignore_eos) {
            g_.finish = "eos";
            return;
        }
        Emit(stop_.Push(decoder_.Push(token)));
        if (stop_.stopped()) {
            g_.finish = "stop";
        } else if (left() <= 0) {
            g_.finish = most_ == request_.max_tokens ? "length" : "context";
        }
    }
    void Flush() {
        Emit(stop_.Push(decoder_.Flush()));
        Emit(stop_.Flush());
    }

  private:
    void Emit(const std::string& text) {
        if (text.empty()) return;
        g_.text += text;
        if (sink_) sink_(text);
    }

    const GenerateRequest& request_;
    int64_t most_;
    const tokenizer::Tokenizer& tokenizer_;
    const TextSink& sink_;
    Generation& g_;
    StopMatcher stop_;
    tokenizer::StreamDecoder decoder_;
    std::vector<int32_t> history_;
};

Result<Generation> Engine::Generate(const GenerateRequest& request, const TextSink& sink) {
    WEFT_TRY(CheckSampler(request.sampler));
    WEFT_TRY(CheckTokens(request.prompt, 1));
    Generation g;
    g.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    const int64_t room = rank_->job().ctx - g.prompt_tokens;
    const int64_t most = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
    const auto run = [&]() -> Result<Generation> {
        const int64_t prefill_ns = NowNs();
        draft_.Clear();
        WEFT_TRY(Replay(request.prompt, 1, Prefill(request.prompt, 1)));
        if (drafter_ != nullptr) {
            const Status begun = drafter_->Begin(request.prompt, request.sampler);
            if (!begun.ok()) WEFT_TRY(Replay(request.prompt, 1, begun));
        }
        g.prefill_s = SecondsSince(prefill_ns);
        Answer answer(request, most, *tokenizer_, sink, g);
        const int64_t begin_ns = NowNs();
        WEFT_TRY(Decode(request, answer, g));
        g.decode_s = SecondsSince(begin_ns);
        answer.Flush();
        return std::move(g);
    };
    return Explain(run());
}

Status Engine::Decode(const GenerateRequest& request, Answer& answer, Generation& g) {
    Sampler sampler(request.sampler);
    cluster_->SetPhase("decode");
    while (!answer.over()) {
        WEFT_TRY(SayRows(sampler, answer, g));
        if (!answer.over()) WEFT_TRY(NextRows(answer.history(), answer.left() - 1, g));
    }
    return {};
}

// Says what the rows of logits_ give: the first is that after the last token, the others are those
// after each token of the draft, and say something as long as the draft is agreed with. A guess
// that was not drawn needs no judgement: that the sampler draws it has the right chance already.
Status Engine::SayRows(Sampler& sampler, Answer& answer, Generation& g) {
    const auto vocab = static_cast<size_t>(rank_->hyper().vocab);
    int64_t checked = 0, accepted = 0;
    Distribution wanted;
    for (size_t row = 0; row <= draft_.tokens.size(); ++row) {
        const auto logits = std::span<const float>(logits_).subspan(row * vocab, vocab);
        const bool guessed = row < draft_.tokens.size();
        Verdict verdict;
        if (guessed && !draft_.chances.empty()) {
            WEFT_TRY(sampler.Distribute(logits, answer.history(), wanted));
            verdict = sampler.Judge(wanted, draft_.chances[row], draft_.tokens[row]);
        } else {
            WEFT_ASSIGN(verdict.token, sampler.Sample(logits, answer.history()));
            verdict.accepted = guessed && verdict.token == draft_.tokens[row];
        }
        checked += guessed ? 1 : 0;
        accepted += verdict.accepted ? 1 : 0;
        answer.Say(verdict.token);
        if (!verdict.accepted || answer.over()) break;
    }
    g.accepted += accepted;
    if (checked > 0) drafter_->Learn(checked, accepted);
    return {};
}

// Runs the last token and a draft of at most `most` tokens after it. After a loss they are run
// again with the same draft: what comes out has the bits that the lost step would have given.
Status Engine::NextRows(std::span<const int32_t> history, int64_t most, Generation& g) {
    draft_.Clear();
    const int64_t room = std::min(most, most_drafts_);
    if (drafter_ != nullptr && room > 0) {
        const Status drafted = drafter_->Propose(history, room, costs_, draft_);
        if (!drafted.ok()) {
            draft_.Clear();
            WEFT_TRY(Replay(history, 1, drafted));
            ++g.steps;
            return {};
        }
    }
    rows_.assign(1, history.back());
    rows_.insert(rows_.end(), draft_.tokens.begin(), draft_.tokens.end());
    const int64_t begin_ns = NowNs();
    const Status outcome = RunRows(rows_, static_cast<int64_t>(history.size()) - 1, rows_.size());
    ++g.steps;
    g.drafted += static_cast<int64_t>(draft_.tokens.size());
    if (outcome.ok()) {
        costs_.Learn(static_cast<int64_t>(rows_.size()), SecondsSince(begin_ns));
        return {};
    }
    std::vector<int32_t> all(history.begin(), history.end());
    all.insert(all.end(), draft_.tokens.begin(), draft_.tokens.end());
    return Replay(all, rows_.size(), outcome);
}

// Rows do not depend on how tokens were cut into steps, so the logits have the bits that the lost
// step would have given.
Status Engine::Replay(std::span<const int32_t> tokens, size_t outputs, Status outcome) {
    for (int replay = 0; !outcome.ok() && replay < kMostReplays; ++replay) {
        rank_->SetIdle(true);
        const Status recovered = Recover(job_, *cluster_, rank_, outcome.error(), recoveries_);
        if (!recovered.ok()) {
            over_ = cluster_->recovers();
            return recovered;
        }
        costs_ = {};
        if (drafter_ != nullptr) drafter_->Serve(*rank_);
        outcome = Prefill(tokens, outputs);
        if (outcome.ok()) cluster_->SetPhase("decode");
    }
    return outcome;
}

}  // namespace weft::engine
